"""Where planning stands, and how far assets are behind a mark: by the ledger alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Engine, case, func, select

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ms, now_ts
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.requests import waits
from kafka_assets.plan import Progress

Place = tuple[str, int, int]
"""An asset, a source's id, and a partition."""


@dataclass(frozen=True)
class Remaining:
    """What of the offsets below a mark is not committed."""

    offsets: int = 0
    unplanned: int = 0
    landable: int = 0
    """Slices that are planned, neither committed nor given up, and kept from landing by nothing that is known."""


def ends_of(engine: Engine, *, assets: Collection[str]) -> dict[Place, int]:
    """The last stable offset of each partition that these assets read, as it was seen last."""
    g, d = t.progress.c, t.committed.c
    with read(engine) as connection:
        rows = connection.execute(
            select(d.asset, g.source_id, g.partition, g.last_stable)
            .join_from(t.committed, t.progress, (d.source_id == g.source_id) & (d.partition == g.partition))
            .join(t.source, t.source.c.id == g.source_id)
            .where(d.asset.in_(sorted(assets)), t.source.c.retired_at.is_(None))
        ).all()
    return {(row[0], row[1], row[2]): row[3] for row in rows}


@dataclass(frozen=True)
class Standing:
    """One partition of a topic that an asset lands."""

    topic: str
    partition: int
    committed_through: int
    end: int
    """The last stable offset, as it was seen last."""
    hanging: int
    """Offsets above it: a producer's open transaction holds them back."""


def standing_of(engine: Engine, *, asset: str) -> list[Standing]:
    """Each partition of the topics that an asset lands, in order."""
    g, d, src = t.progress.c, t.committed.c, t.source.c
    with read(engine) as connection:
        rows = connection.execute(
            select(src.topic, g.partition, d.committed_through, g.last_stable, g.high_watermark - g.last_stable)
            .join_from(t.committed, t.progress, (d.source_id == g.source_id) & (d.partition == g.partition))
            .join(t.source, src.id == g.source_id)
            .where(d.asset == asset, src.retired_at.is_(None))
            .order_by(src.topic, g.partition)
        ).all()
    return [Standing(*row) for row in rows]


def lost_within(engine: Engine, passed: timedelta, *, streams: Collection[str]) -> dict[str, int]:
    """By topic the offsets that were lost with what was found deleted of these streams' topics, so short a time ago."""
    s, src = t.slice_.c, t.source.c
    with read(engine) as connection:
        since = connection.execute(select(now_ts())).scalar_one() - passed
        gone = select(src.id).where(src.stream.in_(sorted(streams)), src.retired_at >= since)
        rows = connection.execute(
            select(src.topic, func.sum(s.end_offset - s.start_offset))
            .join_from(t.slice_, t.source, s.source_id == src.id)
            .where(s.kind == "lost", s.source_id.in_(connection.scalars(gone).all()))
            .group_by(src.topic)
        ).all()
    return {row[0]: int(row[1]) for row in rows}


def progress_of(engine: Engine, source_id: int) -> dict[int, Progress]:
    """Where planning of each partition of a source stands."""
    g = t.progress.c
    with read(engine) as connection:
        rows = connection.execute(
            select(g.partition, g.planned_through, now_ms() - g.pending_since).where(g.source_id == source_id)
        ).all()
    return {row[0]: Progress(planned_through=row[1], pending_ms=row[2]) for row in rows}


def remaining(
    engine: Engine, goal: Mapping[Place, int], *, leased: bool = False, stalled: Collection[str] = ()
) -> Remaining:
    """What is left to do until everything below the goal is committed, but for what live consumers will land.

    `leased` counts that, too: for a live consumer, whose own leases those are. Of `stalled` assets nothing is landable.
    """
    g, d, p, s = t.progress.c, t.committed.c, t.publication.c, t.slice_.c
    assets = sorted({asset for asset, _, _ in goal})
    with read(engine) as connection:
        through = connection.execute(
            select(
                d.asset,
                d.source_id,
                d.partition,
                d.committed_through,
                g.planned_through,
                case((g.owner_lease_until > now_ms(), 1), else_=0).label("live"),
            )
            .join_from(t.committed, t.progress, (d.source_id == g.source_id) & (d.partition == g.partition))
            .where(d.asset.in_(assets))
        ).all()
        open_slices = connection.execute(
            select(
                p.asset,
                s.source_id,
                s.partition,
                s.start_offset,
                func.coalesce(case((p.state == "planned", 1), else_=0), 0),
            )
            .join_from(t.publication, t.slice_, p.slice_id == s.id)
            .where(*waits(*assets), s.kind == "normal")
        ).all()
    offsets = unplanned = 0
    for row in through:
        end = goal.get((row[0], row[1], row[2]), 0)
        # What a live consumer plans it lands itself; what was planned before it came, runs land.
        end = min(end, row.planned_through) if row.live and not leased else end
        offsets += max(0, end - row.committed_through)
        unplanned += max(0, end - row.planned_through)
    landable = sum(
        row[4]
        for row in open_slices
        if row.asset not in stalled and row.start_offset < goal.get((row.asset, row.source_id, row.partition), 0)
    )
    return Remaining(offsets=offsets, unplanned=unplanned, landable=landable)
