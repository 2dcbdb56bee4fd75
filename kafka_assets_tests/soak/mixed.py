"""Slices of all kinds and sizes through one Spark Connect server of a 2 GB heap: what each minute leaves in memory.

`make soak-mixed`, MINUTES=n. Four streams get from 10 to 200,000 records at a time: one appends, one merges by its key,
one has a function with a UDF, one aggregates whole slices; one record in 500 is no JSON. It can be interrupted, and
goes on where it was with the next call: its project, its services and its figures are in build/soak_mixed. It ends with
1 when a heap, a driver or workers grow, or something is lost or doubled.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import Engine, text

from kafka_assets import devstack
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic
from kafka_assets.ledger.engine import make_engine, read
from kafka_assets.settings import load_settings
from kafka_assets_tests.soak.heap import Heap
from kafka_assets_tests.soak.memory import Memory, memory_of
from kafka_assets_tests.soak.progress import Progress

FOLDER = Path("build/soak_mixed").resolve()
HEAP = "-Xmx2g"
LEAST, MOST = 10, 200_000
"""Records that are produced at a time; as many small batches as big ones, by their order of magnitude."""
BAD_EVERY = 500
KEYS = 50_000
PARTITIONS = 2
LOOKS = 3
"""At each reading: a run in flight holds megabytes of plans, and what stays is what the least of them shows."""
GROWTH = 1.2
CATCH_UP_SECONDS = 900
SCHEMA = "id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2), placed_at TIMESTAMP, tags ARRAY<STRING>"
RECORD = '{"id": %d, "customer": "c%d", "amount": 12.30, "placed_at": "2026-01-01T00:00:00Z", "tags": ["a", "b"]}'
SLICES = '{"max_delay": "1s", "max_records": 200_000}'
DECLARED = f"""
from pyspark.sql import functions as F

from kafka_assets import kafka_asset

SLICES = {SLICES}
SCHEMA = "{SCHEMA}"


@kafka_asset(topic="appended", target="appended", schema=SCHEMA, slices=SLICES)
def appended(records):
    return records


@kafka_asset(topic="merged", target="merged", schema=SCHEMA, slices=SLICES, mode="upsert", key=["id"])
def merged(records):
    return records


@kafka_asset(topic="changed", target="changed", schema=SCHEMA, slices=SLICES)
def changed(records):
    loud = F.udf(lambda name: name.upper(), "string")
    return records.where("id % 3 <> 0").withColumn("customer", loud("customer")).drop("tags")


@kafka_asset(topic="counted", target="counted", schema=SCHEMA, slices=SLICES, scope="slice")
def counted(records):
    return records.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
"""
STREAMS = ("appended", "merged", "changed", "counted")
WATCHED = {"heap": "heap after GC", "driver": "Spark's driver", "workers": "Spark's workers"}
"""What must not grow, by its name in a reading."""


@dataclass(frozen=True)
class Minute:
    """One look: offsets committed and produced, and megabytes."""

    minute: int
    committed: int
    produced: int
    runs: int
    """Of which the ledger has a publication."""
    heap: float
    """Of Spark's server, the least of some looks after a full collection."""
    driver: float
    workers: float
    worker_processes: int
    nursery: float
    daemon: float
    code: float
    webserver: float

    @staticmethod
    def header() -> str:
        return ROW.format(
            "minute", "committed", "produced", "runs", "heap", "driver", "workers", "nursery", "daemon", "code", "web"
        )

    def row(self) -> str:
        megabytes = (self.heap, self.driver)
        others = (self.nursery, self.daemon, self.code, self.webserver)
        return ROW.format(
            self.minute,
            f"{self.committed:,}",
            f"{self.produced:,}",
            self.runs,
            *(f"{one:.0f}" for one in megabytes),
            f"{self.worker_processes}×{self.workers / max(1, self.worker_processes):.0f}",
            *(f"{one:.0f}" for one in others),
        )


ROW = "{:>6} {:>12} {:>12} {:>6} {:>6} {:>7} {:>8} {:>8} {:>7} {:>6} {:>6}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--every", type=float, default=10, help="seconds between two batches of records, on average")
    asked = parser.parse_args()
    os.environ["KAFKA_ASSETS_HOME"] = str(FOLDER)
    (FOLDER / "defs").mkdir(parents=True, exist_ok=True)
    (FOLDER / "kafka_assets.toml").touch()
    (FOLDER / "defs" / "mixed.py").write_text(DECLARED)
    state = FOLDER / ".kafka_assets"
    running = devstack.up(state, ["kafka", "spark", "dagster"])
    [spark] = [one for one in running.services if one.name == "spark"]
    if HEAP not in psutil.Process(spark.pid).cmdline():
        raise SystemExit(f"Spark's server has another heap than {HEAP} says: this soak is about that one")
    progress = Progress(FOLDER / "progress.json", Minute)
    progress.begin(spark.pid)
    engine = make_engine(load_settings().database_url)
    over = threading.Event()
    producer = threading.Thread(target=_produce, args=(over, progress, asked.every), daemon=True)
    producer.start()
    try:
        while len(progress.readings) < asked.minutes:
            begun = time.monotonic()
            time.sleep(max(0.0, 60 - LOOKS * 2))
            progress.read(_reading(len(progress.readings) + 1, Heap(spark.pid), engine, state))
            time.sleep(max(0.0, begun + 60 - time.monotonic()))
            if not producer.is_alive():
                raise SystemExit("nothing is produced any more: it printed the reason above")
    finally:
        over.set()
        producer.join()
    return _verdict(progress, engine)


