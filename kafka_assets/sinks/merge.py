"""The short merge of an upsert: rows wait in a temporary table, and the later version of a key wins.

Before the asset's lock: losers among the run's own rows are taken out. Under it: what the table or a tombstone
knows in a later version is taken out; what is left is the last word on its key, and is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, literal, select

from kafka_assets.errors import KeyMoved
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.drivers import patient, set_idle_timeout
from kafka_assets.ledger.engine import IDLE_SECONDS
from kafka_assets.records import OFFSET, PARTITION, SOURCE, Refused
from kafka_assets.sinks.halving import culprits
from kafka_assets.sinks.road import Road, Table, quoted_table
from kafka_assets.sinks.rows import left_alone
from kafka_assets.sinks.versions import (
    DELETED,
    DIGEST,
    INCARNATION,
    KEY_TEXT,
    PUBLICATION,
    order_column,
    version_columns,
)
from kafka_assets.streams import Upsert

MERGE, LOSERS = "kafka_merge", "kafka_losers"
"""Temporary tables, seen by this connection alone."""
_LOCK_SECONDS = 2 * IDLE_SECONDS
"""Longer than the server keeps a frozen transaction that holds the asset's lock."""
_PLACE = (SOURCE, PARTITION, OFFSET)
_PARTITIONS = 2**31
"""More partitions than a topic can have."""
_TOMBSTONE_VERSION = {INCARNATION: "incarnation", PARTITION: "kafka_partition", OFFSET: "kafka_offset"}


