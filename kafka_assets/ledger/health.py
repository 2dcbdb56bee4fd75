"""What the ledger knows of a stream's health, in queries whose cost does not grow with history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    Select,
    and_,
    case,
    func,
    inspect,
    literal,
    select,
    text,
)  # fmt: skip

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.behind import LATELY, skipped_lately
from kafka_assets.ledger.committed import uncommitted_by
from kafka_assets.ledger.constructs import now_ms, target_clause
from kafka_assets.ledger.engine import read, snapshot
from kafka_assets.ledger.gone import not_gone
from kafka_assets.ledger.index_hints import bad_of_slice, by_start
from kafka_assets.ledger.publications import each
from kafka_assets.ledger.requests import waits
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.slices import SliceKey
from kafka_assets.streams import table_parts
from kafka_assets.verdicts import ASKED_OFTEN, Place, Recent, Waiting

NEWEST = 25
"""So many of each partition's newest slices are looked at."""
LOWEST = 100
"""Of what lies above committed_through, so many slices are looked at: one that was given up long ago has all of later
history above it."""
ROWS = 200_000
"""Slices are counted in their table, newest first, until they have so many rows."""

_Partition = tuple[int, int]
"""A source's id, and a partition."""


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
    with snapshot(engine) as connection:
        return Health(
            places=_places(connection, asset),
            below=_below(connection, asset),
            recent=_recent(connection, asset, target if counted else None),
            waiting=_waiting(connection, asset),
            skipped=skipped_lately(connection, _read_by(connection, asset)),
            now_ms=connection.scalar(select(now_ms())) or 0,
        )


def places_of(engine: Engine, *, asset: str) -> list[Place]:
    """Each partition of the topics that an asset reads now."""
    with snapshot(engine) as connection:
        return _places(connection, asset)


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
    g, d, src = t.progress.c, t.committed.c, t.source.c
    rows = connection.execute(
        select(
            src.topic, src.topic_id, g.source_id, g.partition, g.planned_through, d.committed_through, g.log_start,
            g.last_stable, g.high_watermark, g.pending_since, g.observed_at, d.updated_at, now_ms().label("now"),
            case((g.owner_lease_until > now_ms(), 1), else_=0).label("owned"),
        )
        .join_from(t.committed, t.progress, and_(d.source_id == g.source_id, d.partition == g.partition))
        .join(t.source, src.id == g.source_id)
        .where(d.asset == asset, src.retired_at.is_(None))
        .order_by(src.topic, g.partition)
    ).all()  # fmt: skip
    through = {(row.source_id, row.partition): row.committed_through for row in rows}
    tails = _tails(connection, asset, through)
    found: list[Place] = []
    for row in rows:
        tail = tails[row.source_id, row.partition]
        looked, moved = (max(0, row.now - _ms(at)) for at in (row.observed_at, max(row.observed_at, row.updated_at)))
        found.append(
            Place(
                topic=row.topic,
                partition=row.partition,
                planned_through=row.planned_through,
                committed_through=row.committed_through,
                log_start=row.log_start,
                last_stable=row.last_stable,
                high_watermark=row.high_watermark,
                tail_offsets=int(tail.offsets or 0),
                tail_through=tail.through,
                tail_end=tail.reached,
                tail_uncommitted_from=tail.open_from,
                waits_ms=max(
                    0 if row.pending_since is None else row.now - row.pending_since,
                    0 if tail.created_at is None else row.now - _ms(tail.created_at),
                ),
                topic_id=row.topic_id,
                looked_ms=0 if row.owned else looked,
                moved_ms=moved,
            )
        )
    return found


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _tails(connection: Connection, asset: str, through: Mapping[_Partition, int]) -> dict[_Partition, Row[Any]]:
    """Of each partition what lies above committed_through: so many slices of it, and where the newest one ends.

    Each partition by a SELECT of its own, with its offset as a value: no planner knows how little lies above a column.
    """
    s = t.slice_.c

    def tail(place: _Partition, above: int) -> Select[Any]:
        mine = and_(s.source_id == place[0], s.partition == place[1], s.start_offset >= above)
        open_ = and_(s.kind == "normal", uncommitted_by(asset))
        lowest = by_start(
            select(
                s.start_offset,
                s.end_offset,
                case((open_, s.start_offset)).label("open_from"),
                case((open_, s.created_at)).label("created_at"),
            )
            .where(mine)
            .order_by(s.start_offset)
            .limit(LOWEST)
        ).subquery()
        last = select(s.end_offset).where(mine).order_by(s.start_offset.desc()).limit(1)
        newest = by_start(last).scalar_subquery()
        c = lowest.c
        return select(
            literal(place[0]).label("source_id"),
            literal(place[1]).label("partition"),
            func.sum(c.end_offset - c.start_offset).label("offsets"),
            func.max(c.end_offset).label("through"),
            newest.label("reached"),
            func.min(c.open_from).label("open_from"),
            func.min(c.created_at).label("created_at"),
        )

    rows = each(connection, [tail(place, above) for place, above in sorted(through.items())])
    return {(row.source_id, row.partition): row for row in rows}


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
    through = {
        (row.source_id, row.partition): row.committed_through
        for row in connection.execute(select(d.source_id, d.partition, d.committed_through).where(d.asset == asset))
    }
    waiting = connection.execute(
        select(s.source_id, s.partition, s.start_offset)
        .join_from(t.publication, t.slice_, s.id == p.slice_id)
        .where(*waits(asset), s.kind == "normal")
    )
    return sum(start < through.get((source_id, partition), 0) for source_id, partition, start in waiting)


