"""Streams that get records all the time, landed by the sensor and its runs as in use: how long each record takes."""

from __future__ import annotations

import os
import random
import secrets
import string
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil
from sqlalchemy import Engine

from kafka_assets import devstack
from kafka_assets.audit.scratch import PREFIX as SCRATCH
from kafka_assets.lab.bench.landed_records import LandedRecords, committed_records, table_check
from kafka_assets.lab.bench.load_figures import OTHERS, LoadLook, LoadMeasured, TableCheck, minute_line
from kafka_assets.lab.bench.process_roles import RUNS, RoleUse, used_by_role
from kafka_assets.lab.bench.record_shapes import SHAPES
from kafka_assets.lab.bench.run_cost import memory_of
from kafka_assets.lab.bench.scratch_project import scratch_project
from kafka_assets.lab.feeder import Feeder
from kafka_assets.settings import Settings

MINUTE = 60.0
CATCH_UP = 600.0
"""Seconds that what was produced has to land after the last record."""
LOOK = 0.5
SHAPE = SHAPES["plain"]
STREAM = """\
type: kafka_assets.KafkaTopic
attributes:
  name: {name}
  topic: {topic}
  target: {name}
  schema: "{schema}"
"""
SLICES = "  slices: {{max_delay: {max_delay}}}\n"
_NOTE = "".join(random.Random(0).choices(string.ascii_letters + " ", k=105))
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class StreamLoad:
    """What is to be measured: so many streams of one partition, each with `rate` records a second.

    The first `warm_up` seconds are in no figure but those of what was produced, is missing or is doubled.
    `max_delay`: the streams' `slices.max_delay`; None where they declare none.
    """

    streams: int
    rate: float
    seconds: float
    warm_up: float = MINUTE
    max_delay: str | None = None
    catch_up: float = CATCH_UP


def bench_load(
    settings: Settings,
    url: str,
    load: StreamLoad,
    *,
    state: Path,
    say: Callable[[str], None] = lambda what: None,
    tell: Callable[[str], None] = lambda line: None,
) -> LoadMeasured:
    """Produce into all streams for so long, wait until all is committed, and compare the tables with what was produced.

    In a scratch project; broker and Spark are those of the settings, which run in the folder `state`, as the database.
    `say` is told what is under way, `tell` what each minute showed.
    """
    topics = f"{SCRATCH}{secrets.token_hex(4)}"
    names = {f"{topics}_{number}": f"load_{number}" for number in range(load.streams)}
    say(f"making {load.streams} streams")
    declared = {topic: declaration(topic, name, max_delay=load.max_delay) for topic, name in names.items()}
    with scratch_project(settings, url, declared, say=say) as project:
        services = {**_services(state), RUNS: [project.pid]}
        landed = LandedRecords(project.engine)
        feeder = Feeder(project.connection, list(names), partitions=1, beats=load.rate, value=record)
        with feeder:
            began = time.monotonic()
            looks = [_look(services, sent=0)]

            def go_on(until: float, what: str) -> None:
                """So many seconds after the beginning, say what the time since the last look has shown."""
                time.sleep(max(began + until - time.monotonic(), 0))
                looks.append(_look(services, sent=feeder.sent * load.streams))
                new = landed.look()
                tell(f"{what}  {minute_line(*looks[-2:], landed=landed.records, new=new, cores=_cores())}")

            say(f"warming up for {load.warm_up:g} seconds")
            go_on(load.warm_up, "warm-up")
            done = 0.0
            while done < load.seconds:
                done = min(done + MINUTE, load.seconds)
                say(f"minute {done / MINUTE:.0f} of {load.seconds / MINUTE:g}")
                go_on(load.warm_up + done, f"{done / MINUTE:4.1f} min")
            sent = feeder.end()
        say("waiting for the last ones")
        caught_up = _caught_up(project.engine, sent * load.streams, patience=load.catch_up)
        say("comparing the tables with what was produced")
        landed.look()
        check = sum(
            (table_check(project.engine, name, produced=sent) for name in names.values()), start=TableCheck(0, 0, 0)
        )
        return LoadMeasured(looks[1:], landed.slices, check, cores=_cores(), caught_up=caught_up)


def declaration(topic: str, name: str, *, max_delay: str | None) -> str:
    """A stream's YAML."""
    stream = STREAM.format(topic=topic, name=name, schema=SHAPE.schema)
    return stream if max_delay is None else stream + SLICES.format(max_delay=max_delay)


def record(number: int) -> bytes:
    """A stream's n-th record, of about 200 bytes: `placed_at` is now."""
    now = datetime.now(UTC)
    return _encode(
        {"id": number, "customer": f"customer {number % 1000}", "amount": 12.3, "placed_at": now, "note": _NOTE}
    )


def _caught_up(engine: Engine, records: int, *, patience: float) -> float | None:
    """Seconds until so many records are committed; None where they are not in time."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < patience:
        if committed_records(engine) >= records:
            return waited
        time.sleep(LOOK)
    return None


def _services(state: Path) -> dict[str, list[int]]:
    """The processes of the services in this folder, by the role of those that do not say theirs."""
    found: dict[str, list[int]] = {}
    for one in devstack.status(state):
        name = one.name.partition("-")[0]
        found.setdefault(name if name in ("spark", "kafka") else "database", []).append(one.pid)
    return found


def _look(services: Mapping[str, Sequence[int]], *, sent: int) -> LoadLook:
    mine, machine = os.times(), psutil.cpu_times()
    used = {**used_by_role(services), OTHERS: RoleUse(mine.user + mine.system, memory_of(os.getpid())[1])}
    busy = sum(machine[:3])  # user, nice and system
    return LoadLook(round(time.time() * 1000), sent, used, busy)


def _cores() -> int:
    return os.cpu_count() or 1
