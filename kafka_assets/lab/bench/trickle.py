"""A trickle of records, landed by a Dagster of its own: sensor, queue, workers, everything as in use.

Topic, ledger, project and Dagster are made for the measurement and gone after it, whatever became of it.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine, select

from kafka_assets.audit.scratch import PREFIX as SCRATCH
from kafka_assets.audit.standing import failures
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.read import read_range
from kafka_assets.devstack.processes import tail
from kafka_assets.errors import Permanent
from kafka_assets.lab.bench.latency import Way
from kafka_assets.lab.bench.record_shapes import SHAPES, produced
from kafka_assets.lab.bench.run_cost import RunCost, RunWatch
from kafka_assets.lab.bench.scratch_project import scratch_project
from kafka_assets.lab.bench.told_runs import Told, told_of
from kafka_assets.lab.bench.usage import CLIENT, Meter, service_parts
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.claims import LEASE_MS
from kafka_assets.ledger.engine import read
from kafka_assets.settings import Settings

ASSET = "trickle"
DAGSTER = "Dagster beside its runs"
SHAPE = "plain"
WARM_UPS = 2
"""The first run finds no table and no nursery, and Spark's second query is still much slower than its third."""
STALLED = 180.0
"""Seconds in which nothing is committed, while something is due, until it is given up."""
LOOK = 0.1

STREAM = """\
type: kafka_assets.KafkaTopic
attributes:
  name: {asset}
  topic: {topic}
  target: {asset}
  schema: "{schema}"
  slices: {{max_delay: {max_delay}}}
"""


@dataclass(frozen=True)
class Trickled:
    """What came of a measurement: each record's way, what each run cost, and what else was at work meanwhile.

    Of records that were produced together, the last one's way. `seconds` are user and system seconds by part: the
    Dagster's, its runs left out, and those of the services that run here.
    """

    ways: list[Way]
    costs: list[RunCost]
    seconds: Mapping[str, float]


@dataclass
class Trickle:
    """What a measurement works with."""

    topic: str
    connection: Connection
    engine: Engine
    dagster: str
    pid: int
    """Of the process that all of the Dagster's come from."""
    log: Path
    together: int = 1
    """So many records are produced at once."""
    claimed: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])
    """By publication and run. The ledger forgets when a lease began, so it is looked at while it lasts."""

    def produce(self, records: Sequence[Record]) -> None:
        produce(self.connection, self.topic, [replace(one, partition=0) for one in records])

    def landed(self) -> int:
        """How many records are committed; looks for new claims on the way."""
        p, c = t.publication.c, t.claim.c
        with read(self.engine) as connection:
            rows = connection.execute(
                select(p.id, p.state, p.end_offset - p.start_offset, c.run_id, c.lease_until).join(
                    t.claim, c.publication_id == p.id
                )
            ).all()
        for number, _, _, run_id, lease_until in rows:
            if lease_until is not None:
                self.claimed.setdefault((number, run_id), lease_until - LEASE_MS)
        return sum(int(offsets) for _, state, offsets, *_ in rows if state == "committed")

    def wait(self, until: float, *, records: int, moved: float) -> None:
        """Look until then, or until all of so many records are committed; Permanent where nothing comes."""
        last = self.landed()
        while last < records and time.monotonic() < until:
            time.sleep(LOOK)
            now = self.landed()
            if now > last:
                last, moved = now, time.monotonic()
            elif time.monotonic() - moved > STALLED:
                raise _stalled(failures(self.engine, asset=ASSET), self.log)

    def ways(self, offsets: Sequence[int]) -> list[Way]:
        """The ways of the records at these offsets."""
        told = told_of(self.dagster, asset=ASSET)
        p, s = t.publication.c, t.slice_.c
        with read(self.engine) as connection:
            rows = connection.execute(
                select(p.id, p.start_offset, p.end_offset, s.created_at, p.committed_at, p.run_id).join(
                    t.slice_, s.id == p.slice_id
                )
            ).all()
        found: list[Way] = []
        wanted = set(offsets)
        for record in read_range(self.connection, self.topic, 0, min(offsets), max(offsets) + 1):
            if record.offset not in wanted:
                continue
            [row] = [row for row in rows if row.start_offset <= record.offset < row.end_offset]
            run = told.get(row.run_id, Told())
            found.append(
                Way(
                    produced=record.timestamp_ms,
                    planned=_ms(row.created_at),
                    committed=_ms(row.committed_at),
                    claimed=self.claimed.get((row.id, row.run_id)),
                    dequeued=run.dequeued,
                    started=run.started,
                    steps=run.steps,
                )
            )
        return found


def measure(
    settings: Settings,
    url: str,
    *,
    records: int,
    every: float,
    max_delay: str,
    together: int = 1,
    say: Callable[[str], None] = lambda what: None,
) -> Trickled:
    """Produce so many records, one every so many seconds on average, and follow each to its commit.

    `together`: each time so many records at once, of which the last is followed.
    """
    [messages] = produced(SHAPE, together).messages()  # at most one chunk of them
    with trickling(settings, url, max_delay=max_delay, say=say) as trickle:
        for number in range(1, WARM_UPS + 1):
            say(f"warming up, {number} of {WARM_UPS}: the first makes the table")
            trickle.produce(messages)
            trickle.wait(float("inf"), records=number * together, moved=time.monotonic())
        wanted = (WARM_UPS + records) * together
        watch = RunWatch(trickle.pid)

        def work() -> None:
            for number in range(1, records + 1):
                say(
                    f"record {number} of {records}" if together == 1 else f"{together:,} records, {number} of {records}"
                )
                trickle.produce(messages)
                # Never in step with the sensor, which would always meet them at the same age.
                pause = random.uniform(0.5, 1.5) * every
                began = time.monotonic()
                trickle.wait(began + pause, records=wanted, moved=began)
            say("waiting for the last ones")
            trickle.wait(float("inf"), records=wanted, moved=time.monotonic())
            watch.await_ends()

        with watch:
            _, usage = Meter({**service_parts(settings.state), DAGSTER: [trickle.pid]}).measured(work)
        seconds = {part: spent for part, spent in usage.seconds.items() if part != CLIENT}
        seconds[DAGSTER] -= sum(cost.seconds for cost in watch.costs)
        lasts = range((WARM_UPS + 1) * together - 1, wanted, together)
        return Trickled(trickle.ways(lasts), watch.costs, seconds)


@contextmanager
def trickling(settings: Settings, url: str, *, max_delay: str, say: Callable[[str], None]) -> Generator[Trickle]:
    """A topic, a ledger and a Dagster with one stream; gone afterwards, last made first."""
    topic = SCRATCH + secrets.token_hex(4)
    declared = STREAM.format(asset=ASSET, topic=topic, max_delay=max_delay, schema=SHAPES[SHAPE].schema)
    with scratch_project(settings, url, {topic: declared}, say=say) as project:
        yield Trickle(topic, project.connection, project.engine, project.dagster, project.pid, project.log)


def _stalled(reasons: list[str], log: Path) -> Permanent:
    return Permanent(
        f"nothing landed for {STALLED:.0f} seconds",
        why=reasons[-1] if reasons else f"the ledger knows of no failure; Dagster's log ends with:\n{tail(log)}",
        cure="look whether broker and Spark answer (`kafka-assets doctor`), and measure again",
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
