"""PostgreSQL's road: COPY, in the ledger's own connection and transaction; binary, where each type has that form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from sqlalchemy import Connection, text

from kafka_assets.errors import CountsDisagree, TableIncompatible
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.schema import compares
from kafka_assets.sinks.copy_binary import HEAD, TAIL, binary, sent_as
from kafka_assets.sinks.lines import Spelling, lines
from kafka_assets.sinks.road import Table, driver_errors, nothing_overdue, passed_through, quoted_table

if TYPE_CHECKING:
    import psycopg

_SPELLING = Spelling(true="t", false="f", bytes_prefix="\\\\x", widens_floats=False)
_NAME_BYTES = 63
"""A longer name would be cut without a word, and then be another table's."""

_TYPES_NOW = text(
    "SELECT a.attname, t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
    " WHERE a.attrelid = CAST(:name AS regclass) AND a.attnum > 0 AND NOT a.attisdropped"
)

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "SMALLINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE PRECISION",
    pa.date32(): "DATE",
    pa.string(): "TEXT",
    pa.large_string(): "TEXT",
    pa.binary(): "BYTEA",
    pa.large_binary(): "BYTEA",
    pa.null(): "TEXT",
}


class PostgreSQLRoad:
    """Rows into PostgreSQL, inside the caller's transaction."""

    spools = False
    table_options = ""
    misfits = frozenset({"nul"})
    adds_one_column = False
    spooled = staticmethod(passed_through)
    overdue = staticmethod(nothing_overdue)

    def column_type(self, kind: Any) -> str | None:
        if pa.types.is_decimal(kind):
            return f"NUMERIC({kind.precision}, {kind.scale})"
        if pa.types.is_timestamp(kind):
            return f"TIMESTAMP {'WITHOUT' if kind.tz is None else 'WITH'} TIME ZONE"
        if pa.types.is_nested(kind):
            return "JSONB"
        return _TYPES.get(kind)

    def key_type(self, kind: Any, *, of: int) -> str | None:
        return self.column_type(kind) if compares(kind) else None

    def plain_type(self, declared: str) -> str:
        return declared.upper()

    def quoted(self, name: str) -> str:
        if len(name.encode()) > _NAME_BYTES or "\0" in name or not name:
            raise TableIncompatible(
                f"PostgreSQL cannot have a table or column named {name!r}",
                why=f"a name has 1 to {_NAME_BYTES} bytes of UTF-8, none of them zero",
                cure="choose a shorter name",
            )
        return '"' + name.replace('"', '""') + '"'

    def undefer(self, connection: Connection, table: Table) -> None:
        # By name: of other tables that refer to this one, rows may be without theirs until COMMIT.
        found = connection.execute(
            text(
                "SELECT n.nspname, c.conname FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace"
                " WHERE c.conrelid = CAST(:name AS regclass) AND c.condeferrable"
            ),
            {"name": quoted_table(self, table.name)},
        ).all()
        if found:
            names = ", ".join(f"{self.quoted(schema)}.{self.quoted(name)}" for schema, name in found)
            connection.exec_driver_sql(f"SET CONSTRAINTS {names} IMMEDIATE", execution_options={"no_parameters": True})

    def insert(self, connection: Connection, table: Table, rows: pa.Table, *, source_id: int) -> int:
        columns = (PARTITION, OFFSET, *table.columns)
        is_binary = self._takes_binary(connection, table, rows.schema, columns)
        listed = ", ".join(map(self.quoted, (SOURCE, *columns) if is_binary else (*columns, SOURCE)))
        form = " (FORMAT BINARY)" if is_binary else ""
        statement = f"COPY {quoted_table(self, table.name)} ({listed}) FROM STDIN{form}"
        raw = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
        with driver_errors(connection, statement), raw.cursor() as cursor:
            with cursor.copy(statement.encode()) as copy:
                if is_binary:
                    copy.write(HEAD)
                    for part in binary(rows, columns, first=source_id):
                        copy.write(part)
                    copy.write(TAIL)
                else:
                    for part, _ in lines(rows, columns, last=source_id, spelling=_SPELLING):
                        copy.write(part)
            if cursor.rowcount != rows.num_rows:
                raise CountsDisagree(
                    f"{rows.num_rows} rows were sent to the table {table.name!r}, and {cursor.rowcount} arrived",
                    why="a trigger or rule of the table takes rows away",
                    cure="remove it, or let it act on another table",
                )
        return rows.num_rows

    def _takes_binary(self, connection: Connection, table: Table, schema: pa.Schema, columns: Sequence[str]) -> bool:
        """Whether the columns have, now, just the types whose binary form is sent: bytes are not looked at again."""
        sent = {name: sent_as(schema.field(name).type) for name in columns}
        if None in sent.values():
            return False
        found = connection.execute(_TYPES_NOW, {"name": quoted_table(self, table.name)}).all()
        stand: dict[str, str] = {one.attname: one.typname for one in found}
        # The binary form of CHAR(n) is that of TEXT.
        stand = {name: "text" if kind == "bpchar" else kind for name, kind in stand.items()}
        return stand.get(SOURCE) == "int8" and all(stand.get(name) == kind for name, kind in sent.items())