def growth(values: Sequence[float]) -> float | None:
    """The median of the last quarter to that of the second: the first one warms up. None of fewer than eight."""
    quarter = len(values) // 4
    if quarter < 2:
        return None
    return statistics.median(values[-quarter:]) / statistics.median(values[quarter : 2 * quarter])


def _produce(over: threading.Event, progress: Progress[Minute], every: float) -> None:
    connection = Connection.of(load_settings())
    for name in STREAMS:
        create_topic(connection, name, partitions=PARTITIONS)
    while not over.wait(random.expovariate(1 / every)):
        name, size = random.choice(STREAMS), int(LEAST * (MOST / LEAST) ** random.random())
        first = progress.begin_records(size)
        produce(connection, name, (_record(name, number) for number in range(first, first + size)))


def _record(name: str, number: int) -> Record:
    """One whose key stays in its partition."""
    identity = number % KEYS if name == "merged" else number
    value = "no record" if number % BAD_EVERY == 0 else RECORD % (identity, number % 100)
    return Record(value=value.encode(), partition=identity % PARTITIONS)


def _reading(minute: int, heap: Heap, engine: Engine, state: Path) -> Minute:
    looks: list[float] = []
    for _ in range(LOOKS):
        heap.sessions()  # collects
        looks.append(heap.old_megabytes())
        time.sleep(1)
    found = memory_of(state)
    with read(engine) as connection:
        committed = connection.scalar(text("SELECT sum(committed_through) FROM kafka_committed"))
        runs = connection.scalar(text("SELECT count(DISTINCT run_id) FROM kafka_publication"))

    def of(role: str) -> Memory:
        return found.get(role, Memory())

    return Minute(
        minute=minute,
        committed=committed or 0,
        produced=_ends(),
        runs=runs or 0,
        heap=min(looks),
        driver=of("spark").megabytes,
        workers=of("workers").megabytes,
        worker_processes=of("workers").processes,
        nursery=of("nursery").megabytes,
        daemon=of("daemon").megabytes,
        code=of("code").megabytes,
        webserver=of("webserver").megabytes,
    )


def _ends() -> int:
    """All that the broker has."""
    found = observe(Connection.of(load_settings()), STREAMS).values()
    ends = [part.high_watermark for one in found if isinstance(one, TopicOffsets) for part in one.partitions.values()]
    return sum(ends)


def _verdict(progress: Progress[Minute], engine: Engine) -> int:
    """Whether nothing grew, and all that was produced is landed or quarantined, each record once, within minutes."""
    wrong = 0
    for name, said in WATCHED.items():
        values = [getattr(one, name) for one in progress.readings]
        grown = growth(values)
        told = "too few minutes to tell" if grown is None else f"{grown:.2f} × (at most {GROWTH})"
        print(f"{said}: {min(values):.0f} to {max(values):.0f} MB, last quarter to second: {told}")
        wrong += grown is not None and grown > GROWTH
    produced, until, committed = _ends(), time.monotonic() + CATCH_UP_SECONDS, None
    while time.monotonic() < until and committed != produced:
        time.sleep(2)
        with read(engine) as connection:
            committed = connection.scalar(text("SELECT sum(committed_through) FROM kafka_committed"))
    with read(engine) as connection:
        gaps = connection.scalar(text("SELECT count(*) FROM kafka_gap"))
        landed, bad = connection.execute(
            text("SELECT sum(landed), sum(quarantined) FROM kafka_publication WHERE asset = 'appended'")
        ).one()
        rows, ids = connection.execute(text("SELECT count(*), count(DISTINCT id) FROM appended")).one()
        sizes = connection.execute(
            text("SELECT min(end_offset - start_offset), max(end_offset - start_offset), count(*) FROM kafka_slice")
        ).one()
    engine.dispose()
    print(
        f"{produced:,} produced, {committed:,} committed; gaps: {gaps}; slices of {sizes[0]:,} to {sizes[1]:,} offsets"
    )
    print(f"appended: {rows:,} rows, {ids:,} ids, {landed:,} landed, {bad:,} quarantined")
    wrong += committed != produced or bool(gaps) or not bad or not rows == ids == landed
    devstack.down(FOLDER / ".kafka_assets", delete=True)
    shutil.rmtree(FOLDER)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