class Merge:
    """The merge of one transaction into one table."""

    def __init__(self, connection: Connection, road: Road, table: Table, *, asset: str) -> None:
        assert table.upsert is not None
        self._connection = connection
        self._road = road
        self._table = table
        self._upsert: Upsert = table.upsert
        self._asset = _literal(connection, asset)
        self._stands = True
        """Whether the table may have a row with the key of one that waits."""

    def prepare(self) -> Table:
        """Make the temporary table; rows are inserted into it as into any other."""
        road, ordered = self._road, order_column(self._upsert)
        text = road.column_type(pa.string()) or "TEXT"
        own = dict(zip(self._table.columns, self._table.types, strict=True))
        added = {PUBLICATION: "BIGINT", INCARNATION: "INTEGER", DIGEST: "CHAR(64)", KEY_TEXT: text, DELETED: "SMALLINT"}
        if ordered is not None:
            added[ordered] = "BIGINT"
        filled = {SOURCE, PARTITION, OFFSET, *self._upsert.key, *added} - {KEY_TEXT}
        places = {SOURCE: "BIGINT", PARTITION: "INTEGER", OFFSET: "BIGINT"}
        lines = ",\n  ".join(
            f"{road.quoted(name)} {kind}{' NOT NULL' if name in filled else ''}"
            for name, kind in (places | own | added).items()
        )
        self._drop_tables()
        # The key refuses a transform that makes two rows of one record: their versions would be equal.
        self._run(
            f"CREATE TEMPORARY TABLE {MERGE} (\n  {lines},\n  PRIMARY KEY ({self._list(_PLACE)})\n){road.table_options}"
        )
        return Table(name=MERGE, columns=(*self._table.columns, *added))

    def reduce(self) -> None:
        """Leave one version of each key, the latest; before the lock, since only this run's rows are looked at."""
        if self._connection.dialect.name == "postgresql":
            # Nobody else ever does it for a temporary table.
            self._run(f"ANALYZE {MERGE} ({self._list(dict.fromkeys((*_PLACE, *self._upsert.key, DIGEST, DELETED)))})")
        latest_first = ", ".join(f"{self._road.quoted(name)} DESC" for name in version_columns(self._upsert))
        # One pass tells both who loses, and whether to a record of another partition: a second function of a window
        # takes MariaDB as long as the first.
        self._run(f"""
            CREATE TEMPORARY TABLE {LOSERS} AS
            SELECT * FROM (
                SELECT {self._list((*_PLACE, INCARNATION))},
                       LAG({INCARNATION} * {_PARTITIONS} + {PARTITION}) OVER latest_first AS later
                FROM {MERGE}
                WINDOW latest_first AS (PARTITION BY {self._list(self._upsert.key)} ORDER BY {latest_first})
            ) ranked
            WHERE later IS NOT NULL""")
        if order_column(self._upsert) is None:
            same = " AND ".join(f"{MERGE}.{name} = {LOSERS}.{name}" for name in _PLACE)
            first = f"{LOSERS}.{INCARNATION} * {_PARTITIONS}"
            self._refuse_moved(f"""
                SELECT {MERGE}.{DIGEST}, later - {first}, {LOSERS}.{PARTITION}, {LOSERS}.{OFFSET}
                FROM {LOSERS} JOIN {MERGE} ON {same}
                WHERE later BETWEEN {first} AND {first} + {_PARTITIONS - 1} AND later <> {first} + {LOSERS}.{PARTITION}
                LIMIT 1""")
        self._run(f"""
            DELETE FROM {MERGE}
            WHERE ({self._list(_PLACE)}) IN (SELECT {self._list(_PLACE)} FROM {LOSERS})""")

    def lock(self) -> None:
        """The asset's lock, in a statement of its own: what the next ones see was committed before they began.

        Without it an older row could be inserted beside a tombstone that is not committed yet, and
        would stay. It is held until COMMIT, and the server ends a transaction that is frozen in it.
        """
        set_idle_timeout(self._connection, IDLE_SECONDS)
        owned = select(t.target.c.table_name).where(t.target.c.table_name == self._table.name)
        with patient(self._connection, _LOCK_SECONDS):
            self._connection.execute(owned.with_for_update()).one()

    def settle(
        self, *, deletes: bool, topics: Mapping[int, str]
    ) -> Generator[Refused, None, dict[tuple[int, bool], int]]:
        """Merge; how many records won, by publication and whether they delete.

        Yields the records that the table refuses, each with its topic. Where there are any, nothing of this may
        be committed: an earlier version of a refused record's key is out already.
        """
        target = quoted_table(self._road, self._table.name)
        # Most tables have no tombstone, and many a run brings nothing but new keys. Under the asset's lock no row and
        # no tombstone comes while this one looks.
        same_key = self._same_key("standing")
        self._stands = bool(self._all(f"SELECT 1 FROM {MERGE} JOIN {target} standing ON {same_key} LIMIT 1"))
        buried = bool(self._all(f"SELECT 1 FROM kafka_tombstone WHERE asset = {self._asset} LIMIT 1"))
        self._refuse_moved_since(target, buried=buried)
        if self._stands:
            self._drop_older(target)
        if buried:
            self._drop_buried()
            # What is left is the last word on its key: an older tombstone is not needed any more.
            self._forget_tombstones()
        counted = self._all(f"SELECT {PUBLICATION}, {DELETED}, COUNT(*) FROM {MERGE} GROUP BY {PUBLICATION}, {DELETED}")
        won = {(publication, bool(deleted)): count for publication, deleted, count in counted}
        puts, gone = (sum(count for (_, is_gone), count in won.items() if is_gone is one) for one in (False, True))
        if deletes:
            # All deletes before any row, which may take the place of what goes in a unique key.
            yield from self._halved(gone, lambda within, _: self._bury(target, within), deleted=1, topics=topics)
        yield from self._halved(puts, partial(self._write, target), deleted=0, topics=topics)
        return won

    def _drop_tables(self) -> None:
        """Those of an earlier transaction, where the connection is kept; no others, whatever else is so named."""
        if self._connection.dialect.name == "sqlite":
            for name in (MERGE, LOSERS):
                self._run(f"DROP TABLE IF EXISTS temp.{name}")
        elif self._connection.dialect.name == "postgresql":
            self._run(f"DROP TABLE IF EXISTS pg_temp.{MERGE}, pg_temp.{LOSERS}")
        else:
            self._run(f"DROP TEMPORARY TABLE IF EXISTS {MERGE}, {LOSERS}")

    def _halved(
        self, count: int, take: Callable[[str, int], None], *, deleted: int, topics: Mapping[int, str]
    ) -> Generator[Refused]:
        """Have `take` take so many winners, or all but those that the table refuses: where they lie, and how many."""
        listed = self._list(_PLACE)
        places: list[Any] = []

        def place(first: int, end: int) -> list[Any]:
            if not places:  # asked for only where something is refused
                places.extend(self._all(f"SELECT {listed} FROM {MERGE} WHERE {DELETED} = {deleted} ORDER BY {listed}"))
            return places[first:end]

        def take_part(first: int, end: int) -> None:
            take("1 = 1" if end - first == count else _within(place(first, end)), end - first)

        for number, refused in culprits(self._connection, count, take_part):
            [(source, partition, offset)] = place(number, number + 1)
            yield Refused(partition, offset, refused.why, topic=topics[source])

    def _bury(self, target: str, within: str) -> None:
        self._delete(target, within)
        self._keep_tombstones(within)

    def _drop_older(self, target: str) -> None:
        """Take out what the table has in a later version. A tie is the same record, told again: it stays."""
        version = version_columns(self._upsert)
        self._run(f"""
            DELETE FROM {MERGE} WHERE EXISTS (
                SELECT 1 FROM {target} standing
                WHERE {self._same_key("standing")}
                  AND ({self._list(version, "standing")}) > ({self._list(version, MERGE)}))""")

    def _drop_buried(self) -> None:
        """Take out what was deleted in a later version."""
        version = version_columns(self._upsert)
        self._run(f"""
            DELETE FROM {MERGE} WHERE EXISTS (
                SELECT 1 FROM kafka_tombstone stone
                WHERE stone.asset = {self._asset} AND stone.key_digest = {MERGE}.{DIGEST}
                  AND ({self._stone(version)}) > ({self._list(version, MERGE)}))""")

    def _forget_tombstones(self) -> None:
        self._run(f"""
            DELETE FROM kafka_tombstone
            WHERE asset = {self._asset} AND key_digest IN (SELECT {DIGEST} FROM {MERGE})""")

    def _delete(self, target: str, within: str) -> None:
        key = self._list(self._upsert.key)
        self._run(f"DELETE FROM {target} WHERE ({key}) IN (SELECT {key} FROM {MERGE} WHERE {DELETED} = 1 AND {within})")
        [[left]] = self._all(f"""
            SELECT COUNT(*) FROM {MERGE} JOIN {target} standing ON {self._same_key("standing")}
            WHERE {MERGE}.{DELETED} = 1 AND {within}""")
        if left:
            raise left_alone(f"a record deletes a row of the table {self._table.name!r}, and it is still there")

    def _keep_tombstones(self, within: str) -> None:
        ordered = order_column(self._upsert)
        value = "NULL" if ordered is None else self._road.quoted(ordered)
        self._run(f"""
            INSERT INTO kafka_tombstone (asset, key_digest, key_text, incarnation, order_value,
                                         kafka_partition, kafka_offset, slice_id)
            SELECT {self._asset}, {DIGEST}, {KEY_TEXT}, {INCARNATION}, {value},
                   {MERGE}.{PARTITION}, {MERGE}.{OFFSET}, published.slice_id
            FROM {MERGE} JOIN kafka_publication published ON published.id = {MERGE}.{PUBLICATION}
            WHERE {DELETED} = 1 AND {within}""")

    def _write(self, target: str, within: str, count: int) -> None:
        columns = self._columns()
        changed = ", ".join(
            f"{self._road.quoted(name)} = excluded.{self._road.quoted(name)}"
            for name in columns
            if name not in self._upsert.key
        )
        taken = self._run(f"""
            INSERT INTO {target} ({self._list(columns)})
            SELECT {self._list(columns)} FROM {MERGE} WHERE {DELETED} = 0 AND {within}
            ON CONFLICT ({self._list(self._upsert.key)}) DO UPDATE SET {changed}""")
        self._require(taken, count)

    def _require(self, taken: int, count: int) -> None:
        if taken != count:
            raise left_alone(f"{count} rows were sent to the table {self._table.name!r}, and {taken} arrived")

    def _columns(self) -> tuple[str, ...]:
        ordered = order_column(self._upsert)
        return (SOURCE, INCARNATION, PARTITION, OFFSET, *([] if ordered is None else [ordered]), *self._table.columns)

    def _refuse_moved_since(self, target: str, *, buried: bool) -> None:
        if order_column(self._upsert) is not None:
            return
        # Another incarnation may have other partitions: only within one do offsets decide.
        moved = f"""
            SELECT {MERGE}.{DIGEST}, standing.{PARTITION}, {MERGE}.{PARTITION}, {MERGE}.{OFFSET}
            FROM {MERGE} JOIN {{}}
            AND standing.{{}} = {MERGE}.{INCARNATION} AND standing.{PARTITION} <> {MERGE}.{PARTITION}
            LIMIT 1"""
        if self._stands:
            self._refuse_moved(moved.format(f"{target} standing ON {self._same_key('standing')}", INCARNATION))
        if buried:
            stone = f"standing.asset = {self._asset} AND standing.key_digest = {MERGE}.{DIGEST}"
            self._refuse_moved(moved.format(f"kafka_tombstone standing ON {stone}", "incarnation"))

    def _refuse_moved(self, query: str) -> None:
        for digest, before, now, offset in self._all(query):
            key = self._all(f"SELECT {self._list(self._upsert.key)} FROM {MERGE} WHERE {DIGEST} = '{digest}'")[0]
            shown = ", ".join(f"{name} = {value!r}" for name, value in zip(self._upsert.key, key, strict=True))
            raise KeyMoved(
                f"the key {shown} of the table {self._table.name!r} was met in partition {now} (offset {offset}), "
                f"and before in partition {before}",
                why="offsets of two partitions do not compare: which record is later cannot be told "
                "(it happens when partitions are added, or a producer partitions otherwise)",
                cure="declare order_by: kafka_timestamp or a column, with a new name and target, and land again",
            )

    def _same_key(self, other: str) -> str:
        names = map(self._road.quoted, self._upsert.key)
        return " AND ".join(f"{other}.{name} = {MERGE}.{name}" for name in names)

    def _stone(self, version: Sequence[str]) -> str:
        return ", ".join(f"stone.{_TOMBSTONE_VERSION.get(name, 'order_value')}" for name in version)

    def _list(self, names: Iterable[str], of: str = "") -> str:
        return ", ".join(f"{of}.{name}" if of else name for name in map(self._road.quoted, names))

    def _run(self, statement: str) -> int:
        """Carry it out; how many rows it wrote or took out."""
        # Without parameters a % in a column's name is a %.
        return self._connection.exec_driver_sql(statement, execution_options={"no_parameters": True}).rowcount

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        found = self._connection.exec_driver_sql(query, execution_options={"no_parameters": True})
        return [tuple(row) for row in found]


def _within(places: Sequence[tuple[int, int, int]]) -> str:
    """The condition that a waiting row lies between the first and the last of these, which stand in order."""
    ranges: list[str] = []
    for (source, partition), group in itertools.groupby(places, key=lambda place: place[:2]):
        offsets = [offset for _, _, offset in group]
        ranges.append(
            f"({MERGE}.{SOURCE} = {source} AND {MERGE}.{PARTITION} = {partition}"
            f" AND {MERGE}.{OFFSET} BETWEEN {offsets[0]} AND {offsets[-1]})"
        )
    return f"({' OR '.join(ranges)})"


def _literal(connection: Connection, value: str) -> str:
    return str(literal(value).compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True}))
