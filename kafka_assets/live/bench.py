"""Rows a second of live mode beside loops that were written by hand, in turns, on one topic and one table's shape."""

from __future__ import annotations

import json
import random
import statistics
import string
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine, text

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.errors import CountsDisagree, ServiceError
from kafka_assets.ledger.engine import read, write
from kafka_assets.live.bench_child import LIVE
from kafka_assets.live.bench_loops import OFFSETS, SCHEMA
from kafka_assets.live.decode import Decoder
from kafka_assets.live.limits import Limits
from kafka_assets.sinks.road import road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.streams import declare

PARTITIONS = 2
_NOTE = 110
_CHUNK = 50_000


@dataclass(frozen=True)
class Road:
    """One way from the topic to the table, in so many processes."""

    by: str
    processes: int

    @property
    def name(self) -> str:
        return f"{self.by}, {self.processes} process{'es' if self.processes > 1 else ''}"


@dataclass(frozen=True)
class Measured:
    """Rates of each road, round by round, in rows a second; `against` is the road that live mode has to beat."""

    rates: dict[Road, list[float]]
    against: dict[Road, Road]

    def median(self, road: Road) -> float:
        return statistics.median(self.rates[road])


def roads(dialect: str) -> list[Road]:
    """What is measured on this database; live mode last, beside the fastest loop of as many processes before it."""
    if dialect == "sqlite":  # one writer
        return [Road("json + executemany", 1), Road("msgspec + executemany", 1), Road(LIVE, 1)]
    fast = ["msgspec + COPY BINARY"] if dialect == "postgresql" else ["msgspec + executemany", "msgspec + LOAD DATA"]
    by_hand = [Road("json + executemany", 1), *(Road(by, count) for by in fast for count in (1, 2))]
    return [*by_hand, Road(LIVE, 1), Road(LIVE, 2)]


def bench_live(
    connection: Connection,
    engine: Engine,
    *,
    records: int,
    rounds: int,
    batch: int | None = None,
    say: Callable[[str], None] = lambda what: None,
) -> Measured:
    """Land the same topic by each road in turns, each time into a table of its own; in a topic that goes again."""
    all_roads = roads(engine.dialect.name)
    rates: dict[Road, list[float]] = {road: [] for road in all_roads}
    limit = Limits().records if batch is None else batch
    with _topic(connection, records, say) as topic:
        for number in range(1, rounds + 1):
            for road in all_roads:
                say(f"round {number} of {rounds}: {road.name}")
                rates[road].append(_rate(connection, engine, road, topic, records=records, batch=limit))
    return Measured(rates, _rivals(all_roads, rates))


def _rivals(all_roads: Sequence[Road], rates: dict[Road, list[float]]) -> dict[Road, Road]:
    by_hand = [road for road in all_roads if road.by != LIVE]
    return {
        road: max(
            (one for one in by_hand if one.processes == road.processes), key=lambda one: statistics.median(rates[one])
        )
        for road in all_roads
        if road.by == LIVE
    }


@contextmanager
def _topic(connection: Connection, records: int, say: Callable[[str], None]) -> Generator[str]:
    topic = f"bench-live-{uuid.uuid4().hex[:8]}"
    create_topic(connection, topic, partitions=PARTITIONS)
    try:
        for start in range(0, records, _CHUNK):
            say(f"producing: {start:,} of {records:,} records")
            produce(connection, topic, orders(start, min(start + _CHUNK, records)))
        yield topic
    finally:
        delete_topic(connection, topic)


