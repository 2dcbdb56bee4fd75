"""The road of MySQL and MariaDB: LOAD DATA LOCAL INFILE in the ledger's own connection and transaction.

The server may forbid it (`local_infile`); then multi-row INSERTs, which are several times slower.
LOAD DATA LOCAL turns errors into warnings and skips what it does not like: it is taken only where the
server says that it took every row, and complains of nothing.
"""

from __future__ import annotations

import logging
import re
from typing import Any, cast

import pyarrow as pa
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from kafka_assets.errors import RowsRefused, TableIncompatible
from kafka_assets.ledger.drivers import packet_limit
from kafka_assets.ledger.mysql_connection import LOADED, MySQLConnection
from kafka_assets.ledger.trouble import PACKET_TOO_LARGE, code_of, lost
from kafka_assets.records import OFFSET, PARTITION, SOURCE, Refused
from kafka_assets.schema import compares
from kafka_assets.sinks.inserts import insert_rows
from kafka_assets.sinks.lines import Spelling, lines
from kafka_assets.sinks.road import Table, driver_errors, nothing_overdue, passed_through, quoted_table
from kafka_assets.sinks.rounds import Refusing

_log = logging.getLogger(__name__)
_SPELLING = Spelling(true="1", false="0", bytes_prefix="", widens_floats=True)
_NAME_CHARACTERS = 64
_MOST_SCALE = {"mysql": 30, "mariadb": 38}
# The server's switch, and its refusal of a client that may not.
_FORBIDDEN = {1148, 3948, 4166}
_TAKEN = re.compile(rb"Records: (\d+)\s+Deleted: (\d+)\s+Skipped: (\d+)\s+Warnings: (\d+)")
_WIDTH = re.compile(r"^(TINYINT|SMALLINT|MEDIUMINT|INTEGER|INT|BIGINT)\(\d+\)")

_NO_PAD = {"mysql": "utf8mb4_0900_bin", "mariadb": "utf8mb4_nopad_bin"}
_KEY_BYTES = 3072
"""What InnoDB's index holds of a row; a character of utf8mb4 may take four."""

_TYPES = {
    pa.bool_(): "TINYINT(1)",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    # FLOAT is shown with six digits, whatever it holds.
    pa.float32(): "DOUBLE",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    # A message may be as long as it likes, and VARCHAR ends with the row at 64 KiB.
    pa.string(): "LONGTEXT",
    pa.large_string(): "LONGTEXT",
    pa.binary(): "LONGBLOB",
    pa.large_binary(): "LONGBLOB",
    pa.null(): "LONGTEXT",
}
_LARGE = 1 << 20
"""Bytes: up to here the driver puts several rows into one statement, so every server takes that much."""


