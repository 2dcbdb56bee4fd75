"""Planning on the ledger: what is known of a topic, and new slices by compare-and-set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, Engine, case, func, insert, literal, select, update

from kafka_assets.errors import TopicChanged
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.constructs import now_ms, now_ts
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.publications import lock_rows
from kafka_assets.plan import NewSlice, Offsets, Progress
from kafka_assets.slices import SliceKey


@dataclass(frozen=True)
class Source:
    """One incarnation of one topic, as one stream reads it."""

    id: int
    stream: str
    topic: str
    topic_id: str
    incarnation: int


def resolve_source(engine: Engine, *, stream: str, topic: str, topic_id: str) -> Source:
    """The source of this topic id; a new id makes a new source, and retires the one before it.

    What the retired one left unread is recorded as lost, so that it is never mistaken for done.
    """
    with read(engine) as connection:
        found = connection.execute(
            select(t.source.c.id, t.source.c.incarnation).where(
                t.source.c.stream == stream, t.source.c.topic == topic, t.source.c.topic_id == topic_id
            )
        ).first()
    if found is not None:
        return Source(found.id, stream, topic, topic_id, found.incarnation)
    with write(engine) as connection:
        known = connection.execute(
            select(t.source)
            .where(t.source.c.stream == stream, t.source.c.topic == topic)
            .order_by(t.source.c.incarnation)
            .with_for_update()
        ).all()
        for row in known:
            if row.topic_id == topic_id:
                return Source(row.id, stream, topic, topic_id, row.incarnation)
        for row in known:
            if row.retired_at is None:
                _retire(connection, row.id)
        incarnation = known[-1].incarnation + 1 if known else 1
        made = connection.execute(
            insert(t.source).values(
                stream=stream, topic=topic, topic_id=topic_id, incarnation=incarnation, first_seen=now_ts()
            )
        )
        return Source(_inserted(made.inserted_primary_key), stream, topic, topic_id, incarnation)


@dataclass(frozen=True)
class Fresh:
    """Partitions that the ledger has not seen, and whether it knows nothing of the whole stream's topic yet."""

    partitions: tuple[int, ...]
    whole_stream: bool

    def __bool__(self) -> bool:
        return bool(self.partitions)


def unknown_partitions(engine: Engine, source: Source, offsets: Mapping[int, Offsets]) -> Fresh:
    """Which of these partitions have no progress yet."""
    p = t.progress
    with read(engine) as connection:
        seen = set(connection.scalars(select(p.c.partition).where(p.c.source_id == source.id)))
    return Fresh(
        partitions=tuple(sorted(number for number in offsets if number not in seen)),
        whole_stream=not seen and source.incarnation == 1,
    )


def observe(
    engine: Engine,
    source: Source,
    *,
    offsets: Mapping[int, Offsets],
    origins: Mapping[int, int],
    asset: str,
) -> dict[int, Progress]:
    """Write down what the broker says now, and return where planning stands.

    A partition that the ledger has not seen begins at its origin; its progress and the asset's
    committed row are inserted here, so that claiming and publishing never insert.
    """
    p = t.progress
    with write(engine) as connection:
        _require_not_retired(connection, source)
        seen = set(connection.scalars(select(p.c.partition).where(p.c.source_id == source.id)))
        for partition, origin in origins.items():
            if partition in offsets and partition not in seen:
                connection.execute(
                    insert(p).values(
                        source_id=source.id,
                        partition=partition,
                        origin=origin,
                        planned_through=origin,
                        log_start=0,
                        last_stable=0,
                        high_watermark=0,
                        observed_at=now_ts(),
                    )
                )
        for partition, found in offsets.items():
            waiting = literal(found.last_stable) > p.c.planned_through
            connection.execute(
                update(p)
                .where(p.c.source_id == source.id, p.c.partition == partition)
                .values(
                    log_start=found.log_start,
                    last_stable=found.last_stable,
                    high_watermark=found.high_watermark,
                    observed_at=now_ts(),
                    pending_since=case((waiting, func.coalesce(p.c.pending_since, now_ms())), else_=None),
                )
            )
        _add_committed_rows(connection, source.id, asset=asset)
        rows = connection.execute(
            select(p.c.partition, p.c.planned_through, now_ms() - p.c.pending_since).where(p.c.source_id == source.id)
        ).all()
    return {partition: Progress(planned_through=through, pending_ms=waited) for partition, through, waited in rows}


