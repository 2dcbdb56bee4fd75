"""Skipping: slices that nobody has landed are left out for ever, with a reason, and what is not planned yet."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Engine, select, update

from kafka_assets.errors import LeaseHeld, SliceRefused, TopicChanged
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.committed import advance_all
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.index_hints import results_of_slice
from kafka_assets.ledger.planning import commit_plan
from kafka_assets.ledger.publications import lock_rows
from kafka_assets.ledger.retries import retried
from kafka_assets.ledger.slice_list import Listed
from kafka_assets.ledger.sources import Source, known_sources
from kafka_assets.ledger.windows import closed_when
from kafka_assets.plan import NewSlice
from kafka_assets.slices import SliceKey


def skip_slices(engine: Engine, slices: Sequence[Listed], *, reason: str) -> None:
    """Make these slices skipped, all or none, for every asset that shares them.

    Decided under the lock of their publications, as every result is: what an asset has committed is refused,
    and so is what somebody is publishing now. A run that holds one of them finds it skipped, and commits nothing.
    """
    retried(lambda: _skip(engine, sorted(slices, key=lambda one: one.id), reason))


def skip_ahead(
    engine: Engine, source: Source, partition: int, *, expected: int, new: Sequence[NewSlice], asset: str
) -> list[SliceKey]:
    """Plan slices from `expected` on of which the last is skipped; by compare-and-set, as the sensor plans."""
    planned = retried(lambda: commit_plan(engine, source, partition, expected=expected, slices=new, asset=asset))
    if planned is None:
        owner = _owner(engine, source.id, partition)
        raise LeaseHeld(
            f"partition {partition} of the topic {source.topic!r} was planned by somebody else at this moment",
            why=f"the live consumer {owner} holds it" if owner else "a sensor was faster",
            cure="try again; if a live consumer holds it, stop that first",
        )
    return planned


def current_sources(engine: Engine, stream: str) -> dict[str, Source]:
    """The sources that the stream reads now, by topic."""
    return {one.topic: one for one in known_sources(engine, [stream])[stream] if not one.retired}


def _skip(engine: Engine, slices: Sequence[Listed], reason: str) -> None:
    ids = {one.id: one.key for one in slices}
    places: set[tuple[int, int]] = set()
    with write(engine) as connection:
        s, p = t.slice_.c, t.publication.c
        sources = connection.scalars(select(s.source_id).where(s.id.in_(ids)).distinct()).all()
        for number in sorted(sources):
            # Whoever gives a downstream asset its publications waits here: none appears unlocked meanwhile.
            _lock_source(connection, number)
        held = connection.scalars(select(p.id).where(p.slice_id.in_(ids))).all()
        lock_rows(connection, held, nowait=True)
        for number, key in ids.items():
            places.add(_refuse_done(connection, number, key))
            connection.execute(update(t.slice_).where(s.id == number).values(kind="skipped", reason=reason))
        connection.execute(
            # What was given up is nobody's trouble any more.
            update(t.publication).where(p.id.in_(held), p.state == "failed").values(state="planned")
        )
        for source_id, partition in sorted(places):
            advance_all(connection, source_id=source_id, partition=partition)


def _lock_source(connection: Connection, source_id: int) -> None:
    row = connection.execute(
        select(t.source.c.topic, t.source.c.retired_at).where(t.source.c.id == source_id).with_for_update()
    ).one()
    if row.retired_at is not None:
        raise TopicChanged(
            f"the topic {row.topic!r} of these slices was deleted",
            why="what it left unread is recorded as lost already",
            cure="nothing: there is nothing left to skip",
        )


def _refuse_done(connection: Connection, number: int, key: SliceKey) -> tuple[int, int]:
    """Read the slice again under the lock; its place."""
    s, p = t.slice_.c, t.publication.c
    row = connection.execute(
        select(s.source_id, s.partition, s.kind, s.is_open, s.end_offset).where(s.id == number).with_for_update()
    ).one()
    if row.kind != "normal" or row.is_open or row.end_offset != key.end:
        raise SliceRefused(
            f"slice {key} cannot be skipped",
            why="a live consumer is growing it" if row.is_open else f"it is {row.kind} already",
            cure=f"leave it out ({closed_when(connection, number)})" if row.is_open else "leave it out",
        )
    results = select(p.asset).where(p.slice_id == number, p.state == "committed")
    owner = connection.scalar(results_of_slice(results).limit(1))
    if owner is not None:
        raise SliceRefused(
            f"slice {key} cannot be skipped",
            why=f"{owner!r} has committed it, and what is committed stays so",
            cure="leave it out",
        )
    return row.source_id, row.partition


def _owner(engine: Engine, source_id: int, partition: int) -> str | None:
    g = t.progress.c
    with read(engine) as connection:
        return connection.scalar(
            select(g.owner).where(g.source_id == source_id, g.partition == partition, g.owner_lease_until > now_ms())
        )
