"""Writing down what the broker says of the topics that the ledger knows: for all of them at once."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Engine, Row, Select, bindparam, case, func, select, update

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ms, now_ts
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.publications import batches
from kafka_assets.ledger.sources import Source
from kafka_assets.plan import Offsets, Progress

LAST_LOOK_MS = 60_000
"""After a longer pause, new records are taken to wait for so long and not for all of it: nobody saw them come."""


@dataclass(frozen=True)
class Looked:
    """What the broker says now of a source, and the asset that lands it."""

    source: Source
    asset: str
    offsets: Mapping[int, Offsets]


@dataclass
class Observed:
    """Sources of which it is written down what the broker says now, and nothing but slices is left to do."""

    quiet: set[int] = field(default_factory=set[int])
    """Of which there is nothing new, nothing to plan and nothing that waits to be planned."""
    progress: dict[int, dict[int, Progress]] = field(default_factory=dict[int, dict[int, Progress]])
    """Of the others where planning stands, as `observe` returns it."""
    read_at: dict[int, float] = field(default_factory=dict[int, float])
    """When that was, on the monotonic clock."""

    def progress_of(self, source_id: int) -> dict[int, Progress] | None:
        """Where planning stands of a source that was observed: what waited then has waited since, too."""
        if source_id not in self.progress:
            return None
        since = int((time.monotonic() - self.read_at[source_id]) * 1000)
        return {
            partition: at if at.pending_ms is None else replace(at, pending_ms=at.pending_ms + since)
            for partition, at in self.progress[source_id].items()
        }


def observe_known(engine: Engine, looks: Sequence[Looked]) -> Observed:
    """What `observe` does, for all sources at once of which every partition is known, and every committed row there.

    By one transaction for all of them: a hundred topics would be as many in each tick. It waits for no lock. What a
    live consumer lands, or somebody has locked, and what was retired meanwhile is left to `observe`.
    """
    g, d = t.progress.c, t.committed.c
    known: dict[tuple[int, str], dict[int, Row[Any]]] = {}
    with read(engine) as connection:
        for some in batches(looks):
            rows = connection.execute(
                select(
                    d.asset, g.source_id, g.partition, g.planned_through, g.log_start, g.last_stable, g.high_watermark,
                    g.pending_since, g.owner,
                )
                .join_from(t.progress, t.committed, (d.source_id == g.source_id) & (d.partition == g.partition))
                .where(
                    g.source_id.in_([one.source.id for one in some]), d.asset.in_(sorted({one.asset for one in some}))
                )
            )  # fmt: skip
            for row in rows:
                known.setdefault((row.source_id, row.asset), {})[row.partition] = row
    found = Observed()
    plain: dict[int, Looked] = {}
    quiet = set[int]()
    for one in looks:
        mine = known.get((one.source.id, one.asset), {})
        if one.offsets.keys() == mine.keys() and all(row.owner is None for row in mine.values()):
            plain[one.source.id] = one
            if _nothing_new(one, mine):
                quiet.add(one.source.id)
    for some in batches(sorted(plain)):
        with write(engine) as connection:
            _observe_some(connection, {number: plain[number] for number in some}, quiet, found)
    return found


def _observe_some(connection: Connection, some: Mapping[int, Looked], quiet: set[int], found: Observed) -> None:
    g = t.progress.c
    busy = some.keys() - quiet
    alive = _alive(connection, busy) if busy else set[int]()
    locked = connection.execute(
        select(g.source_id, g.partition, g.observed_at, now_ms().label("now"))
        .where(g.source_id.in_(sorted((some.keys() & quiet) | alive)))
        .order_by(g.source_id, g.partition)
        .with_for_update(key_share=True, skip_locked=True)
    ).all()
    held: dict[int, set[int]] = {}
    for row in locked:
        held.setdefault(row.source_id, set()).add(row.partition)
    mine = {number for number in held if held[number] == set(some[number].offsets)}
    if still := sorted(mine & quiet):
        connection.execute(update(t.progress).where(g.source_id.in_(still)).values(observed_at=now_ts()))
    changed = mine - quiet
    if changed:
        write_down(
            connection,
            [
                (
                    row.source_id,
                    row.partition,
                    some[row.source_id].offsets[row.partition],
                    looked_at(row.observed_at, row.now),
                )
                for row in locked
                if row.source_id in changed
            ],
        )
        for row in connection.execute(standing(changed)):
            found.progress.setdefault(row.source_id, {})[row.partition] = progress_in(row)
        found.read_at |= dict.fromkeys(changed, time.monotonic())
    found.quiet.update(still)


def _alive(connection: Connection, sources: Collection[int]) -> set[int]:
    """Which of these sources are not retired, locked as by `require_not_retired`; not those that others have locked."""
    s = t.source.c
    rows = connection.execute(
        select(s.id, s.retired_at)
        .where(s.id.in_(sorted(sources)))
        .order_by(s.id)
        .with_for_update(key_share=True, skip_locked=True)
    )
    return {row.id for row in rows if row.retired_at is None}


def write_down(connection: Connection, offsets: Sequence[tuple[int, int, Offsets, int | None]]) -> None:
    """What the broker says of these partitions, each with its source, and when it was looked at before."""
    p = t.progress
    stable = bindparam("stable", type_=BigInteger)
    # What was not there at the last look may have come right after it: nobody waits a tick longer than declared.
    since = func.coalesce(p.c.pending_since, bindparam("looked", type_=BigInteger), now_ms())
    connection.execute(  # one call, however many partitions
        update(p)
        .where(p.c.source_id == bindparam("its_source"), p.c.partition == bindparam("place"))
        .values(
            log_start=bindparam("first"),
            last_stable=stable,
            high_watermark=bindparam("end"),
            observed_at=now_ts(),
            pending_since=case((stable > p.c.planned_through, since), else_=None),
        ),
        [
            {
                "its_source": source_id,
                "place": place,
                "first": at.log_start,
                "stable": at.last_stable,
                "end": at.high_watermark,
                "looked": looked,
            }
            for source_id, place, at, looked in sorted(offsets, key=lambda one: one[:2])
        ],
    )


def standing(sources: Collection[int]) -> Select[Any]:
    p = t.progress
    return select(
        p.c.source_id,
        p.c.partition,
        p.c.planned_through,
        (now_ms() - p.c.pending_since).label("pending_ms"),
        case((p.c.owner_lease_until > now_ms(), p.c.owner)).label("owner"),
    ).where(p.c.source_id.in_(sorted(sources)))


def progress_in(row: Row[Any]) -> Progress:
    return Progress(planned_through=row.planned_through, pending_ms=row.pending_ms, owner=row.owner)


def _nothing_new(look: Looked, known: Mapping[int, Row[Any]]) -> bool:
    return all(
        (at.log_start, at.last_stable, at.high_watermark) == (row.log_start, row.last_stable, row.high_watermark)
        and at.log_start <= row.planned_through
        and at.last_stable <= row.planned_through <= at.high_watermark
        and row.pending_since is None
        for at, row in ((look.offsets[place], known[place]) for place in known)
    )


def looked_at(observed: datetime, now: int) -> int:
    """When the broker was asked before, in ms on the database's clock; not longer ago than counts."""
    return min(max(round(observed.timestamp() * 1000), now - LAST_LOOK_MS), now)
