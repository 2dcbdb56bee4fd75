"""Hundreds of runs of the sensor's road through one Spark Connect server, some of them killed: what stays in its heap.

`make soak-sessions`, RUNS=n, KILLS=n. It can be interrupted, and goes on where it was with the next call: its project,
its services and its figures are in build/soak. It ends with 1 when sessions stay or the heap grows.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text

from kafka_assets import devstack
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic
from kafka_assets.ledger.engine import make_engine, read
from kafka_assets.settings import load_settings
from kafka_assets_tests.soak.heap import Heap
from kafka_assets_tests.soak.progress import Progress
from kafka_assets_tests.soak.project import RECORD, STREAMS, make_project
from kafka_assets_tests.soak.runs import Runs

FOLDER = Path("build/soak").resolve()
SECONDS_SAID = 300
"""What was killed longer ago must be gone."""
GROWTH = 1.2
COLUMNS = "{:>5} {:>9} {:>10} {:>7} {:>15} {:>8} {:>9}"
LOOKS = 5
"""At each reading: a run in flight holds megabytes of plans, and what stays is what the least of them shows."""


@dataclass(frozen=True)
class HeapReading:
    """One look at Spark's heap."""

    runs: int
    sessions: int
    in_flight: int
    killed: int
    killed_lately: int
    old_megabytes: float
    """The old generation after a collection, and the least of some looks."""
    least_megabytes: float

    @staticmethod
    def header() -> str:
        return COLUMNS.format("runs", "sessions", "in flight", "killed", "in 5 minutes", "old MB", "least MB")

    def row(self) -> str:
        told = (self.runs, self.sessions, self.in_flight, self.killed, self.killed_lately)
        return COLUMNS.format(*told, f"{self.old_megabytes:.0f}", f"{self.least_megabytes:.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--every", type=int, default=50)
    asked = parser.parse_args()
    os.environ["KAFKA_ASSETS_HOME"] = str(FOLDER)
    make_project(FOLDER)
    progress = Progress(FOLDER / "progress.json", HeapReading)
    running = devstack.up(FOLDER / ".kafka_assets", ["kafka", "spark", "dagster"])
    [spark] = [one for one in running.services if one.name == "spark"]
    progress.begin(spark.pid)
    heap, runs = Heap(spark.pid), Runs(running.urls["dagster"], FOLDER / ".kafka_assets")
    over = threading.Event()
    producer = threading.Thread(target=_produce, args=(over,), daemon=True)
    producer.start()
    try:
        while len(progress.readings) * asked.every < asked.runs:
            wanted = (len(progress.readings) + 1) * asked.every
            due = max(0, round(asked.kills * wanted / asked.runs) - len(progress.kills))
            _through(runs, progress, wanted, kills=due)
            progress.read(_reading(heap, runs, progress))
    finally:
        over.set()
        producer.join()
    return _verdict(progress)


def _through(runs: Runs, progress: Progress[HeapReading], wanted: int, *, kills: int) -> None:
    """Until so many runs were made; of those under way so many are killed meanwhile, at times of nobody's choice."""
    first = runs.made()
    moments = [first + (wanted - first) * (number + 1) / (kills + 1) for number in range(kills)]
    while (made := runs.made()) < wanted or moments:
        if moments and made >= moments[0] and runs.kill_one(after=random.uniform(0.5, 4)):
            progress.kill(time.time())
            moments.pop(0)
        time.sleep(0.5)


def _reading(heap: Heap, runs: Runs, progress: Progress[HeapReading]) -> HeapReading:
    before = runs.workers()
    sessions, looks = heap.sessions(), [heap.old_megabytes()]
    made, in_flight = runs.made(), len(before | runs.workers())
    lately = sum(1 for at in progress.kills if time.time() - at < SECONDS_SAID)
    for _ in range(LOOKS - 1):
        time.sleep(2)
        heap.sessions()
        looks.append(heap.old_megabytes())
    return HeapReading(
        runs=made,
        sessions=sessions,
        in_flight=in_flight,
        killed=len(progress.kills),
        killed_lately=lately,
        old_megabytes=looks[0],
        least_megabytes=min(looks),
    )


def _produce(over: threading.Event) -> None:
    connection = Connection.of(load_settings())
    for name in STREAMS:
        create_topic(connection, name, partitions=2)
    number = 0
    while not over.wait(1):
        for name in STREAMS:
            produce(connection, name, [Record(value=(RECORD % (number + one)).encode()) for one in range(5)])
        number += 5


def _verdict(progress: Progress[HeapReading]) -> int:
    first, last = progress.readings[0], progress.readings[-1]
    leaks = [one for one in progress.readings if one.sessions > one.in_flight + one.killed_lately]
    grown = last.least_megabytes / first.least_megabytes
    seen = last.old_megabytes / first.old_megabytes
    print(f"old generation after GC: {grown:.2f} × from run {first.runs} to run {last.runs} (at most {GROWTH})")
    print(f"the same by the first look of each reading, with what runs in flight hold: {seen:.2f} ×")
    print(f"readings with more sessions than runs in flight + killed in 5 minutes: {len(leaks)}")
    engine = make_engine(load_settings().database_url)
    with read(engine) as connection:
        gaps = connection.scalar(text("SELECT count(*) FROM kafka_gap"))
        landed, bad = connection.execute(text("SELECT sum(landed), sum(quarantined) FROM kafka_publication")).one()
    engine.dispose()
    print(f"gaps in the ledger: {gaps}; records landed: {landed}, quarantined: {bad}")
    devstack.down(FOLDER / ".kafka_assets", delete=True)
    shutil.rmtree(FOLDER)
    return 1 if leaks or gaps or bad or not landed or grown > GROWTH else 0


if __name__ == "__main__":
    sys.exit(main())
