"""Planning on the ledger: what is known of a topic, and new slices by compare-and-set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Engine, insert, literal, select, update

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.committed import advance_all
from kafka_assets.ledger.constructs import now_ms, now_ts
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.observing import looked_at, progress_in, standing, write_down
from kafka_assets.ledger.publications import lock_rows
from kafka_assets.ledger.sources import Source, make_sources, require_not_retired
from kafka_assets.ledger.windows import close_windows, tail_of
from kafka_assets.plan import NewSlice, Offsets, Progress
from kafka_assets.slices import SliceKey


def resolve_source(engine: Engine, *, stream: str, topic: str, topic_id: str) -> Source:
    """The source of this topic id; see `make_sources`."""
    return make_sources(engine, stream=stream, topics={topic: topic_id})[topic]


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
        require_not_retired(connection, source)
        seen = _last_looks(connection, source)
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
        here = [place for place in _unlocked(connection, source) if place in offsets]
        if here:
            write_down(connection, [(source.id, place, offsets[place], seen.get(place)) for place in here])
        _add_committed_rows(connection, source.id, asset=asset)
        rows = connection.execute(standing([source.id])).all()
    return {row.partition: progress_in(row) for row in rows}


def _unlocked(connection: Connection, source: Source) -> list[int]:
    """The source's partitions, but for those that a live consumer is committing at this moment.

    One after the other they would be waited for, and what is locked already would keep the others waiting.
    """
    p = t.progress.c
    mine = select(p.partition).where(p.source_id == source.id).order_by(p.partition)
    return list(connection.scalars(mine.with_for_update(key_share=True, skip_locked=True)))


def _last_looks(connection: Connection, source: Source) -> dict[int, int]:
    """By partition when the broker was last asked, in ms on the database's clock; not longer ago than counts."""
    p = t.progress
    rows = connection.execute(select(p.c.partition, p.c.observed_at, now_ms()).where(p.c.source_id == source.id)).all()
    return {partition: looked_at(observed, now) for partition, observed, now in rows}


def commit_plan(
    engine: Engine,
    source: Source,
    partition: int,
    *,
    expected: int,
    slices: Sequence[NewSlice],
    asset: str,
    owner: str | None = None,
) -> list[SliceKey] | None:
    """Insert the slices of one partition, in one transaction that first moves `planned_through` from `expected`.

    None when another planner was faster: its slices stand, and nothing of these was written. A live consumer
    plans what it does not read, lost or skipped, as the `owner` of the partition.
    """
    p = t.progress
    end = slices[-1].end
    with write(engine) as connection:
        require_not_retired(connection, source)
        # Nothing follows an open window; its publication is locked before planned_through, as its owner does.
        window = tail_of(connection, (source.id, partition))
        lock_rows(connection, [publication for _, publication in window])
        moved = connection.execute(
            update(p)
            .where(
                p.c.source_id == source.id,
                p.c.partition == partition,
                p.c.planned_through == expected,
                # A live consumer that holds the partition plans for itself.
                (p.c.owner_lease_until.is_(None) | (p.c.owner_lease_until < now_ms()))
                if owner is None
                else p.c.owner == owner,
            )
            .values(planned_through=end, pending_since=None)
        )
        if moved.rowcount != 1:
            connection.rollback()
            return None
        close_windows(connection, window)
        origin = connection.scalar(select(p.c.origin).where(p.c.source_id == source.id, p.c.partition == partition))
        for new in slices:
            _insert_slice(connection, source, partition, new, asset=asset, first=new.start == origin)
        if any(new.kind != "normal" for new in slices):
            advance_all(connection, source_id=source.id, partition=partition)
    return [
        SliceKey(topic=source.topic, incarnation=source.incarnation, partition=partition, start=new.start, end=new.end)
        for new in slices
        if new.kind == "normal"
    ]


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
    if new.kind != "normal":
        return  # nobody will land it; and where much is left out, what is not committed must stay a short list
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


def _inserted(key: object) -> int:
    assert key is not None
    return int(key[0])  # type: ignore[index]
