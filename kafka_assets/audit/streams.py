"""Where streams stand, each in one line; and each of their partitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Select, case, func, literal, select

from kafka_assets.ledger import tables as t
from kafka_assets.ledger import views
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.publications import each
from kafka_assets.ledger.requests import given_up, waiting
from kafka_assets.ledger.schema import current_revision, require_schema
from kafka_assets.streams import Stream

QUARANTINED = 1_000
"""So many bad records of an asset are counted: nothing removes them, and whoever asks where streams stand does not wait
for all that ever was bad."""


@dataclass(frozen=True)
class StreamStanding:
    """A declared stream, and what the ledger has of it: nothing before its first tick."""

    stream: str
    reads: str
    target: str
    mode: str
    asset: str
    partitions: int
    live: int
    """Partitions that live consumers land."""
    lag: int
    waiting: int
    """Slices that are planned and not landed."""
    failed: int
    """Slices that were given up."""
    quarantined: int
    """Records; counted up to `QUARANTINED`."""
    more_quarantined: bool
    """Whether there are more than were counted."""


@dataclass(frozen=True)
class PartitionLag:
    """A line of kafka_lag."""

    asset: str
    stream: str
    topic: str
    partition: int
    committed_through: int
    planned_through: int
    last_stable: int
    high_watermark: int
    lag: int
    hanging: int
    observed_at: datetime
    owner: str | None
    """The live consumer that lands it now."""


def stream_standing(engine: Engine, streams: Sequence[Stream]) -> list[StreamStanding]:
    """One line for each stream; also where there is no ledger yet."""
    assets = [one.asset for one in streams]
    begun = current_revision(engine) is not None
    if begun:
        require_schema(engine)
    behind = lags(engine, assets=assets) if begun else []
    waits = waiting(engine, assets=assets) if begun else {}
    failed = given_up(engine, assets=assets) if begun else {}
    bad = _quarantined(engine, assets) if begun else {}
    return [
        StreamStanding(
            stream=one.name,
            reads=one.reads,
            target=one.target,
            mode=one.mode,
            asset=one.asset,
            partitions=sum(part.asset == one.asset for part in behind),
            live=sum(part.asset == one.asset and part.owner is not None for part in behind),
            lag=sum(part.lag for part in behind if part.asset == one.asset),
            waiting=waits.get(one.asset, 0),
            failed=failed.get(one.asset, 0),
            quarantined=min(bad.get(one.asset, 0), QUARANTINED),
            more_quarantined=bad.get(one.asset, 0) > QUARANTINED,
        )
        for one in streams
    ]


def lags(engine: Engine, *, assets: Collection[str]) -> list[PartitionLag]:
    """Each partition that these assets read, as the sensor saw it last."""
    v, g, src = views.lag.table.c, t.progress.c, t.source.c
    with read(engine) as connection:
        rows = connection.execute(
            select(
                v.asset, v.stream, v.topic, v.topic_partition, v.committed_through, v.planned_through,
                v.last_stable, v.high_watermark, v.lag, v.hanging, v.observed_at,
                case((g.owner_lease_until > now_ms(), g.owner)),
            )
            .join_from(
                views.lag.table,
                t.source,
                (src.stream == v.stream) & (src.topic == v.topic) & src.retired_at.is_(None),
            )
            .join(t.progress, (g.source_id == src.id) & (g.partition == v.topic_partition))
            .where(v.asset.in_(sorted(assets)))
            .order_by(v.asset, v.topic, v.topic_partition)
        ).all()  # fmt: skip
    return [PartitionLag(*row) for row in rows]


def _quarantined(engine: Engine, assets: Collection[str]) -> dict[str, int]:
    q = t.quarantine.c
    counts: list[Select[Any]] = []
    for asset in sorted(assets):
        # In order, since PostgreSQL would else read the table from its beginning, past all that are of other assets.
        mine = (
            select(q.kafka_offset).where(q.asset == asset).order_by(q.kafka_source, q.kafka_partition, q.kafka_offset)
        )
        some = mine.limit(QUARANTINED + 1).subquery()
        counts.append(select(literal(asset).label("asset"), func.count().label("records")).select_from(some))
    with read(engine) as connection:
        return {row.asset: row.records for row in each(connection, counts)}
