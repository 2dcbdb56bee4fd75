"""Rows a second of live mode beside loops that were written by hand, in turns, on one topic and one table's shape."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from kafka_assets.broker.connection import Connection
from kafka_assets.lab.bench.course import course
from kafka_assets.lab.bench.loop_road import LIVE, Road, hand_roads, landed_by_loops
from kafka_assets.lab.bench.record_shapes import produced


@dataclass(frozen=True)
class Measured:
    """Rates of each road, round by round, in rows a second; `against` is the road that live mode has to beat."""

    rates: dict[Road, list[float]]
    against: dict[Road, Road]

    def median(self, road: Road) -> float:
        return statistics.median(self.rates[road])


def roads(dialect: str) -> list[Road]:
    """What is measured on this database; live mode last, beside the fastest loop of as many processes before it."""
    counts = (1,) if dialect == "sqlite" else (1, 2)
    return [*hand_roads(dialect), *(Road(LIVE, count) for count in counts)]


def bench_live(
    connection: Connection,
    engine: Engine,
    *,
    records: int,
    rounds: int,
    shape: str = "plain",
    batch: int | None = None,
    say: Callable[[str], None] = lambda what: None,
) -> Measured:
    """Land the same topic by each road in turns, each time into a table of its own; in a topic that goes again."""
    all_roads = roads(engine.dialect.name)
    rates: dict[Road, list[float]] = {road: [] for road in all_roads}
    with course(connection, engine, produced(shape, records), say=say) as here:
        for number in range(1, rounds + 1):
            for road in all_roads:
                say(f"round {number} of {rounds}: {road.name}")
                landing = landed_by_loops(here, road, batch=batch)
                here.finish(landing, road=road.name)
                rates[road].append(records / landing.seconds[""])
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
