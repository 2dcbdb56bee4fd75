"""What a good engineer writes by hand instead: consume, decode, and commit rows and offsets in one transaction.

Each loop takes what is in its partitions and no more, 10,000 records a commit. None of them looks for a key that
stands twice, keeps a bad record, knows of a re-created topic, or is fenced: that is what they are compared for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import msgspec
from sqlalchemy import Connection as SqlConnection
from sqlalchemy import Engine

from kafka_assets.broker.assigned import assigned
from kafka_assets.broker.connection import Connection
from kafka_assets.lab.bench.packed_rows import HEAD, PACKERS, TAIL
from kafka_assets.lab.bench.record_function import GIVES, row_maker
from kafka_assets.lab.bench.record_shapes import Shape, Values
from kafka_assets.records import OFFSET, PARTITION, SOURCE

if TYPE_CHECKING:
    from kafka_assets.ledger.mysql_connection import MySQLConnection

BATCH = 10_000
OFFSETS = "bench_offsets"
"""The hand-written loops' own table of offsets, (partition, next_offset), one for each target."""


@dataclass(frozen=True)
class Target:
    """Where the rows go, and what records they are made of; `function`: its rows, instead of the records'."""

    table: str
    shape: Shape
    function: bool = False

    @property
    def rows(self) -> Shape:
        """The table's own columns."""
        return GIVES if self.function else self.shape

    @property
    def columns(self) -> tuple[str, ...]:
        """In the order in which all loops send them."""
        return (SOURCE, PARTITION, OFFSET, *self.rows.columns)


@dataclass(frozen=True)
class Task:
    """One process's share of one measurement."""

    connection: Connection
    engine: Engine
    topic: str
    partitions: Sequence[int]
    records: int
    target: Target


@dataclass(frozen=True)
class Times:
    """When the first record was there, and when the last one was committed; on the machine's clock."""

    first: float
    last: float


Loop = Callable[[SqlConnection, Target, list[Any]], None]
"""Writes one batch of messages; the caller commits."""


def run(task: Task, write: Loop) -> Times:
    """Consume to the end, a transaction for each batch."""
    consumer = assigned(task.connection, task.topic, task.partitions)
    first = last = 0.0
    left = task.records
    try:
        with task.engine.connect() as connection:
            while left:
                messages = consumer.consume(BATCH, timeout=0.5)
                if not messages:
                    continue
                first = first or time.time()
                with connection.begin():
                    write(connection, task.target, messages)
                    _keep(connection, task.target.table, messages)
                last = time.time()
                left -= len(messages)
    finally:
        consumer.close()
    return Times(first, last)


def _keep(connection: SqlConnection, table: str, messages: Sequence[Any]) -> None:
    """The offsets, in the rows' transaction."""
    ends = {message.partition(): message.offset() + 1 for message in messages}
    for partition, end in ends.items():
        connection.exec_driver_sql(
            f"UPDATE {OFFSETS} SET next_offset = {end} WHERE target = '{table}' AND topic_partition = {partition}"
        )


def json_executemany(connection: SqlConnection, target: Target, messages: list[Any]) -> None:
    """The standard library and the driver's executemany: what most write first."""
    names = list(target.shape.columns)
    times = target.shape.of_kind("TIMESTAMP")
    exact = Decimal if target.shape.of_kind("DECIMAL(12,2)") else float

    def decode(value: bytes) -> list[Any]:
        found = json.loads(value, parse_float=exact)
        values = [found[name] for name in names]
        for place in times:
            values[place] = datetime.fromisoformat(values[place])
        return values

    _executemany(connection, target, _rows(connection, target, messages, decode))


def msgspec_executemany(connection: SqlConnection, target: Target, messages: list[Any]) -> None:
    """A typed decoder, and the driver's executemany."""
    _executemany(connection, target, _rows(connection, target, messages, _typed(target)))


def msgspec_load_data(connection: SqlConnection, target: Target, messages: list[Any]) -> None:
    """A typed decoder, and LOAD DATA from lines; no file in between, which this ledger's driver would refuse."""
    from kafka_assets.ledger.mysql_connection import LOADED

    lines = ["\t".join(map(_escaped, row)) for row in _rows(connection, target, messages, _typed(target))]
    statement = (
        f"LOAD DATA LOCAL INFILE {LOADED} INTO TABLE {target.table} CHARACTER SET utf8mb4 "
        rf"FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' ({', '.join(target.columns)})"
    )
    raw = cast("MySQLConnection", connection.connection.driver_connection)
    raw.load(statement, memoryview("\n".join([*lines, ""]).encode()))