class MySQLRoad:
    """Rows into MySQL or MariaDB, inside the caller's transaction."""

    spools = False
    # Compared byte by byte, as the records are: no two values are equal that differ.
    table_options = " ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    misfits = frozenset({"nan", "inf"})
    adds_one_column = False
    spooled = staticmethod(passed_through)
    overdue = staticmethod(nothing_overdue)
    loads = True
    """Whether LOAD DATA LOCAL was not refused yet in this process."""

    def __init__(self, database: str) -> None:
        self._database = database

    def column_type(self, kind: Any) -> str | None:
        if pa.types.is_decimal(kind):
            fits = kind.scale <= _MOST_SCALE[self._database]
            return f"DECIMAL({kind.precision}, {kind.scale})" if fits else None
        if pa.types.is_timestamp(kind):
            return "DATETIME(6)"  # in UTC: TIMESTAMP begins in 1970 and ends in 2038
        if pa.types.is_nested(kind):
            return "JSON"
        return _TYPES.get(kind)

    def key_type(self, kind: Any, *, of: int) -> str | None:
        width = _KEY_BYTES // of
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            # The table's own collation takes two texts for equal that differ in spaces at their ends.
            return f"VARCHAR({width // 4}) COLLATE {_NO_PAD[self._database]}"
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return f"VARBINARY({width})"
        return self.column_type(kind) if compares(kind) else None

    def plain_type(self, declared: str) -> str:
        plain = re.sub(r" (COLLATE|CHARACTER SET) \S+", "", declared.upper())
        plain = _WIDTH.sub(r"\1", plain)
        # MariaDB's JSON is a LONGTEXT that is checked.
        return "LONGTEXT" if plain == "JSON" and self._database == "mariadb" else plain

    def quoted(self, name: str) -> str:
        # A backtick could be written, and SQLAlchemy would not find it again.
        odd = not name or name.endswith(" ") or any(one == "`" or not 0 < ord(one) <= 0xFFFF for one in name)
        if odd or len(name) > _NAME_CHARACTERS:
            raise TableIncompatible(
                f"{self._database} cannot have a table or column named {name!r}",
                why=f"a name has 1 to {_NAME_CHARACTERS} characters of Unicode's first plane, no backtick, "
                "and no space at its end",
                cure="choose another name",
            )
        return f"`{name}`"

    def undefer(self, connection: Connection, table: Table) -> None:
        """Nothing: InnoDB checks every row at once."""

    def insert(self, connection: Connection, table: Table, rows: pa.Table, *, source_id: int) -> int:
        if rows.num_rows == 0:
            return 0
        # A row alone goes by INSERT: what is refused is told in words there. One that is no statement's does not.
        if MySQLRoad.loads and (rows.num_rows > 1 or rows.nbytes > _LARGE):
            try:
                self._load(connection, table, rows, source_id=source_id)
                return rows.num_rows
            except DBAPIError as error:
                if code_of(error) not in _FORBIDDEN:
                    raise
                MySQLRoad.loads = False
                _log.warning(
                    "LOAD DATA LOCAL is forbidden here (%s): rows go by INSERT, which is several times slower; "
                    "set local_infile = 1 on the server to have them loaded",
                    error.orig,
                )
        self._insert(connection, table, rows, source_id=source_id)
        if rows.num_rows == 1 and (said := _warnings(connection)):
            raise RowsRefused(f"the table {table.name!r} did not take a row as it was sent", why=said)
        return rows.num_rows

    def _insert(self, connection: Connection, table: Table, rows: pa.Table, *, source_id: int) -> None:
        """By INSERT, no row of which is beyond what the server takes: it would cut the connection."""
        widest = 2 * rows.nbytes  # every byte may have to be escaped
        limit = packet_limit(connection) if widest > _LARGE else None
        if limit is None or widest <= limit:
            insert_rows(connection, self, table, rows, source_id=source_id)
        elif rows.num_rows > 1:
            middle = rows.num_rows // 2
            for part in (rows.slice(0, middle), rows.slice(middle)):
                self._insert(connection, table, part, source_id=source_id)
        else:
            self._insert_large(connection, table, rows, limit, source_id=source_id)

    def _insert_large(
        self, connection: Connection, table: Table, rows: pa.Table, limit: int, *, source_id: int
    ) -> None:
        why = f"its row of {rows.nbytes:,} bytes is beyond the server's max_allowed_packet of {limit:,}"
        if rows.nbytes > limit:
            raise RowsRefused(f"the table {table.name!r} cannot be sent a row", why=why)
        try:
            insert_rows(connection, self, table, rows, source_id=source_id)
        except DBAPIError as error:
            # Whether it says so or hangs up depends on how far it had read; either way the connection is gone.
            if code_of(error) != PACKET_TOO_LARGE and not lost(error):
                raise
            place = (rows.column(PARTITION)[0].as_py(), rows.column(OFFSET)[0].as_py())
            raise Refusing([Refused(*place, why)]) from error

    def _load(self, connection: Connection, table: Table, rows: pa.Table, *, source_id: int) -> None:
        columns = (PARTITION, OFFSET, *table.columns)
        listed, decoded = self._listed(rows, columns)
        raw = cast("MySQLConnection", connection.connection.driver_connection)
        statement = (
            f"LOAD DATA LOCAL INFILE {LOADED} INTO TABLE {quoted_table(self, table.name)} CHARACTER SET utf8mb4"
            r" FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n'"
            f" ({listed}, {self.quoted(SOURCE)}){decoded}"
        )
        for part, count in lines(rows, columns, last=source_id, spelling=_SPELLING):
            with driver_errors(connection, statement):
                taken = _TAKEN.search(raw.load(statement, part))
            if taken is None or tuple(map(int, taken.groups())) != (count, 0, 0, 0):
                raise RowsRefused(
                    f"the table {table.name!r} did not take {count} rows as they were sent",
                    why=_complaints(connection, taken[0].decode() if taken else "no count of them"),
                )

    def _listed(self, rows: pa.Table, columns: tuple[str, ...]) -> tuple[str, str]:
        """The columns in the file's order; bytes come as digits, by way of a variable."""
        listed: list[str] = []
        decoded: list[str] = []
        kinds = cast("dict[str, Any]", dict(zip(rows.schema.names, rows.schema.types, strict=True)))
        for number, name in enumerate(columns):
            kind = kinds[name]
            if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
                listed.append(f"@bytes_{number}")
                decoded.append(f"{self.quoted(name)} = UNHEX(@bytes_{number})")
            else:
                listed.append(self.quoted(name))
        return ", ".join(listed), f" SET {', '.join(decoded)}" if decoded else ""


def _complaints(connection: Connection, counts: str) -> str:
    """A warning is no complete list: a row that breaks a CHECK vanishes without one."""
    said = _warnings(connection)
    return f"it says {counts}" + (f": {said}" if said else ", and names no reason: a CHECK may have left rows out")


def _warnings(connection: Connection) -> str:
    return "; ".join(str(row[2]) for row in connection.exec_driver_sql("SHOW WARNINGS LIMIT 3"))
