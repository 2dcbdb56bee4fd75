"""A road of processes that consume by themselves: loops written by hand, or live mode."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_assets.lab.bench.child_processes import together
from kafka_assets.lab.bench.course import Course, Landing, with_offsets
from kafka_assets.lab.bench.record_shapes import PARTITIONS
from kafka_assets.lab.bench.table_content import Content
from kafka_assets.live.limits import Limits

LIVE = "live"
UNTUNED = {"fetch.queue.backoff.ms": "1000"}
"""What librdkafka does where nobody says otherwise: few who write a loop know of it."""


@dataclass(frozen=True)
class Road:
    """One way from the topic to the table, in so many processes."""

    by: str
    processes: int
    tuned: bool = False
    """Whether a loop's client asks for more as soon as live mode's does; else it waits as librdkafka does by itself."""

    @property
    def name(self) -> str:
        tuned = ", tuned client" if self.tuned else ""
        return f"{self.by}{tuned}, {self.processes} process{'es' if self.processes > 1 else ''}"


def hand_roads(dialect: str) -> list[Road]:
    """The loops that are written by hand for this database, the slowest first."""
    if dialect == "sqlite":  # one writer
        return [Road("json + executemany", 1), Road("msgspec + executemany", 1)]
    fast = ["msgspec + COPY BINARY"] if dialect == "postgresql" else ["msgspec + executemany", "msgspec + LOAD DATA"]
    return [Road("json + executemany", 1), *(Road(by, count) for by in fast for count in (1, 2))]


def tuned_road(dialect: str) -> Road:
    """The fastest of these loops, by somebody who knows librdkafka well."""
    return replace(hand_roads(dialect)[-1], tuned=True)


def replacing_roads(dialect: str) -> list[Road]:
    """The same for a table in which of each id the last record stands."""
    by = "msgspec + COPY BINARY + ON CONFLICT" if dialect == "postgresql" else "msgspec + executemany, replacing"
    return [Road(by, count) for count in ((1,) if dialect == "sqlite" else (1, 2))]


def landed_by_loops(course: Course, road: Road, *, batch: int | None = None, merged: Content | None = None) -> Landing:
    """Land the topic by this road into a table of its own: seconds from the first record to the last commit.

    `batch`: live mode's most records in one commit; else its own. `merged`: what a road that replaces must leave.
    """
    connection, records = course.connection, course.records
    table = course.empty_table().name if merged is None else course.keyed_table()
    with_offsets(course.engine, table)
    plain = {} if road.tuned or road.by == LIVE else UNTUNED
    holds = [records.in_partition(partition) for partition in range(PARTITIONS)]
    job = {
        "road": road.by, "bootstrap": connection.bootstrap_servers, "properties": {**plain, **connection.properties},
        "url": course.engine.url.render_as_string(hide_password=False), "topic": course.topic, "table": table,
        "holds": holds, "shape": records.shape.name,
        "function": course.products is not None, "batch": Limits().records if batch is None else batch,
    }  # fmt: skip
    shares = [list(range(first, PARTITIONS, road.processes)) for first in range(road.processes)]
    times = together(
        [{**job, "partitions": share, "records": sum(holds[partition] for partition in share)} for share in shares]
    )
    return Landing(table, {"": max(last for _, last in times) - min(first for first, _ in times)}, merged)
