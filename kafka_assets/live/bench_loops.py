"""What a good engineer writes by hand instead: consume, decode, and commit rows and offsets in one transaction.

Each loop takes what is in its partitions and no more, 10,000 records a commit. None of them looks for a key that
stands twice, keeps a bad record, knows of a re-created topic, or is fenced: that is what they are compared for.
"""

from __future__ import annotations

import json
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from sqlalchemy import Connection as SqlConnection
from sqlalchemy import Engine

from kafka_assets.broker.assigned import assigned
from kafka_assets.broker.connection import Connection

BATCH = 10_000
SCHEMA = "id BIGINT, customer STRING, amount DOUBLE, placed_at TIMESTAMP, note STRING"
COLUMNS = ("kafka_source", "kafka_partition", "kafka_offset", "id", "customer", "amount", "placed_at", "note")
OFFSETS = "bench_offsets"
"""The hand-written loops' own table of offsets, (partition, next_offset), one for each target."""
_PG_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_HEAD, _TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


class Order(msgspec.Struct, gc=False):
    """What the records say."""

    id: int | None
    customer: str | None
    amount: float | None
    placed_at: datetime | None
    note: str | None


@dataclass(frozen=True)
class Task:
    """One process's share of one measurement."""

    connection: Connection
    engine: Engine
    topic: str
    partitions: Sequence[int]
    records: int
    table: str


@dataclass(frozen=True)
class Times:
    """When the first record was there, and when the last one was committed; on the machine's clock."""

    first: float
    last: float


Loop = Callable[[SqlConnection, str, list[Any]], None]
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
                    write(connection, task.table, messages)
                    _keep(connection, task.table, messages)
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


def json_executemany(connection: SqlConnection, table: str, messages: list[Any]) -> None:
    """The standard library and the driver's executemany: what most write first."""
    rows: list[tuple[Any, ...]] = []
    for message in messages:
        found = json.loads(message.value())
        rows.append((
            1, message.partition(), message.offset(), found["id"], found["customer"], found["amount"],
            _stamp(connection, datetime.fromisoformat(found["placed_at"])), found["note"],
        ))  # fmt: skip
    _executemany(connection, table, rows)


def msgspec_executemany(connection: SqlConnection, table: str, messages: list[Any]) -> None:
    """A typed decoder, and the driver's executemany."""
    decode = msgspec.json.Decoder(Order).decode
    rows: list[tuple[Any, ...]] = []
    for message in messages:
        one = decode(message.value())
        at = None if one.placed_at is None else _stamp(connection, one.placed_at)
        rows.append((1, message.partition(), message.offset(), one.id, one.customer, one.amount, at, one.note))
    _executemany(connection, table, rows)


def msgspec_copy_binary(connection: SqlConnection, table: str, messages: list[Any]) -> None:
    """A typed decoder, and rows packed by hand for PostgreSQL's binary COPY, in one write."""
    decode, parts = msgspec.json.Decoder(Order).decode, [_HEAD]
    for message in messages:
        parts.append(_packed(message.partition(), message.offset(), decode(message.value())))
    parts.append(_TAIL)
    raw = cast("Any", connection.connection.driver_connection)
    with raw.cursor() as cursor, cursor.copy(f"COPY {table} ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(b"".join(parts))


_FRONT = struct.Struct(">hiqiiiqiqi").pack
_MIDDLE = struct.Struct(">idiqi").pack
_NULL = b"\xff\xff\xff\xff"


def _packed(partition: int, offset: int, one: Order) -> bytes:
    """One row. Where nothing is null, which is nearly always, two calls of struct make all of it but the texts."""
    if one.id is None or one.customer is None or one.amount is None or one.placed_at is None or one.note is None:
        return _packed_with_nulls(partition, offset, one)
    customer, note = one.customer.encode(), one.note.encode()
    at = (one.placed_at - _PG_EPOCH) // _MICROSECOND
    front = _FRONT(8, 8, 1, 4, partition, 8, offset, 8, one.id, len(customer))
    return front + customer + _MIDDLE(8, one.amount, 8, at, len(note)) + note


def _packed_with_nulls(partition: int, offset: int, one: Order) -> bytes:
    def field(value: Any, kind: str) -> bytes:
        return _NULL if value is None else struct.pack(f">i{kind}", struct.calcsize(kind), value)

    def text(value: str | None) -> bytes:
        return _NULL if value is None else struct.pack(">i", len(value.encode())) + value.encode()

    at = None if one.placed_at is None else (one.placed_at - _PG_EPOCH) // _MICROSECOND
    return b"".join((
        struct.pack(">h", 8), field(1, "q"), field(partition, "i"), field(offset, "q"), field(one.id, "q"),
        text(one.customer), field(one.amount, "d"), field(at, "q"), text(one.note),
    ))  # fmt: skip


def msgspec_load_data(connection: SqlConnection, table: str, messages: list[Any]) -> None:
    """A typed decoder, and LOAD DATA from lines."""
    decode = msgspec.json.Decoder(Order).decode
    with tempfile.NamedTemporaryFile(prefix="bench_live_") as file:
        file.write(b"".join(_lines(decode, messages)))
        file.flush()
        connection.exec_driver_sql(
            f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE {table} CHARACTER SET utf8mb4 "
            rf"FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' ({', '.join(COLUMNS)})"
        )


def _lines(decode: Callable[[bytes], Order], messages: Sequence[Any]) -> Iterator[bytes]:
    for message in messages:
        one = decode(message.value())
        at = None if one.placed_at is None else one.placed_at.astimezone(UTC).replace(tzinfo=None)
        fields = (1, message.partition(), message.offset(), one.id, one.customer, one.amount, at, one.note)
        yield ("\t".join(map(_escaped, fields)) + "\n").encode()


def _escaped(value: Any) -> str:
    if value is None:
        return "\\N"
    if not isinstance(value, str):
        return str(value)
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _stamp(connection: SqlConnection, at: datetime) -> Any:
    name = connection.dialect.name
    if name == "postgresql":
        return at
    local = at.astimezone(UTC).replace(tzinfo=None)
    return local.isoformat(" ") if name == "sqlite" else local


def _executemany(connection: SqlConnection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    marks = ", ".join([mark] * len(COLUMNS))
    raw = cast("Any", connection.connection.driver_connection)
    cursor = raw.cursor()
    try:
        cursor.executemany(f"INSERT INTO {table} ({', '.join(COLUMNS)}) VALUES ({marks})", rows)
    finally:
        cursor.close()


LOOPS: dict[str, Loop] = {
    "json + executemany": json_executemany,
    "msgspec + executemany": msgspec_executemany,
    "msgspec + COPY BINARY": msgspec_copy_binary,
    "msgspec + LOAD DATA": msgspec_load_data,
}