def commit_plan(
    engine: Engine, source: Source, partition: int, *, expected: int, slices: Sequence[NewSlice], asset: str
) -> list[SliceKey] | None:
    """Insert the slices of one partition, in one transaction that first moves `planned_through` from `expected`.

    None when another planner was faster: its slices stand, and nothing of these was written.
    """
    p = t.progress
    end = slices[-1].end
    with write(engine) as connection:
        _require_not_retired(connection, source)
        moved = connection.execute(
            update(p)
            .where(
                p.c.source_id == source.id,
                p.c.partition == partition,
                p.c.planned_through == expected,
                # A live consumer that holds the partition plans for itself.
                (p.c.owner_lease_until.is_(None)) | (p.c.owner_lease_until < now_ms()),
            )
            .values(planned_through=end, pending_since=None)
        )
        if moved.rowcount != 1:
            connection.rollback()
            return None
        origin = connection.scalar(select(p.c.origin).where(p.c.source_id == source.id, p.c.partition == partition))
        for new in slices:
            _insert_slice(connection, source, partition, new, asset=asset, first=new.start == origin)
        if any(new.kind != "normal" for new in slices):
            advance(connection, asset=asset, source_id=source.id, partition=partition)
    return [
        SliceKey(topic=source.topic, incarnation=source.incarnation, partition=partition, start=new.start, end=new.end)
        for new in slices
        if new.kind == "normal"
    ]


def _require_not_retired(connection: Connection, source: Source) -> None:
    """Lock the source, and refuse one that another planner retired after this one had asked the broker.

    Slices that were planned of it now would be in no list of what was lost, and nobody would ever land them.
    """
    retired_at = connection.scalar(select(t.source.c.retired_at).where(t.source.c.id == source.id).with_for_update())
    if retired_at is not None:
        raise TopicChanged(
            f"topic {source.topic!r} was deleted and created again while it was being planned",
            why="another planner has met the new topic already, and recorded what the old one left unread as lost",
            cure="nothing: the next tick plans the new topic",
        )


def _insert_slice(
    connection: Connection, source: Source, partition: int, new: NewSlice, *, asset: str, first: bool
) -> None:
    made = connection.execute(
        insert(t.slice_).values(
            source_id=source.id,
            partition=partition,
            start_offset=new.start,
            end_offset=new.end,
            prior_end=None if first else new.start,
            is_first=1 if first else None,
            kind=new.kind,
            reason=new.reason,
            created_at=now_ts(),
        )
    )
    slice_id = _inserted(made.inserted_primary_key)
    published = connection.execute(
        insert(t.publication).values(
            slice_id=slice_id, start_offset=new.start, end_offset=new.end, asset=asset, state="planned"
        )
    )
    connection.execute(insert(t.claim).values(publication_id=_inserted(published.inserted_primary_key)))


def _add_committed_rows(connection: Connection, source_id: int, *, asset: str) -> None:
    p, done = t.progress, t.committed
    missing = select(literal(asset), p.c.source_id, p.c.partition, p.c.origin, now_ts()).where(
        p.c.source_id == source_id,
        ~select(literal(1))
        .where(done.c.asset == asset, done.c.source_id == p.c.source_id, done.c.partition == p.c.partition)
        .exists(),
    )
    connection.execute(
        insert(done).from_select(["asset", "source_id", "partition", "committed_through", "updated_at"], missing)
    )


def _retire(connection: Connection, source_id: int) -> None:
    """Record what a deleted topic left unread as lost: slices that no asset committed, and the unplanned end."""
    committed = select(t.publication.c.slice_id).where(t.publication.c.state == "committed")
    orphans = connection.scalars(
        select(t.slice_.c.id)
        .where(t.slice_.c.source_id == source_id, t.slice_.c.kind == "normal", t.slice_.c.id.not_in(committed))
        .order_by(t.slice_.c.id)
    ).all()
    held = connection.scalars(select(t.publication.c.id).where(t.publication.c.slice_id.in_(orphans))).all()
    lock_rows(connection, held, nowait=True)
    reason: Literal["the topic was deleted"] = "the topic was deleted"
    connection.execute(update(t.slice_).where(t.slice_.c.id.in_(orphans)).values(kind="lost", reason=reason))
    assets = connection.scalars(
        select(t.committed.c.asset).where(t.committed.c.source_id == source_id).distinct()
    ).all()
    rows = connection.execute(select(t.progress).where(t.progress.c.source_id == source_id)).all()
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


def _inserted(key: object) -> int:
    assert key is not None
    return int(key[0])  # type: ignore[index]
