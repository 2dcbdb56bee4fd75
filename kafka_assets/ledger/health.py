"""What the ledger knows of a stream's health, in queries whose cost does not grow with history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnClause,
    Connection,
    Engine,
    and_,
    case,
    column,
    func,
    inspect,
    literal,
    select,
    table,
    text,
    union_all,
)  # fmt: skip

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.behind import skipped_lately
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.slices import SliceKey
from kafka_assets.verdicts import ASKED_OFTEN, Place, Recent, Waiting

NEWEST = 25
"""So many of each partition's newest slices are looked at."""
ROWS = 200_000
"""Slices are counted in their table, newest first, until they have so many rows."""


@dataclass(frozen=True)
class Health:
    """One asset's standing, at one moment."""

    places: Sequence[Place]
    below: int
    recent: Sequence[Recent]
    waiting: Waiting
    skipped: int
    """Offsets that were left out lately, by policy or by hand."""
    now_ms: int


def health(engine: Engine, *, asset: str, target: str, counted: bool) -> Health:
    """All of it; `counted`: whether the rows of a slice can be found by their offsets, as in an append table."""
    with read(engine) as connection:
        return Health(
            places=_places(connection, asset),
            below=_below(connection, asset),
            recent=_recent(connection, asset, target if counted else None),
            waiting=_waiting(connection, asset),
            skipped=skipped_lately(connection, _read_by(connection, asset)),
            now_ms=connection.scalar(select(now_ms())) or 0,
        )


def gaps_of(engine: Engine, *, stream: str, asset: str, limit: int = 10) -> list[str]:
    """What the view kafka_gap has of a stream and asset. Reads all of its history."""
    statement = text(
        "SELECT topic, kafka_partition, start_offset, end_offset, problem FROM kafka_gap "
        "WHERE stream = :stream AND (asset IS NULL OR asset = :asset) LIMIT :limit"
    )
    with read(engine) as connection:
        rows = connection.execute(statement, {"stream": stream, "asset": asset, "limit": limit}).all()
    return [f"{row[0]}:{row[1]}: {row[4]} ({row[2]} to {row[3]})" for row in rows]


def _places(connection: Connection, asset: str) -> list[Place]:
    s, g, d, src, p = t.slice_.c, t.progress.c, t.committed.c, t.source.c, t.publication.c
    open_ = and_(s.kind == "normal", func.coalesce(p.state, "planned") != "committed")
    tail = (
        select(
            g.source_id,
            g.partition,
            func.sum(s.end_offset - s.start_offset).label("offsets"),
            func.max(s.end_offset).label("reached"),
            func.min(case((open_, s.start_offset))).label("open_from"),
            func.min(case((open_, s.created_at))).label("created_at"),
        )
        .join_from(t.committed, t.progress, and_(d.source_id == g.source_id, d.partition == g.partition))
        .join(
            t.slice_,
            and_(s.source_id == g.source_id, s.partition == g.partition, s.start_offset >= d.committed_through),
        )
        .outerjoin(t.publication, and_(p.slice_id == s.id, p.asset == asset))
        .where(d.asset == asset)
        .group_by(g.source_id, g.partition)
        .subquery()
    )
    rows = connection.execute(
        select(
            src.topic, src.incarnation, g.partition, g.planned_through, d.committed_through, g.log_start,
            g.last_stable, g.high_watermark, tail.c.offsets, tail.c.reached, tail.c.open_from, tail.c.created_at,
            g.pending_since, now_ms().label("now"),
        )
        .join_from(t.committed, t.progress, and_(d.source_id == g.source_id, d.partition == g.partition))
        .join(t.source, src.id == g.source_id)
        .outerjoin(tail, and_(tail.c.source_id == g.source_id, tail.c.partition == g.partition))
        .where(d.asset == asset, src.retired_at.is_(None))
        .order_by(src.topic, g.partition)
    ).all()  # fmt: skip
    return [
        Place(
            topic=row.topic,
            partition=row.partition,
            planned_through=row.planned_through,
            committed_through=row.committed_through,
            log_start=row.log_start,
            last_stable=row.last_stable,
            high_watermark=row.high_watermark,
            tail_offsets=int(row.offsets or 0),
            tail_end=row.reached,
            tail_uncommitted_from=row.open_from,
            waits_ms=max(
                0 if row.pending_since is None else row.now - row.pending_since,
                0 if row.created_at is None else row.now - int(row.created_at.timestamp() * 1000),
            ),
        )
        for row in rows
    ]


def _read_by(connection: Connection, asset: str) -> list[tuple[int, int]]:
    d, src = t.committed.c, t.source.c
    rows = connection.execute(
        select(d.source_id, d.partition)
        .join(t.source, src.id == d.source_id)
        .where(d.asset == asset, src.retired_at.is_(None))
    ).all()
    return [(row[0], row[1]) for row in rows]


