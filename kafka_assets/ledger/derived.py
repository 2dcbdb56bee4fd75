"""Publications that an asset lacks of slices that were planned without it: another one's, or under another name."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, Engine, and_, insert, literal, select
from sqlalchemy.orm import aliased

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import read, write

PER_PARTITION = 1000
"""A downstream that is declared late gets the publications of a long history over several ticks."""


def add_publications(
    engine: Engine,
    *,
    asset: str,
    stream: str,
    limit: int = PER_PARTITION,
    gone: bool = True,
    until: float = float("inf"),
) -> int:
    """Give an asset a planned publication of every slice of a stream that it has none of, partition by partition.

    Only what lies above its committed_through is looked at: history does not slow a tick down. Lost and skipped
    slices get none, and committed_through moves over them here, since no publisher will do it. Without `gone`
    nothing is added of topics that are: whoever reads the records themselves could land none of it. After `until`,
    on the monotonic clock, no further partition is begun: the next call goes on from there.
    """
    with read(engine) as connection:
        todo = _behind(connection, asset, stream, gone=gone)
    added = 0
    for place in todo:
        if time.monotonic() > until:
            break
        added += _add(engine, asset, place, limit=limit, gone=gone)
    return added


def _behind(connection: Connection, asset: str, stream: str, *, gone: bool) -> list[tuple[int, int]]:
    """Where the asset lacks its committed row, a publication, or a step over what is lost: one question for all."""
    g, d = t.progress.c, t.committed.c
    mine = and_(d.asset == asset, d.source_id == g.source_id, d.partition == g.partition)
    lacking = _lacking(asset, g.source_id, g.partition).correlate(t.progress, t.committed).exists()
    rows = connection.execute(
        select(g.source_id, g.partition)
        .join_from(t.progress, t.source, t.source.c.id == g.source_id)
        .outerjoin(t.committed, mine)
        .where(
            t.source.c.stream == stream,
            *([] if gone else [t.source.c.retired_at.is_(None)]),
            d.asset.is_(None) | ((d.committed_through < g.planned_through) & lacking),
        )
        .order_by(g.source_id, g.partition)
    )
    return [(row.source_id, row.partition) for row in rows]


def _add(engine: Engine, asset: str, place: tuple[int, int], *, limit: int, gone: bool) -> int:
    source_id, partition = place
    with write(engine) as connection:
        # Whoever plans this source, or does the same as this, waits here.
        locked = select(t.source.c.retired_at).where(t.source.c.id == source_id).with_for_update()
        if connection.scalar(locked) is not None and not gone:
            return 0
        if _through(connection, asset, source_id, partition) is None:
            origin = connection.scalar(
                select(t.progress.c.origin).where(
                    t.progress.c.source_id == source_id, t.progress.c.partition == partition
                )
            )
            connection.execute(
                insert(t.committed).values(
                    asset=asset, source_id=source_id, partition=partition, committed_through=origin, updated_at=now_ts()
                )
            )
        mine = and_(t.committed.c.asset == asset, t.committed.c.source_id == source_id)
        missing = _lacking(asset, source_id, partition).join_from(
            t.slice_, t.committed, mine & (t.committed.c.partition == partition)
        )
        found = connection.execute(missing.order_by(t.slice_.c.start_offset).limit(limit)).all()
        for row in found:
            if row.kind != "normal":
                continue
            made = connection.execute(
                insert(t.publication).values(
                    slice_id=row.id,
                    start_offset=row.start_offset,
                    end_offset=row.end_offset,
                    asset=asset,
                    state="planned",
                )
            )
            assert made.inserted_primary_key is not None
            connection.execute(insert(t.claim).values(publication_id=made.inserted_primary_key[0]))
        if any(row.kind != "normal" for row in found):
            advance(connection, asset=asset, source_id=source_id, partition=partition)
    return sum(row.kind == "normal" for row in found)


def _through(connection: Connection, asset: str, source_id: int, partition: int) -> int | None:
    d = t.committed.c
    return connection.scalar(
        select(d.committed_through).where(d.asset == asset, d.source_id == source_id, d.partition == partition)
    )


def _lacking(asset: str, source_id: Any, partition: Any):
    """Slices above the asset's committed row without a publication of it, and lost ones right at that."""
    s, d = t.slice_.c, t.committed.c
    has = aliased(t.publication)
    return select(s.id, s.start_offset, s.end_offset, s.kind).where(
        s.source_id == source_id,
        s.partition == partition,
        s.start_offset >= d.committed_through,
        s.is_open.is_(False),
        ~select(literal(1)).where(has.c.slice_id == s.id, has.c.asset == asset).exists(),
        (s.kind == "normal") | (s.start_offset == d.committed_through),
    )
