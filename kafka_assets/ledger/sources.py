"""Sources: one incarnation of one topic, as one stream reads it; met, made, and retired when their topic is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Row, and_, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from kafka_assets.errors import LedgerBusy, TopicChanged
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.index_hints import results_of_slice
from kafka_assets.ledger.publications import batches, lock_rows
from kafka_assets.ledger.windows import close_windows, open_windows


@dataclass(frozen=True)
class Source:
    """One incarnation of one topic, as one stream reads it."""

    id: int
    stream: str
    topic: str
    topic_id: str
    incarnation: int
    founding: bool = True
    """Whether the stream began with it: it is one of the topics that were there at its first tick."""
    retired: bool = False


def known_sources(engine: Engine, streams: Collection[str]) -> dict[str, list[Source]]:
    """Every source of these streams, oldest first."""
    with read(engine) as connection:
        rows = connection.execute(
            select(t.source).where(t.source.c.stream.in_(sorted(streams))).order_by(t.source.c.id)
        ).all()
    return {stream: _sources([row for row in rows if row.stream == stream]) for stream in streams}


def known_partitions(engine: Engine, sources: Collection[int]) -> dict[int, set[int]]:
    """The partitions of which each of these sources has progress."""
    p = t.progress.c
    with read(engine) as connection:
        rows = connection.execute(select(p.source_id, p.partition).where(p.source_id.in_(sorted(sources)))).all()
    found: dict[int, set[int]] = {source: set() for source in sources}
    for source_id, partition in rows:
        found[source_id].add(partition)
    return found


def make_sources(engine: Engine, *, stream: str, topics: Mapping[str, str]) -> dict[str, Source]:
    """The source of each of these topics, by its id; a new id makes a new source, and retires the one before it.

    What the retired one left unread is recorded as lost, so that it is never mistaken for done. Topics that
    are met for the first time are written together: those of a stream's first tick are known by that later.
    """
    try:
        with write(engine) as connection:
            found = _made(connection, stream=stream, topics=topics)
    except IntegrityError as error:
        raise LedgerBusy(
            f"another planner met new topics of stream {stream!r} at the same moment",
            why="two sensors share this ledger, or one evaluation overlaps the next",
            cure="nothing: the next tick goes on from there",
        ) from error
    return found


def source_in(connection: Connection, *, stream: str, topic: str, topic_id: str) -> Source:
    """The source of one topic, made in a transaction of the caller's."""
    return _made(connection, stream=stream, topics={topic: topic_id})[topic]


def require_not_retired(connection: Connection, source: Source) -> None:
    """Lock the source, and refuse one that another planner retired after this one had asked the broker.

    Slices that were planned of it now would be in no list of what was lost, and nobody would ever land them.
    """
    row = select(t.source.c.retired_at).where(t.source.c.id == source.id)
    # Against planners and whoever retires it; on PostgreSQL not against owners, whose new windows refer to it.
    retired_at = connection.scalar(row.with_for_update(key_share=True))
    if retired_at is not None:
        raise TopicChanged(
            f"topic {source.topic!r} was deleted and created again while it was being planned",
            why="another planner has met the new topic already, and recorded what the old one left unread as lost",
            cure="nothing: the next tick plans the new topic",
        )


def share(connection: Connection, sources: Collection[int]) -> None:
    """Lock these sources against planners, not against each other; before anything is inserted that refers to them."""
    for number in sorted(sources):
        row = select(t.source.c.id).where(t.source.c.id == number)
        connection.execute(row.with_for_update(read=True, key_share=True)).all()


def _sources(rows: Sequence[Row[Any]]) -> list[Source]:
    first_seen = min((row.first_seen for row in rows), default=None)
    return [
        Source(
            id=row.id,
            stream=row.stream,
            topic=row.topic,
            topic_id=row.topic_id,
            incarnation=row.incarnation,
            founding=row.incarnation == 1 and row.first_seen == first_seen,
            retired=row.retired_at is not None,
        )
        for row in rows
    ]


def _made(connection: Connection, *, stream: str, topics: Mapping[str, str]) -> dict[str, Source]:
    known = connection.execute(
        select(t.source).where(t.source.c.stream == stream).order_by(t.source.c.id).with_for_update()
    ).all()
    now = connection.scalar(select(now_ts()))
    for topic, topic_id in topics.items():
        _make(connection, [row for row in known if row.topic == topic], stream, topic, topic_id, now=now)
    rows = connection.execute(select(t.source).where(t.source.c.stream == stream).order_by(t.source.c.id)).all()
    return {one.topic: one for one in _sources(rows) if topics.get(one.topic) == one.topic_id}