def _waiting(connection: Connection, asset: str) -> Waiting:
    p, s, c = t.publication.c, t.slice_.c, t.claim.c
    mine = and_(*waits(asset), s.kind == "normal", not_gone())
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
    stalled = connection.scalar(select(t.stall.c.failure).where(t.stall.c.asset == asset))
    return Waiting(int(counts[0]), int(counts[1] or 0), int(counts[2] or 0), (reason or "")[:500], stalled)


def _recent(connection: Connection, asset: str, target: str | None) -> list[Recent]:
    """The newest committed slices of each partition, and what stands in the tables of them: one statement for each."""
    d, src = t.committed.c, t.source.c
    places = connection.execute(
        select(d.source_id, d.partition, d.committed_through, src.topic, src.incarnation)
        .join(t.source, src.id == d.source_id)
        .where(d.asset == asset, src.retired_at.is_(None))
    ).all()
    named = {(row.source_id, row.partition): row for row in places}
    newest = _newest(connection, asset, {place: row.committed_through for place, row in named.items()})
    if not newest:
        return []
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


def _newest(connection: Connection, asset: str, through: Mapping[_Partition, int]) -> list[Row[Any]]:
    """The newest committed slices of each partition: of its newest slices, else of those below committed_through.

    Where an asset was declared late, or the newest slices wait, all that lies between is left out: it may be much.
    """
    lately = {(row.source_id, row.partition): row.first for row in each(connection, [_lately(one) for one in through])}
    found = each(connection, [_committed(asset, place, above=first) for place, first in sorted(lately.items())])
    without = through.keys() - {(row.source_id, row.partition) for row in found}
    return found + each(connection, [_committed(asset, place, below=through[place]) for place in sorted(without)])


def _lately(place: _Partition) -> Select[Any]:
    """Where a partition's newest slices begin. Asked first, for its value: MariaDB and MySQL seek by no subquery, and
    read down to the first slice of all where few of the newest are committed."""
    o = t.slice_.c
    slices = select(o.start_offset).where(o.source_id == place[0], o.partition == place[1])
    first = by_start(slices.order_by(o.start_offset.desc()).limit(1).offset(LATELY)).scalar_subquery()
    return select(
        literal(place[0]).label("source_id"),
        literal(place[1]).label("partition"),
        func.coalesce(first, 0).label("first"),
    )


def _committed(asset: str, place: _Partition, *, above: int | None = None, below: int | None = None) -> Select[Any]:
    p, s = t.publication.c, t.slice_.c
    mine = and_(s.source_id == place[0], s.partition == place[1])
    statement = (
        select(p.id, s.source_id, s.partition, p.start_offset, p.end_offset, p.rows_written, p.records_read,
               p.quarantined)
        .join_from(t.slice_, t.publication, s.id == p.slice_id)
        .where(mine, p.asset == asset, p.state == "committed")
        .order_by(s.start_offset.desc())
        .limit(NEWEST)
    )  # fmt: skip
    if above is not None:
        statement = statement.where(s.start_offset >= above)
    return by_start(statement if below is None else statement.where(s.start_offset < below))


def _by_offsets(connection: Connection, target: str) -> bool:
    """Whether rows can be found by their offsets: a table that somebody else made, or changed, has them not."""
    asking = inspect(connection)
    schema, table = table_parts(target)
    if not asking.has_table(table, schema):
        return False
    return {one["name"] for one in asking.get_columns(table, schema)} >= {SOURCE, PARTITION, OFFSET}


def _counted(connection: Connection, ids: Sequence[int], target: str | None) -> dict[int, Any]:
    """Books and tables by one statement: between two, a replay might commit."""
    p, s, q = t.publication.c, t.slice_.c, t.quarantine.c
    bad = bad_of_slice(
        select(func.count()).select_from(t.quarantine).where(q.slice_id == p.slice_id, q.asset == p.asset)
    ).scalar_subquery()
    rows: Any = literal(0)
    if target is not None:
        o = target_clause(target, SOURCE, PARTITION, OFFSET).c
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