def _below(connection: Connection, asset: str) -> int:
    """Slices that wait below committed_through: by the index of what is not committed, which is short."""
    p, s, d = t.publication.c, t.slice_.c, t.committed.c
    statement = (
        select(func.count())
        .select_from(t.publication)
        .join(t.slice_, s.id == p.slice_id)
        .join(t.committed, and_(d.asset == p.asset, d.source_id == s.source_id, d.partition == s.partition))
        .where(p.asset == asset, p.state != "committed", s.kind == "normal", s.start_offset < d.committed_through)
    )
    return connection.scalar(statement) or 0


def _waiting(connection: Connection, asset: str) -> Waiting:
    p, s, c = t.publication.c, t.slice_.c, t.claim.c
    mine = and_(p.asset == asset, p.state != "committed", s.kind == "normal")
    joined = t.publication.join(t.slice_, s.id == p.slice_id).join(t.claim, c.publication_id == p.id)
    often = and_(p.state == "planned", c.requests >= ASKED_OFTEN)
    counts = connection.execute(
        select(
            func.count(),
            func.sum(case((p.state == "failed", 1), else_=0)),
            func.sum(case((often, 1), else_=0)),
        )
        .select_from(joined)
        .where(mine)
    ).one()
    reason = connection.scalar(
        select(c.failure)
        .select_from(joined)
        .where(mine, c.failure.is_not(None))
        .order_by(c.failures_alone.desc(), c.attempt.desc())
        .limit(1)
    )
    return Waiting(int(counts[0]), int(counts[1] or 0), int(counts[2] or 0), (reason or "")[:500])


def _recent(connection: Connection, asset: str, target: str | None) -> list[Recent]:
    """The newest committed slices of each partition, and what stands in the tables of them: one statement for each."""
    p, s, d, src = t.publication.c, t.slice_.c, t.committed.c, t.source.c
    places = connection.execute(
        select(d.source_id, d.partition, src.topic, src.incarnation)
        .join(t.source, src.id == d.source_id)
        .where(d.asset == asset, src.retired_at.is_(None))
    ).all()
    named = {(row.source_id, row.partition): row for row in places}
    if not places:
        return []
    newest: list[Any] = []
    for at in range(0, len(places), 100):  # SQLite takes at most 500 SELECTs in one
        parts = [
            select(
                select(p.id, s.source_id, s.partition, p.start_offset, p.end_offset, p.rows_written, p.records_read,
                       p.quarantined)
                .join(t.slice_, s.id == p.slice_id)
                .where(s.source_id == row.source_id, s.partition == row.partition, p.asset == asset,
                       p.state == "committed")
                .order_by(s.start_offset.desc())
                .limit(NEWEST)
                .subquery()
            )
            for row in places[at : at + 100]
        ]  # fmt: skip
        newest += connection.execute(union_all(*parts)).all()
    newest.sort(key=lambda row: row.id, reverse=True)
    wanted: list[int] = []
    rows = 0
    for row in newest:
        rows += row.rows_written
        if wanted and rows > ROWS:
            break
        wanted.append(row.id)
    if target is not None and not (wanted and _by_offsets(connection, target)):
        target = None
    found = _counted(connection, wanted, target) if wanted else dict[int, Any]()
    return [
        Recent(
            key=str(
                SliceKey(
                    named[row.source_id, row.partition].topic,
                    named[row.source_id, row.partition].incarnation,
                    row.partition,
                    row.start_offset,
                    row.end_offset,
                )
            ),
            records_read=found[row.id].records_read if row.id in found else row.records_read,
            quarantined=found[row.id].quarantined if row.id in found else row.quarantined,
            rows_written=found[row.id].rows_written if row.id in found else row.rows_written,
            rows_found=found[row.id].rows if row.id in found and target is not None else None,
            quarantine_found=found[row.id].bad if row.id in found else row.quarantined,
        )
        for row in newest
    ]


def _by_offsets(connection: Connection, target: str) -> bool:
    """Whether rows can be found by their offsets: a table that somebody else made, or changed, has them not."""
    asking = inspect(connection)
    return asking.has_table(target) and {one["name"] for one in asking.get_columns(target)} >= {
        SOURCE,
        PARTITION,
        OFFSET,
    }


def _counted(connection: Connection, ids: Sequence[int], target: str | None) -> dict[int, Any]:
    """Books and tables by one statement: between two, a replay might commit."""
    p, s, q = t.publication.c, t.slice_.c, t.quarantine.c
    bad = select(func.count()).where(q.slice_id == p.slice_id, q.asset == p.asset).scalar_subquery()
    rows: Any = literal(0)
    if target is not None:
        columns: list[ColumnClause[Any]] = [column(name) for name in (SOURCE, PARTITION, OFFSET)]
        o = table(target, *columns).c
        rows = (
            select(func.count())
            .where(o[SOURCE] == s.source_id, o[PARTITION] == s.partition)
            .where(o[OFFSET] >= p.start_offset, o[OFFSET] < p.end_offset)
            .scalar_subquery()
        )
    statement = (
        select(p.id, p.records_read, p.quarantined, p.rows_written, rows.label("rows"), bad.label("bad"))
        .join(t.slice_, s.id == p.slice_id)
        .where(p.id.in_(ids))
    )
    return {row.id: row for row in connection.execute(statement)}
