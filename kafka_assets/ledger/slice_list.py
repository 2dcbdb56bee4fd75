"""Slices as an operator asks for them: of a stream's topics, by place, state or the time of their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import ge, gt, lt
from typing import Any

from sqlalchemy import Connection, Engine, Row, and_, case, func, select

from kafka_assets.errors import UsageError
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.index_hints import by_start
from kafka_assets.slices import SliceKey

STATES = ("planned", "committed", "failed", "lost", "skipped", "open")


@dataclass(frozen=True)
class Listed:
    """A slice, and how one asset stands to it."""

    id: int
    key: SliceKey
    state: str
    """The publication's; or lost, skipped, open; or planned, where the asset has no publication of it yet."""
    reason: str | None
    """Why it is lost or skipped, who grows it, or why the last attempt failed."""
    run_id: str | None
    committed_at: datetime | None
    records_read: int | None
    landed: int | None
    quarantined: int | None


@dataclass(frozen=True)
class Wanted:
    """Which slices: those that meet [start, end) of a partition, or whose records' times meet [since, until)."""

    topic: str | None = None
    partition: int | None = None
    start: int | None = None
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def by_time(self) -> bool:
        return self.since_ms is not None or self.until_ms is not None


def list_slices(
    engine: Engine,
    *,
    stream: str,
    asset: str,
    wanted: Wanted | None = None,
    state: str | None = None,
    limit: int | None = None,
    gone: bool = False,
) -> list[Listed]:
    """Slices of topics that the stream reads now, with `gone` also of those that it read; in order.

    With a limit the newest of them, which are found without reading the others. By time means by the records' own
    timestamps, as they were when the slice was committed: one that is not committed has none, and is not found so;
    and all slices of the topics are read for it.
    """
    if state is not None and state not in STATES:
        raise UsageError(f"there is no state {state!r}", cure=f"choose one of {', '.join(STATES)}")
    wanted = wanted or Wanted()
    found: list[Row[Any]] = []
    with read(engine) as connection:
        if state in ("planned", "failed"):
            waiting = _slices(asset).where(*_of(stream, wanted, gone=gone), *_waiting(asset, state), *_meeting(wanted))
            found += connection.execute(waiting.order_by(t.slice_.c.id.desc()).limit(limit))
        for place in _places(connection, stream, asset, wanted, gone=gone) if state != "failed" else ():
            # Partition by partition, from its newest slice backwards: only so every database reads no more than it has
            # to say.
            chosen = _slices(asset).where(*_at(place, wanted), *_in_state(state, place, asset), *_meeting(wanted))
            chosen = chosen.order_by(t.slice_.c.start_offset.desc()).limit(limit)
            found += connection.execute(by_start(chosen) if state is None else chosen)
    newest = sorted(found, key=lambda row: row.id, reverse=True)[:limit]
    return sorted(map(_listed, newest), key=lambda one: one.key)


def find_slices(engine: Engine, *, stream: str, asset: str, keys: Sequence[SliceKey]) -> list[Listed]:
    """The slices with these keys, in order; UsageError for one that the stream does not have."""
    s, src = t.slice_.c, t.source.c
    found: list[Listed] = []
    with read(engine) as connection:
        for key in sorted(set(keys)):
            place = and_(
                src.topic == key.topic,
                src.incarnation == key.incarnation,
                s.partition == key.partition,
                s.start_offset == key.start,
                s.end_offset == key.end,
            )
            row = connection.execute(_slices(asset).where(src.stream == stream, place)).first()
            if row is None:
                raise UsageError(
                    f"the stream {stream!r} has no slice {key}",
                    why="slices come from planning, and keep their bounds",
                    cure=f"`kafka-assets slices {stream}` lists them",
                )
            found.append(_listed(row))
    return found


def _slices(asset: str) -> Any:
    s, src, p, c, g = t.slice_.c, t.source.c, t.publication.c, t.claim.c, t.progress.c
    return (
        select(
            s.id, src.topic, src.incarnation, s.partition, s.start_offset, s.end_offset, s.kind, s.is_open, s.reason,
            p.state, p.run_id, p.committed_at, p.records_read, p.landed, p.quarantined, c.failure, g.owner,
        )
        .join_from(t.slice_, t.source, s.source_id == src.id)
        .join(t.progress, and_(g.source_id == s.source_id, g.partition == s.partition))
        .outerjoin(t.publication, and_(p.slice_id == s.id, p.asset == asset))
        .outerjoin(t.claim, c.publication_id == p.id)
    )  # fmt: skip


