"""Publications of an asset that shares another one's slices: added where they are missing."""

from __future__ import annotations

import time

from sqlalchemy import Connection, Engine, and_, insert, literal, select
from sqlalchemy.orm import aliased

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import read, write

PER_PARTITION = 1000
"""A downstream that is declared late gets the publications of a long history over several ticks."""


def add_publications(
    engine: Engine, *, asset: str, stream: str, limit: int = PER_PARTITION, until: float = float("inf")
) -> int:
    """Give an asset a planned publication of every slice of a stream that it has none of, partition by partition.

    Only what lies above its committed_through is looked at: history does not slow a tick down. Lost and skipped
    slices get none, and committed_through moves over them here, since no publisher will do it. After `until`, on
    the monotonic clock, no further partition is begun: the next call goes on from there.
    """
    with read(engine) as connection:
        places = connection.execute(
            select(t.progress.c.source_id, t.progress.c.partition)
            .join(t.source, t.source.c.id == t.progress.c.source_id)
            .where(t.source.c.stream == stream)
            .order_by(t.progress.c.source_id, t.progress.c.partition)
        ).all()
        todo = [place for place in places if _behind(connection, asset, *place)]
    added = 0
    for source_id, partition in todo:
        if time.monotonic() > until:
            break
        added += _add(engine, asset, source_id, partition, limit)
    return added


def _behind(connection: Connection, asset: str, source_id: int, partition: int) -> bool:
    """Whether the asset lacks its committed row, a publication, or a step over what is lost."""
    if _through(connection, asset, source_id, partition) is None:
        return True
    missing = _lacking(asset, source_id, partition).limit(1)
    return connection.execute(missing).first() is not None


def _add(engine: Engine, asset: str, source_id: int, partition: int, limit: int) -> int:
    with write(engine) as connection:
        # Whoever plans this source, or does the same as this, waits here.
        connection.execute(select(t.source.c.id).where(t.source.c.id == source_id).with_for_update()).all()
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
        found = connection.execute(_lacking(asset, source_id, partition).limit(limit)).all()
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


def _lacking(asset: str, source_id: int, partition: int):
    """Slices above committed_through without a publication of the asset, and lost ones right at it."""
    s, d = t.slice_.c, t.committed.c
    has = aliased(t.publication)
    mine = and_(d.asset == asset, d.source_id == source_id, d.partition == partition)
    return (
        select(s.id, s.start_offset, s.end_offset, s.kind)
        .join_from(t.slice_, t.committed, mine)
        .where(
            s.source_id == source_id,
            s.partition == partition,
            s.start_offset >= d.committed_through,
            s.is_open.is_(False),
            ~select(literal(1)).where(has.c.slice_id == s.id, has.c.asset == asset).exists(),
            (s.kind == "normal") | (s.start_offset == d.committed_through),
        )
        .order_by(s.start_offset)
    )
