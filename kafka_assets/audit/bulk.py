"""The fastest that a database takes rows: by the means that it has for that, with nothing else to do.

What is sent was made before the clock runs. The table, its key, the rows in one statement and the one transaction are
the publisher's own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from sqlalchemy import Connection, Engine

from kafka_assets.errors import CountsDisagree
from kafka_assets.ledger.engine import write
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.sinks.copy_binary import HEAD, TAIL, binary
from kafka_assets.sinks.lines import MAX_ROWS, Spelling, lines
from kafka_assets.sinks.parts import filled
from kafka_assets.sinks.road import Road, Table, driver_errors
from kafka_assets.sinks.sqlite import values

if TYPE_CHECKING:
    from kafka_assets.ledger.mysql_connection import MySQLConnection

Send = Callable[[Connection], int]
"""Sends what was prepared, and says how many rows the database took."""
Prepare = Callable[[Road, Table, pa.Table], Iterator[tuple[int, Send]]]
"""Makes what can be sent from a chunk, a statement's worth at a time, with the rows that it has."""

_SPELLING = Spelling(true="1", false="0", bytes_prefix="", widens_floats=False)


def means_of(dialect: str) -> str:
    """By which means rows are sent to a database of this dialect."""
    means, _ = _MEANS[dialect]
    return means


def bulk_limit(engine: Engine, road: Road, table: Table, chunks: Iterator[pa.Table]) -> float:
    """Send these rows into an empty table: the seconds that the database took, COMMIT included."""
    _, prepare = _MEANS[engine.dialect.name]
    seconds = 0.0
    with write(engine) as connection:
        for rows in chunks:
            for count, send in prepare(road, table, rows):
                began = time.perf_counter()
                taken = send(connection)
                seconds += time.perf_counter() - began
                if taken != count:
                    raise CountsDisagree(
                        f"{count} rows were sent to the table {table.name!r}, and {taken} arrived",
                        why="the database left some out without an error",
                        cure="please report this, with the database's version",
                    )
        began = time.perf_counter()
    return seconds + time.perf_counter() - began


def _tuples(road: Road, table: Table, rows: pa.Table) -> Iterator[tuple[int, Send]]:
    names = (PARTITION, OFFSET, *table.columns)
    marks = ", ".join("?" * (len(names) + 1))
    statement = f"INSERT INTO {road.quoted(table.name)} ({_listed(road, SOURCE, *names)}) VALUES ({marks})"
    for batch in filled(rows, most=MAX_ROWS):
        columns = [values(cast("pa.Array[Any]", batch.column(name))) for name in names]
        prepared = list(zip(repeat(1, batch.num_rows), *columns, strict=True))

        def send(connection: Connection, prepared: list[Any] = prepared) -> int:
            return connection.exec_driver_sql(statement, prepared).rowcount

        yield batch.num_rows, send


def _copy(road: Road, table: Table, rows: pa.Table) -> Iterator[tuple[int, Send]]:
    names = (PARTITION, OFFSET, *table.columns)
    statement = f"COPY {road.quoted(table.name)} ({_listed(road, SOURCE, *names)}) FROM STDIN (FORMAT BINARY)"
    prepared = [HEAD, *binary(rows, names, first=1), TAIL]

    def send(connection: Connection) -> int:
        raw = cast("Any", connection.connection.driver_connection)
        with driver_errors(connection, statement), raw.cursor() as cursor:
            with cursor.copy(statement) as copy:
                for part in prepared:
                    copy.write(part)
            return cursor.rowcount

    yield rows.num_rows, send


def _load(road: Road, table: Table, rows: pa.Table) -> Iterator[tuple[int, Send]]:
    from kafka_assets.ledger.mysql_connection import LOADED

    names = (PARTITION, OFFSET, *table.columns)
    statement = (
        f"LOAD DATA LOCAL INFILE {LOADED} INTO TABLE {road.quoted(table.name)} CHARACTER SET utf8mb4"
        rf" FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' ({_listed(road, *names, SOURCE)})"
    )
    for part, count in lines(rows, names, last=1, spelling=_SPELLING):

        def send(connection: Connection, part: memoryview = part) -> int:
            raw = cast("MySQLConnection", connection.connection.driver_connection)
            with driver_errors(connection, statement):
                found = re.search(rb"Records: (\d+)\s+Deleted: 0\s+Skipped: 0", raw.load(statement, part))
            return int(found[1]) if found else 0

        yield count, send


def _listed(road: Road, *names: str) -> str:
    return ", ".join(map(road.quoted, names))


_MEANS: dict[str, tuple[str, Prepare]] = {
    "sqlite": ("executemany of prebuilt tuples", _tuples),
    "postgresql": ("COPY BINARY of a prebuilt buffer", _copy),
    "mariadb": ("LOAD DATA of a prebuilt buffer", _load),
    "mysql": ("LOAD DATA of a prebuilt buffer", _load),
}
