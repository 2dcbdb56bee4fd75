"""Publications that an asset lacks of slices that were planned without it: another one's, or under another name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    and_,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.index_hints import by_start
from kafka_assets.ledger.publications import batches, each

PER_PARTITION = 1000
"""A downstream that is declared late gets the publications of a long history over several ticks."""
LOOK = 100
"""So many slices of a partition are looked at in each tick, to see whether any of them lacks its publication."""

_Place = tuple[int, int]
"""A source's id, and a partition."""


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

    Only what lies above its committed_through is looked at, and only once: where a slice was given up long ago, all
    of later history lies above it. Lost and skipped slices get none, and committed_through moves over them here, since
    no publisher will do it. Without `gone` nothing is added of topics that are: whoever reads the records themselves
    could land none of it. After `until`, on the monotonic clock, nothing further is begun: the next call goes on from
    there.
    """
    with read(engine) as connection:
        todo = _behind(connection, asset, stream, limit=min(LOOK, limit), gone=gone)
    added = 0
    for place in todo:
        while time.monotonic() <= until:
            new, more = _add(engine, asset, place, limit=limit, gone=gone)
            added += new
            if new or not more:
                break
    return added


def _behind(connection: Connection, asset: str, stream: str, *, limit: int, gone: bool) -> list[_Place]:
    """Where the asset lacks its committed row, a publication, or a step over what is lost; or more is to be seen."""
    g, d, m = t.progress.c, t.committed.c, t.published.c
    rows = connection.execute(
        select(g.source_id, g.partition, g.planned_through, d.committed_through, m.published_through)
        .join_from(t.progress, t.source, t.source.c.id == g.source_id)
        .outerjoin(t.committed, and_(d.asset == asset, d.source_id == g.source_id, d.partition == g.partition))
        .outerjoin(t.published, and_(m.asset == asset, m.source_id == g.source_id, m.partition == g.partition))
        .where(t.source.c.stream == stream, *([] if gone else [t.source.c.retired_at.is_(None)]))
    ).all()
    found = {(row.source_id, row.partition) for row in rows if row.committed_through is None}
    waiting = [row for row in rows if row.committed_through is not None and row.committed_through < row.planned_through]
    looks: list[Select[Any]] = []
    for row in waiting:
        page = _page(asset, (row.source_id, row.partition), above=_from(row), limit=limit).subquery()
        lacking = func.sum(case((_wanting(page.c, through=row.committed_through), 1), else_=0))
        looks.append(
            select(
                literal(row.source_id).label("source_id"),
                literal(row.partition).label("partition"),
                func.count().label("seen"),
                lacking.label("lacking"),
            ).select_from(page)
        )
    found |= {(row.source_id, row.partition) for row in each(connection, looks) if row.lacking or row.seen == limit}
    return sorted(found)


def _add(engine: Engine, asset: str, place: _Place, *, limit: int, gone: bool) -> tuple[int, bool]:
    """Look at so many slices of a partition, and add what lacks; how many, and whether there may be more to see."""
    source_id, partition = place
    with write(engine) as connection:
        # Whoever plans this source, or does the same as this, waits here.
        locked = select(t.source.c.retired_at).where(t.source.c.id == source_id).with_for_update()
        if connection.scalar(locked) is not None and not gone:
            return 0, False
        through = _through(connection, asset, source_id, partition)
        if through is None:
            through = _begin(connection, asset, source_id, partition)
        seen = connection.execute(_page(asset, place, above=max(through, _mark(connection, asset, place)), limit=limit))
        rows = seen.all()
        lacking = [row for row in rows if row.its is None and row.kind == "normal"]
        _insert(connection, asset, lacking)
        if any(row.kind != "normal" for row in rows):
            advance(connection, asset=asset, source_id=source_id, partition=partition)
        if len(rows) >= min(LOOK, limit):  # fewer are quickly seen again
            _move_mark(connection, asset, place, to=rows[-1].end_offset)
    return len(lacking), len(rows) == limit


def _from(row: Row[Any]) -> int:
    return max(row.committed_through, row.published_through or 0)


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


def _page(asset: str, place: _Place, *, above: int, limit: int) -> Select[Any]:
    """So many slices from an offset on, in order, each with the asset's publication of it."""
    s, p = t.slice_.c, t.publication.alias("its").c
    # Asked slice by slice, as in `committed.uncommitted_by`.
    its = select(p.id).where(p.slice_id == s.id, p.asset == asset).scalar_subquery().label("its")
    return by_start(
        select(s.id, s.start_offset, s.end_offset, s.kind, its)
        .where(
            s.source_id == place[0],
            s.partition == place[1],
            s.start_offset >= above,
            s.is_open.is_(False),
        )
        .order_by(s.start_offset)
        .limit(limit)
    )


def _wanting(page: Any, *, through: int) -> ColumnElement[bool]:
    """Slices to land of which the asset has no publication, and lost ones right at its committed_through."""
    return and_(page.its.is_(None), or_(page.kind == "normal", page.start_offset == through))


def _mark(connection: Connection, asset: str, place: _Place) -> int:
    return connection.scalar(select(t.published.c.published_through).where(*_of(asset, place))) or 0


def _move_mark(connection: Connection, asset: str, place: _Place, *, to: int) -> None:
    """Under the source's lock: nobody else writes it meanwhile."""
    moved = connection.execute(update(t.published).where(*_of(asset, place)).values(published_through=to))
    if moved.rowcount == 0:
        new = {"asset": asset, "source_id": place[0], "partition": place[1], "published_through": to}
        connection.execute(insert(t.published).values(**new))


def _of(asset: str, place: _Place) -> tuple[ColumnElement[bool], ...]:
    m = t.published.c
    return (m.asset == asset, m.source_id == place[0], m.partition == place[1])