def orders(start: int, end: int) -> list[Record]:
    """JSON of about 200 bytes, in the partitions in turn; the same in each run."""
    draw = random.Random(start)
    letters = "".join(draw.choices(string.ascii_letters + " ", k=_NOTE * 50))
    return [
        Record(
            value=json.dumps(
                {
                    "id": number,
                    "customer": f"customer {draw.randrange(1000)}",
                    "amount": draw.randrange(100, 100_000) / 100,
                    "placed_at": f"2026-01-{number % 28 + 1:02d}T{number % 24:02d}:{number % 60:02d}:00Z",
                    "note": letters[(at := draw.randrange(_NOTE * 49)) : at + _NOTE],
                }
            ).encode(),
            partition=number % PARTITIONS,
        )
        for number in range(start, end)
    ]


def _rate(connection: Connection, engine: Engine, road: Road, topic: str, *, records: int, batch: int) -> float:
    table = f"bench_{uuid.uuid4().hex[:8]}"
    _make(engine, table)
    job = {
        "road": road.by, "bootstrap": connection.bootstrap_servers, "properties": dict(connection.properties),
        "url": engine.url.render_as_string(hide_password=False), "topic": topic, "table": table, "batch": batch,
        "holds": [_records(records, partition) for partition in range(PARTITIONS)],
    }  # fmt: skip
    shares = [list(range(first, PARTITIONS, road.processes)) for first in range(road.processes)]
    jobs = [
        {**job, "partitions": share, "records": sum(_records(records, partition) for partition in share)}
        for share in shares
    ]
    times = _together(jobs)
    _require(engine, table, records)
    with write(engine) as sql:
        sql.execute(text(f"DROP TABLE {table}"))
    return records / (max(last for _, last in times) - min(first for first, _ in times))


def _records(records: int, partition: int) -> int:
    return records // PARTITIONS + (1 if partition < records % PARTITIONS else 0)


def _make(engine: Engine, table: str) -> None:
    """The table as live mode makes it, and the row in which hand-written loops keep their offsets."""
    schema = Decoder(declare(name=table, topic="orders", target=table, schema=SCHEMA)).schema
    ensure_table(engine, road_for(engine), name=table, asset=table, schema=schema)
    with write(engine) as connection:
        connection.execute(
            text(
                f"CREATE TABLE IF NOT EXISTS {OFFSETS} (target VARCHAR(40), topic_partition INTEGER,"
                " next_offset BIGINT, PRIMARY KEY (target, topic_partition))"
            )
        )
    with write(engine) as connection:
        connection.execute(
            text(f"INSERT INTO {OFFSETS} VALUES (:target, :topic_partition, 0)"),
            [{"target": table, "topic_partition": partition} for partition in range(PARTITIONS)],
        )


def _require(engine: Engine, table: str, records: int) -> None:
    with read(engine) as connection:
        found = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
    if found != records:
        raise CountsDisagree(
            f"{records} records were landed in the table {table!r}, and it has {found} rows",
            why="a loop stopped early, or wrote twice",
            cure="please report this: it is a bug of the benchmark, or of what it measures",
        )


def _together(jobs: Sequence[Mapping[str, object]]) -> list[tuple[float, float]]:
    """Begin all processes, let them go when every one is ready, and wait for their times."""
    command = [sys.executable, "-m", "kafka_assets.live.bench_child"]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in jobs]
    for child in children:
        threading.Thread(target=_end_together, args=(child, children), daemon=True).start()
    try:
        for child, job in zip(children, jobs, strict=True):
            _tell(child, json.dumps(job))
        for child in children:
            _hear(child)
        for child in children:
            _tell(child, "go")
        told = [json.loads(_hear(child)) for child in children]
        for child in children:
            child.wait(timeout=60)
        return [(one["first"], one["last"]) for one in told]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()


def _end_together(child: subprocess.Popen[str], children: Sequence[subprocess.Popen[str]]) -> None:
    """One that fails takes the others with it: they would wait for it for ever."""
    if child.wait() != 0:
        for other in children:
            other.kill()


def _tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def _hear(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise ServiceError(
            f"a process of the benchmark ended with {child.wait()} before it was done",
            why="it printed the reason above",
            cure="correct it, and run the benchmark again",
        )
    return line.strip()
