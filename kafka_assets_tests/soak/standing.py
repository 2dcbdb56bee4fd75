"""`up --with dagster` under load and under kills for half an hour: what each minute shows, and whether all is exact.

`make soak-up`, MINUTES=n. Four streams get records all the time. Runs are killed at random, and once, half-way, Spark's
server and the daemon with them, which `up` starts again. It ends with 1 when something is lost, doubled or late.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import threading
import time
from pathlib import Path

from sqlalchemy import Engine, text

from kafka_assets import devstack
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic
from kafka_assets.errors import Retryable
from kafka_assets.ledger.engine import make_engine, read
from kafka_assets.settings import load_settings
from kafka_assets_tests.soak.memory import marked, memory_of, role
from kafka_assets_tests.soak.project import RECORD, STREAMS, make_project
from kafka_assets_tests.soak.runs import Runs

FOLDER = Path("build/soak_up").resolve()
BAD_EVERY = 500
CATCH_UP_SECONDS = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--per-second", type=int, default=50, help="records of each stream")
    parser.add_argument("--kill-every", type=float, default=45, help="seconds, on average")
    asked = parser.parse_args()
    os.environ["KAFKA_ASSETS_HOME"] = str(FOLDER)
    shutil.rmtree(FOLDER, ignore_errors=True)
    make_project(FOLDER)
    state = FOLDER / ".kafka_assets"
    running = devstack.up(state, ["kafka", "spark", "dagster"])
    over, made = threading.Event(), Made()
    producer = threading.Thread(target=made.go_on, args=(over, asked.per_second), daemon=True)
    producer.start()
    runs = Runs(running.urls["dagster"], state)
    engine = make_engine(load_settings().database_url)
    killed = 0
    try:
        begun = time.monotonic()
        for minute in range(1, asked.minutes + 1):
            if minute == max(2, asked.minutes // 2):
                _strike_services(state)
                killed += 1
            while (left := begun + 60 * minute - time.monotonic()) > 0:
                time.sleep(min(left, random.expovariate(1 / asked.kill_every)))
                killed += runs.kill_one(after=random.uniform(0, 3))
            _say(minute, runs, engine, made, killed, state)
        over.set()
        producer.join()
        return _verdict(engine, made)
    finally:
        over.set()
        engine.dispose()
        devstack.down(state, delete=False)


class Made:
    """What was produced so far."""

    def __init__(self) -> None:
        self.records = 0
        """Of each stream."""

    def go_on(self, over: threading.Event, per_second: int) -> None:
        connection = Connection.of(load_settings())
        for name in STREAMS:
            create_topic(connection, name, partitions=2)
        while not over.wait(1):
            ids = range(self.records, self.records + per_second)
            for name in STREAMS:
                produce(connection, name, [Record(value=_value(one)) for one in ids])
            self.records += per_second


def _value(number: int) -> bytes:
    return b"no record" if number % BAD_EVERY == BAD_EVERY - 1 else (RECORD % number).encode()


def _strike_services(state: Path) -> None:
    """SIGKILL to Spark's server and to Dagster's daemon; a user sees it, and says `up` again."""
    for process in marked(state):
        if role(process) in ("spark", "daemon"):
            process.kill()
    print("  Spark's server and the daemon were killed")
    time.sleep(20)
    devstack.up(state, ["kafka", "spark", "dagster"])


def _say(minute: int, runs: Runs, engine: Engine, made: Made, killed: int, state: Path) -> None:
    try:
        with read(engine) as connection:
            behind = connection.scalar(text("SELECT sum(high_watermark) FROM kafka_progress")) or 0
            through = connection.scalar(text("SELECT sum(committed_through) FROM kafka_committed")) or 0
            failed = connection.scalar(text("SELECT count(*) FROM kafka_publication WHERE state = 'failed'")) or 0
    except Retryable as error:
        print(f"{minute:3d} min: {error}")
        return
    memory = " ".join(
        f"{of_role}×{found.processes} {found.megabytes:.0f}" for of_role, found in sorted(memory_of(state).items())
    )
    print(
        f"{minute:3d} min  produced {len(STREAMS) * made.records:,}  committed {through:,}  seen {behind:,}"
        f"  failed slices {failed}  runs {_made(runs)}  killed {killed}  load {os.getloadavg()[0]:.1f}  MB: {memory}",
        flush=True,
    )


def _made(runs: Runs) -> str:
    try:
        return str(runs.made())
    except OSError as error:
        return f"? ({error})"


def _verdict(engine: Engine, made: Made) -> int:
    """All that was produced is in the tables, each record once, within minutes."""
    until = time.monotonic() + CATCH_UP_SECONDS
    wanted, through = len(STREAMS) * made.records, None
    while time.monotonic() < until:
        with read(engine) as connection:
            through = connection.scalar(text("SELECT sum(committed_through) FROM kafka_committed"))
        if through == wanted:
            break
        time.sleep(2)
    print(
        f"{wanted:,} produced, {through:,} committed {time.monotonic() - until + CATCH_UP_SECONDS:.0f} s after the end"
    )
    wrong = int(through != wanted)
    with read(engine) as connection:
        for name in STREAMS:
            rows, ids = connection.execute(text(f"SELECT count(*), count(DISTINCT id) FROM {name}")).one()
            good = made.records - made.records // BAD_EVERY
            print(f"{name}: {rows:,} rows, {ids:,} ids, {good:,} expected")
            wrong += rows != good or ids != good
        bad = connection.scalar(text("SELECT count(*) FROM kafka_quarantine"))
        gaps = connection.scalar(text("SELECT count(*) FROM kafka_gap"))
    print(f"quarantined: {bad:,} · gaps: {gaps}")
    return int(bool(wrong or gaps or bad != len(STREAMS) * (made.records // BAD_EVERY)))


if __name__ == "__main__":
    sys.exit(main())
