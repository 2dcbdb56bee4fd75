"""Rows a second from topic to table: the Spark road, and what else could be taken, in turns within each round."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from sqlalchemy import Engine

from kafka_assets.audit.bench import Figure
from kafka_assets.audit.bulk import bulk_limit, means_of
from kafka_assets.audit.scratch import scratch_ledger
from kafka_assets.broker.connection import Connection
from kafka_assets.lab.bench.connect_road import ConnectRoad, connect_road
from kafka_assets.lab.bench.course import Course, Landing, course
from kafka_assets.lab.bench.loop_road import Road, hand_roads, landed_by_loops, replacing_roads, tuned_road
from kafka_assets.lab.bench.record_shapes import produced
from kafka_assets.lab.bench.run_figures import Load, RoadLaps, figures_of
from kafka_assets.lab.bench.spark_road import COMMAND, PUBLISH, SparkRoad
from kafka_assets.lab.bench.streaming_road import DIALECT, StreamingRoad, streaming_road
from kafka_assets.lab.bench.table_content import Content, of_merged
from kafka_assets.lab.bench.usage import Meter, service_parts
from kafka_assets.settings import Settings
from kafka_assets.sinks.road import road_for

Mode = Literal["append", "upsert"]


class Lander(Protocol):
    """A road: lands the topic in an empty table, and tells its seconds by clock."""

    @property
    def name(self) -> str: ...

    def land(self, course: Course) -> Landing: ...


@dataclass(frozen=True)
class HandRoad:
    """A loop written by hand: from its first record to its last commit."""

    road: Road
    merged: Content | None = None

    @property
    def name(self) -> str:
        return self.road.name

    def land(self, course: Course) -> Landing:
        return landed_by_loops(course, self.road, merged=self.merged)


@dataclass(frozen=True)
class BulkLimit:
    """What the database takes at most: rows that were made before, by the means that it has for that."""

    dialect: str

    @property
    def name(self) -> str:
        return f"limit: {means_of(self.dialect)}"

    def land(self, course: Course) -> Landing:
        table = course.empty_table()
        seconds = bulk_limit(course.engine, road_for(course.engine), table, course.records.tables())
        return Landing(table.name, {"": seconds})


@dataclass(frozen=True)
class Asked:
    """What is to be measured."""

    records: int
    shape: str
    rounds: int
    mode: Mode = "append"
    function: bool = False
    """Whether each road lands what a function makes of the records, which are of the shape `decimals` then."""
    warm_ups: int = 1
    """Rounds before those that count: the first job of a Spark session takes seconds more than the second."""


def machine_load() -> tuple[float, float]:
    """The load averages of the last minute and of the last five."""
    return os.getloadavg()[:2]


def bench_run(
    settings: Settings,
    url: str,
    asked: Asked,
    *,
    state: Path,
    before: tuple[float, float],
    say: Callable[[str], None] = lambda what: None,
) -> list[Figure]:
    """Land the same topic by every road, to warm up and then `rounds` times in turns; in a scratch ledger.

    `settings` name the broker and Spark, and the folder in which a project is made for the Spark road. `state` is the
    folder of the services whose processor time is told, `before` the machine's load before they were started.
    CountsDisagree where a road landed anything else than was produced.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(scratch_ledger(url))
        warm = _warm_roads(settings, engine, asked, stack)
        roads = _roads(settings, engine, asked, warm)
        laps = {road.name: RoadLaps(road.name) for road in roads}
        meter = Meter(service_parts(state))
        records = produced(asked.shape, asked.records, upsert=asked.mode == "upsert")
        products = settings.project / "products.parquet" if asked.function else None
        here = stack.enter_context(course(Connection.of(settings), engine, records, products=products, say=say))
        for number in range(1 - asked.warm_ups, asked.rounds + 1):
            for road in roads if number % 2 else reversed(roads):
                said = f"round {number} of {asked.rounds}" if number > 0 else "warming up"
                say(f"{said}: {road.name}")
                child = next((one.process.pid for one in warm if one is road), None)
                landing, usage = meter.measured(lambda road=road: road.land(here), child=child)
                here.finish(landing, road=road.name)
                if number > 0:
                    laps[road.name].add(landing.seconds, usage, landing.fixed)
        load = Load(before, machine_load())
    rival = _rival(roads)
    return figures_of(list(laps.values()), records=asked.records, against=_against(roads), rival=rival, load=load)


def _warm_roads(
    settings: Settings, engine: Engine, asked: Asked, stack: ExitStack
) -> list[StreamingRoad | ConnectRoad]:
    """Those whose processes live on from landing to landing; Connect's transformations join no table."""
    if engine.dialect.name != DIALECT or asked.mode != "append":
        return []
    streams = stack.enter_context(streaming_road())
    return [streams] if asked.function else [stack.enter_context(connect_road(settings.require_broker())), streams]


def _roads(
    settings: Settings, engine: Engine, asked: Asked, warm: Sequence[StreamingRoad | ConnectRoad]
) -> list[Lander]:
    """What the Spark road stands beside comes before it."""
    if asked.mode == "upsert":
        merged = of_merged(produced(asked.shape, asked.records, upsert=True))
        by_hand = [HandRoad(road, merged) for road in replacing_roads(engine.dialect.name)]
        return [*by_hand, SparkRoad(settings), SparkRoad(settings, merged=merged)]
    by_hand = hand_roads(engine.dialect.name)
    fastest = [HandRoad(road) for road in by_hand if road.by == by_hand[-1].by]
    if asked.function:  # the limit calculates nothing
        return [*fastest, *warm, SparkRoad(settings)]
    tuned, limit = HandRoad(tuned_road(engine.dialect.name)), BulkLimit(engine.dialect.name)
    return [tuned, *fastest, limit, *warm, SparkRoad(settings)]


def _rival(roads: Sequence[Lander]) -> str:
    """The road beside which costs stand: the loop of the most processes."""
    return [road.name for road in roads if isinstance(road, HandRoad)][-1]


def _against(roads: Sequence[Lander]) -> dict[str, list[str]]:
    """Beside which figures those of the Spark road stand."""
    *others, measured = roads
    return {
        f"{measured.name}: {clock}": [
            f"{road.name}: {clock}" if isinstance(road, SparkRoad) else road.name for road in reversed(others)
        ]
        for clock in (PUBLISH, COMMAND)
    }