def _of(stream: str, wanted: Wanted, *, gone: bool) -> list[Any]:
    src, g = t.source.c, t.progress.c
    found: list[Any] = [src.stream == stream, *([] if gone else [src.retired_at.is_(None)])]
    found += [] if wanted.topic is None else [src.topic == wanted.topic]
    return found + ([] if wanted.partition is None else [g.partition == wanted.partition])


def _places(connection: Connection, stream: str, asset: str, wanted: Wanted, *, gone: bool) -> Sequence[Row[Any]]:
    """The partitions that may have such slices: where planning ends, and above what the asset may lack one."""
    src, g, d, m = t.source.c, t.progress.c, t.committed.c, t.published.c
    done, seen = func.coalesce(d.committed_through, g.origin), func.coalesce(m.published_through, 0)
    return connection.execute(
        select(
            g.source_id, g.partition, g.planned_through,
            # The mark is moved only where much lies above what is committed, and else stays far behind that.
            case((seen > done, seen), else_=done).label("published"),
        )
        .join_from(t.progress, t.source, src.id == g.source_id)
        .outerjoin(t.committed, and_(d.asset == asset, d.source_id == g.source_id, d.partition == g.partition))
        .outerjoin(t.published, and_(m.asset == asset, m.source_id == g.source_id, m.partition == g.partition))
        .where(*_of(stream, wanted, gone=gone))
    ).all()  # fmt: skip


def _at(place: Row[Any], wanted: Wanted) -> list[Any]:
    """Of this partition, from the slice on that `wanted` begins in."""
    s = t.slice_.c
    mine = [s.source_id == place.source_id, s.partition == place.partition]
    if wanted.start is None:
        return mine
    # Slices are a chain: the first that can reach beyond it is the last that begins at or below it.
    o = t.slice_.alias("before").c
    before = (o.source_id == place.source_id, o.partition == place.partition, o.start_offset <= wanted.start)
    first = select(func.max(o.start_offset)).where(*before).scalar_subquery()
    return [*mine, s.start_offset >= func.coalesce(first, 0)]


def _meeting(wanted: Wanted) -> list[Any]:
    s, p = t.slice_.c, t.publication.c
    found: list[Any] = []
    for value, column, meets in (
        (wanted.start, s.end_offset, gt),
        (wanted.end, s.start_offset, lt),
        (wanted.since_ms, p.last_timestamp, ge),
        (wanted.until_ms, p.first_timestamp, lt),
    ):
        if value is not None:
            found.append(meets(column, value))
    return found


def _waiting(asset: str, state: str) -> list[Any]:
    """By the index of what is not committed."""
    s, p = t.slice_.c, t.publication.c
    waits = [p.state == state, p.state != "committed", p.asset == asset]
    return [*waits, s.kind == "normal", s.is_open.is_(False)]


def _in_state(state: str | None, place: Row[Any], asset: str) -> list[Any]:
    s, p = t.slice_.c, t.publication.c
    normal = [s.kind == "normal", s.is_open.is_(False)]
    if state is None:
        return []
    if state in ("lost", "skipped"):
        return [s.kind == state, s.kind != "normal"]  # said for the index, which has only those
    if state == "open":
        return [s.is_open, s.end_offset == place.planned_through]
    if state == "committed":
        return [*normal, p.state == "committed"]
    # Planned, and the asset has no publication yet: asked slice by slice, as in `committed.uncommitted_by`.
    o = t.publication.alias("its").c
    its = select(o.id).where(o.slice_id == s.id, o.asset == asset).scalar_subquery()
    return [*normal, s.start_offset >= place.published, its.is_(None)]


def _listed(row: Row[Any]) -> Listed:
    state = row.kind if row.kind != "normal" else "open" if row.is_open else row.state or "planned"
    done = state in ("committed", "open")
    grown = f"{row.owner or 'nobody'} grows it" if state == "open" else None
    return Listed(
        id=row.id,
        key=SliceKey(row.topic, row.incarnation, row.partition, row.start_offset, row.end_offset),
        state=state,
        reason=row.reason or grown or (None if done else row.failure),
        run_id=row.run_id,
        committed_at=row.committed_at,
        records_read=row.records_read if done else None,
        landed=row.landed if done else None,
        quarantined=row.quarantined if done else None,
    )
