"""Publications that an asset lacks of slices that were planned without it: another one's, or under another name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, and_, insert, select

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.publications import batches, each

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
    """Where the asset lacks its committed row, a publication, or a step over what is lost: one question for many."""
    g, d = t.progress.c, t.committed.c
    mine = and_(d.asset == asset, d.source_id == g.source_id, d.partition == g.partition)
    rows = connection.execute(
        select(g.source_id, g.partition, g.planned_through, d.committed_through)
        .join_from(t.progress, t.source, t.source.c.id == g.source_id)
        .outerjoin(t.committed, mine)
        .where(t.source.c.stream == stream, *([] if gone else [t.source.c.retired_at.is_(None)]))
        .order_by(g.source_id, g.partition)
    ).all()
    new = {(row.source_id, row.partition) for row in rows if row.committed_through is None}
    waiting = [row for row in rows if row.committed_through is not None and row.committed_through < row.planned_through]
    lacking = each(
        connection,
        [_lacking(asset, row.source_id, row.partition, above=row.committed_through).limit(1) for row in waiting],
    )
    return sorted(new | {(row.source_id, row.partition) for row in lacking})


def _add(engine: Engine, asset: str, place: tuple[int, int], *, limit: int, gone: bool) -> int:
    source_id, partition = place
    with write(engine) as connection:
        # Whoever plans this source, or does the same as this, waits here.
        locked = select(t.source.c.retired_at).where(t.source.c.id == source_id).with_for_update()
        if connection.scalar(locked) is not None and not gone:
            return 0
        through = _through(connection, asset, source_id, partition)
        if through is None:
            through = _begin(connection, asset, source_id, partition)
        missing = _lacking(asset, source_id, partition, above=through).order_by(t.slice_.c.start_offset)
        found = connection.execute(missing.limit(limit)).all()
        _insert(connection, asset, [row for row in found if row.kind == "normal"])
        if any(row.kind != "normal" for row in found):
            advance(connection, asset=asset, source_id=source_id, partition=partition)
    return sum(row.kind == "normal" for row in found)


def _through(connection: Connection, asset: str, source_id: int, partition: int) -> int | None:
    d = t.committed.c
    return connection.scalar(
        select(d.committed_through).where(d.asset == asset, d.source_id == source_id, d.partition == partition)
    )


def _begin(connection: Connection, asset: str, source_id: int, partition: int) -> int:
    """The asset's committed row of a partition, where that begins."""
    g = t.progress.c
    origin = connection.scalars(select(g.origin).where(g.source_id == source_id, g.partition == partition)).one()
    connection.execute(
        insert(t.committed).values(
            asset=asset, source_id=source_id, partition=partition, committed_through=origin, updated_at=now_ts()
        )
    )
    return origin


def _insert(connection: Connection, asset: str, slices: Sequence[Row[Any]]) -> None:
    """A planned publication of each slice, and its claim: by a few statements, however many they are."""
    p = t.publication.c
    for some in batches(slices):
        connection.execute(
            insert(t.publication),
            [
                {"slice_id": row.id, "start_offset": row.start_offset, "end_offset": row.end_offset, "asset": asset}
                for row in some
            ],
        )
        made = select(p.id).where(p.slice_id.in_([row.id for row in some]), p.asset == asset).order_by(p.id)
        connection.execute(insert(t.claim).from_select(["publication_id"], made))


def _lacking(asset: str, source_id: int, partition: int, *, above: int) -> Select[Any]:
    """Slices above the asset's committed row without a publication of it, and lost ones right at that."""
    s, p = t.slice_.c, t.publication.alias("its").c
    # Asked slice by slice, as in `committed.uncommitted_by`.
    has = select(p.id).where(p.slice_id == s.id, p.asset == asset).scalar_subquery()
    return select(s.id, s.source_id, s.partition, s.start_offset, s.end_offset, s.kind).where(
        s.source_id == source_id,
        s.partition == partition,
        s.start_offset >= above,
        s.is_open.is_(False),
        has.is_(None),
        (s.kind == "normal") | (s.start_offset == above),
    )