def _make(
    connection: Connection, known: Sequence[Row[Any]], stream: str, topic: str, topic_id: str, *, now: object
) -> None:
    if any(row.topic_id == topic_id for row in known):
        return
    for row in known:
        if row.retired_at is None:
            _retire(connection, row.id)
    connection.execute(
        insert(t.source).values(
            stream=stream,
            topic=topic,
            topic_id=topic_id,
            incarnation=max((row.incarnation for row in known), default=0) + 1,
            first_seen=now,
        )
    )


def _retire(connection: Connection, source_id: int) -> None:
    """Record what a deleted topic left unread as lost: slices that no asset committed, and the unplanned end."""
    orphans = _uncommitted(connection, source_id)
    p, s = t.publication.c, t.slice_.c
    held: list[int] = []
    for some in batches(orphans):
        held += connection.scalars(select(p.id).where(p.slice_id.in_(some)))
    windows = open_windows(connection, source_id)
    lock_rows(connection, [*held, *(publication for _, publication in windows)], nowait=True)
    # Asked again under the locks: who had one of them until then has committed, and that never becomes lost.
    still = set(_uncommitted(connection, source_id))
    orphans = [number for number in orphans if number in still]
    close_windows(connection, windows)
    reason: Literal["the topic was deleted"] = "the topic was deleted"
    for some in batches(orphans):
        connection.execute(update(t.slice_).where(s.id.in_(some)).values(kind="lost", reason=reason))
    assets = connection.scalars(
        select(t.committed.c.asset).where(t.committed.c.source_id == source_id).distinct()
    ).all()
    mine = select(t.progress).where(t.progress.c.source_id == source_id).order_by(t.progress.c.partition)
    rows = connection.execute(mine.with_for_update()).all()
    # Whoever consumes it live finds that it is not his any more, and commits nothing of the new topic here.
    nobody = {"owner": None, "owner_lease_until": None, "owner_backend": None}
    connection.execute(update(t.progress).where(t.progress.c.source_id == source_id).values(**nobody))
    for row in rows:
        if row.last_stable > row.planned_through:
            first = row.planned_through == row.origin
            connection.execute(
                insert(t.slice_).values(
                    source_id=source_id,
                    partition=row.partition,
                    start_offset=row.planned_through,
                    end_offset=row.last_stable,
                    prior_end=None if first else row.planned_through,
                    is_first=1 if first else None,
                    kind="lost",
                    reason=reason,
                    created_at=now_ts(),
                )
            )
            connection.execute(
                update(t.progress)
                .where(t.progress.c.source_id == source_id, t.progress.c.partition == row.partition)
                .values(planned_through=row.last_stable, pending_since=None)
            )
        for asset in sorted(assets):
            advance(connection, asset=asset, source_id=source_id, partition=row.partition)
    connection.execute(update(t.source).where(t.source.c.id == source_id).values(retired_at=now_ts()))


def _uncommitted(connection: Connection, source_id: int) -> list[int]:
    """The slices of a source that no asset has committed, in order.

    All of them lie above what the foremost asset has committed: only that is looked at, partition by partition.
    """
    g, d, s, p = t.progress.c, t.committed.c, t.slice_.c, t.publication.c
    places = connection.execute(
        select(g.partition, func.coalesce(func.max(d.committed_through), g.origin))
        .outerjoin_from(t.progress, t.committed, and_(d.source_id == g.source_id, d.partition == g.partition))
        .where(g.source_id == source_id)
        .group_by(g.partition, g.origin)
    ).all()
    # Counted slice by slice, by an index: NOT IN made a list of all that was ever committed.
    committed = results_of_slice(
        select(func.count()).where(p.slice_id == s.id, p.state == "committed").select_from(t.publication)
    ).scalar_subquery()
    found: list[int] = []
    for partition, through in places:
        found += connection.scalars(
            select(s.id).where(
                s.source_id == source_id,
                s.partition == partition,
                s.start_offset >= through,
                s.kind == "normal",
                committed == 0,
            )
        )
    return sorted(found)