def msgspec_copy_binary(connection: SqlConnection, target: Target, messages: list[Any]) -> None:
    """A typed decoder, and rows packed by hand for PostgreSQL's binary COPY, in one write."""
    made, packed, parts = _row_maker(target), PACKERS[target.rows.name], [HEAD]
    for message in messages:
        if (row := made(message.value())) is not None:
            parts.append(packed(message.partition(), message.offset(), row))
    parts.append(TAIL)
    statement = f"COPY {target.table} ({', '.join(target.columns)}) FROM STDIN (FORMAT BINARY)"
    raw = cast("Any", connection.connection.driver_connection)
    with raw.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(b"".join(parts))


def _row_maker(target: Target) -> Callable[[bytes], Any | None]:
    """By a typed decoder, and the function where there is one: it leaves records out."""
    decode = msgspec.json.Decoder(target.shape.struct).decode
    if not target.function:
        return decode
    made = row_maker()
    return lambda value: made(decode(value))


def _typed(target: Target) -> Callable[[bytes], Sequence[Any] | None]:
    made = _row_maker(target)

    def values(value: bytes) -> Sequence[Any] | None:
        row = made(value)
        return None if row is None else msgspec.structs.astuple(row)

    return values


def _rows(
    connection: SqlConnection, target: Target, messages: Sequence[Any], decode: Callable[[bytes], Sequence[Any] | None]
) -> list[Values]:
    """The records as the driver takes them, each with its place before it."""
    turned = _turned(connection.dialect.name, target.rows)
    rows: list[Values] = []
    for message in messages:
        if (made := decode(message.value())) is None:
            continue
        values = list(made)
        for place, turn in turned:
            if values[place] is not None:
                values[place] = turn(values[place])
        rows.append((1, message.partition(), message.offset(), *values))
    return rows


def _turned(dialect: str, shape: Shape) -> list[tuple[int, Callable[[Any], Any]]]:
    """The columns whose values this database's driver does not take as they are."""
    if dialect == "postgresql":
        return []
    times: list[tuple[int, Callable[[Any], Any]]]
    if dialect == "sqlite":
        times = [(place, lambda at: _in_utc(at).isoformat(" ")) for place in shape.of_kind("TIMESTAMP")]
        return [*times, *((place, str) for place in shape.of_kind("DECIMAL(12,2)"))]
    return [(place, _in_utc) for place in shape.of_kind("TIMESTAMP")]


def _in_utc(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(tzinfo=None)


def _escaped(value: Any) -> str:
    if value is None:
        return "\\N"
    if not isinstance(value, str):
        return str(value)
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def copy_and_merge(connection: SqlConnection, target: Target, messages: list[Any]) -> None:
    """As by COPY BINARY, into a temporary table first: of an id the last record replaces what is there."""
    batch, names = f"{target.table}_batch", ", ".join(target.columns)
    connection.exec_driver_sql(
        f"CREATE TEMPORARY TABLE IF NOT EXISTS {batch} (LIKE {target.table}) ON COMMIT DELETE ROWS"
    )
    msgspec_copy_binary(connection, Target(batch, target.shape), messages)
    connection.exec_driver_sql(
        f"INSERT INTO {target.table} ({names}) SELECT DISTINCT ON (id) {names} FROM {batch}"
        f" ORDER BY id, {OFFSET} DESC ON CONFLICT (id) DO UPDATE SET {_replaced(target, 'excluded.{}')}"
    )


def executemany_and_replace(connection: SqlConnection, target: Target, messages: list[Any]) -> None:
    """As by executemany, in the records' order: of an id the last one replaces what is there."""
    if connection.dialect.name == "sqlite":
        ending = f"ON CONFLICT (id) DO UPDATE SET {_replaced(target, 'excluded.{}')}"
    else:
        ending = f"ON DUPLICATE KEY UPDATE {_replaced(target, 'VALUES({})')}"
    _executemany(connection, target, _rows(connection, target, messages, _typed(target)), ending=ending)


def _replaced(target: Target, new: str) -> str:
    return ", ".join(f"{name} = {new.format(name)}" for name in target.columns if name != "id")


def _executemany(connection: SqlConnection, target: Target, rows: Sequence[Values], *, ending: str = "") -> None:
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    marks = ", ".join([mark] * len(target.columns))
    raw = cast("Any", connection.connection.driver_connection)
    cursor = raw.cursor()
    try:
        cursor.executemany(f"INSERT INTO {target.table} ({', '.join(target.columns)}) VALUES ({marks}) {ending}", rows)
    finally:
        cursor.close()


LOOPS: dict[str, Loop] = {
    "json + executemany": json_executemany,
    "msgspec + executemany": msgspec_executemany,
    "msgspec + COPY BINARY": msgspec_copy_binary,
    "msgspec + LOAD DATA": msgspec_load_data,
    "msgspec + COPY BINARY + ON CONFLICT": copy_and_merge,
    "msgspec + executemany, replacing": executemany_and_replace,
}
