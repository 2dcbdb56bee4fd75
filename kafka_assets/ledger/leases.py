"""Leases: which live consumer plans a partition itself. On the database's clock, by compare-and-set.

A lease keeps a sensor and live consumers out of each other's way; what keeps them exact is the
compare-and-set on planned_through. So an owner whose lease has ended may still commit: whoever comes
after it ends its backend first, and then nothing of it is left.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, and_, literal, select, true, update

from kafka_assets.errors import Fenced, KeysUnknown, LeaseHeld, LedgerBusy, OutcomeUnknown, TopicChanged
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.backends import terminate, unconnected
from kafka_assets.ledger.committed import uncommitted_by
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.sources import Source
from kafka_assets.ledger.windows import close_tails
from kafka_assets.slices import SliceKey

LEASE_MS = 30_000
_TRIES = 5
"""How often a lease is read again after somebody else wrote between its read and its write."""

Place = tuple[int, int]
"""A source's id, and a partition."""


@dataclass(frozen=True)
class Lease:
    """A partition that this owner plans, while the ledger names it."""

    source: Source
    partition: int
    owner: str

    @property
    def place(self) -> Place:
        return self.source.id, self.partition

    def __str__(self) -> str:
        return f"partition {self.partition} of the topic {self.source.topic!r}"


@dataclass
class Taken:
    """What became of the partitions that were asked for."""

    leases: list[Lease] = field(default_factory=list[Lease])
    refused: dict[Place, LeaseHeld] = field(default_factory=dict[Place, LeaseHeld])
    """Those whose owner's lease stands: each is to be asked for again."""


def new_owner(group: str | None = None) -> str:
    """A name that no other consumer ever has; where it runs can be read in it, and whether two are of one group."""
    name = f"live:{socket.gethostname()[:150]}:{os.getpid()}:{secrets.token_hex(4)}"
    return name if group is None else f"{name}:{hashlib.blake2s(group.encode(), digest_size=6).hexdigest()}"


def take(
    engine: Engine,
    wanted: Iterable[tuple[Source, int]],
    *,
    owner: str,
    lease_ms: int = LEASE_MS,
    given: Collection[Place] = (),
) -> Taken:
    """Take these partitions, those of them that nobody else holds a live lease on.

    The backend of an owner whose lease has ended is ended first, and the lease is then written by compare-and-set
    on owner and backend: in the other order a frozen one could block whoever comes after it for ever.
    Their progress must be there: `planning.observe` writes it.

    `given` are those that the owner's group has just given it. The group gives a partition only when the member that
    had it gave it up or counts as dead: the lease of such a one ends with that, and is not waited for. Whoever was
    robbed all the same, since it was only frozen, is fenced as after a lease that ended by itself.
    """
    open_ = {(source.id, partition): Lease(source, partition, owner) for source, partition in wanted}
    taken = Taken()
    for _ in range(_TRIES):
        standing = _read(engine, open_.values())
        left = {place for place in given if place in standing and _of_one_group(standing[place].owner, owner)}
        for place, row in standing.items():
            if row.owner is not None and row.owner != owner and row.held_ms > 0 and place not in left:
                taken.refused[place] = _held(open_.pop(place), row)
        former = {row.owner_backend for place, row in standing.items() if place in open_ and row.owner != owner}
        for backend in sorted(former - {None, unconnected(engine)}):
            terminate(engine, backend)
        for lease in _compare_and_set(engine, list(open_.values()), standing, left=left, lease_ms=lease_ms):
            taken.leases.append(open_.pop(lease.place))
        if not open_:
            return taken
    raise LedgerBusy(
        f"the lease on {next(iter(open_.values()))} changed each time it was about to be taken",
        why=f"others took it {_TRIES} times in a row",
        cure="let one of them have it; the group gives a partition to one member",
    )


@dataclass(frozen=True)
class Ready:
    """Where an owner begins, or what it waits for."""

    position: int
    """planned_through: the first offset that nobody has planned."""
    waits_for: str | None = None
    """Who is in the way, and what to do about it; None: nobody, the first batch begins at the position."""


def ready(engine: Engine, leases: Sequence[Lease], *, asset: str) -> dict[Lease, Ready]:
    """Where each partition stands: an owner begins once all that is planned of it is committed, lost or skipped."""
    found: dict[Lease, Ready] = {}
    with read(engine) as connection:
        for lease in leases:
            g, d = t.progress.c, t.committed.c
            row = connection.execute(
                select(g.owner, g.planned_through, d.committed_through)
                .join_from(
                    t.progress,
                    t.committed,
                    and_(d.source_id == g.source_id, d.partition == g.partition, d.asset == asset),
                )
                .where(_at(lease))
            ).one()
            if row.owner != lease.owner:
                raise taken_over(lease)
            way = None
            if row.committed_through < row.planned_through:
                way = _in_the_way(connection, lease, asset, above=row.committed_through)
            found[lease] = Ready(row.planned_through, way)
    return found


def extend(engine: Engine, leases: Sequence[Lease], *, lease_ms: int = LEASE_MS) -> list[Lease]:
    """Move the leases on, in one transaction; those that are another's by now, for which nothing can be done.

    One whose partition is being committed at this moment is not waited for: its commit moves it on.
    """
    with write(engine) as connection:
        found = _locked(connection, leases, skip_locked=True)
        for lease in _ordered(leases):
            row = found.get(lease.place)
            if row is not None and row.owner == lease.owner:
                connection.execute(_mine(lease).values(owner_lease_until=now_ms() + lease_ms))
    return [lease for lease in leases if lease.place in found and found[lease.place].owner != lease.owner]


def give_back(engine: Engine, leases: Sequence[Lease]) -> None:
    """Close the windows of these partitions, and leave them to whoever comes; another's are left alone."""
    with write(engine) as connection:
        mine = [lease for lease in _ordered(leases) if _owner(connection, lease) == lease.owner]
        close_tails(connection, [lease.place for lease in mine])
        for lease in mine:
            connection.execute(_mine(lease).values(owner=None, owner_lease_until=None, owner_backend=None))


def register(engine: Engine, leases: Sequence[Lease], backend: str) -> None:
    """Name the backend of a new connection before its BEGIN, so that whoever takes over can end it."""
    try:
        with write(engine) as connection:
            for lease in _ordered(leases):
                if connection.execute(_mine(lease).values(owner_backend=backend)).rowcount != 1:
                    raise taken_over(lease)
    except OutcomeUnknown as error:
        # Nothing hangs on it: the transaction that it was for has not begun.
        raise LedgerBusy("an owner's connection could not be registered", why=error.why, cure=error.cure) from error


def taken_over(lease: Lease, *, why: str = "its lease had ended, and somebody else plans it now") -> Fenced:
    return Fenced(
        f"{lease} is not {lease.owner}'s any more",
        why=why,
        cure="nothing of this batch is in the table: take the lease again, and go on from planned_through",
    )


def _read(engine: Engine, leases: Iterable[Lease]) -> dict[Place, Any]:
    """Without a lock: a frozen owner may hold the row itself."""
    found: dict[Place, Any] = {}
    with read(engine) as connection:
        for lease in leases:
            g = t.progress.c
            row = connection.execute(
                select(
                    g.owner, g.owner_backend, (g.owner_lease_until - now_ms()).label("held_ms"), t.source.c.retired_at
                )
                .join(t.source, t.source.c.id == g.source_id)
                .where(_at(lease))
            ).first()
            if row is None:
                raise KeysUnknown(
                    f"the ledger does not know {lease}",
                    why="a partition's progress is written when its offsets are first observed",
                    cure="observe it first",
                )
            if row.retired_at is not None:
                raise TopicChanged(
                    f"the topic {lease.source.topic!r} was deleted and created again",
                    why="another planner has met the new topic, and recorded what the old one left unread as lost",
                    cure="resolve the topic's source again, and take its partitions",
                )
            found[lease.place] = row
    return found


def _compare_and_set(
    engine: Engine, leases: Sequence[Lease], standing: dict[Place, Any], *, left: Collection[Place], lease_ms: int
) -> list[Lease]:
    g = t.progress.c
    there = select(literal(1)).where(t.source.c.id == g.source_id, t.source.c.retired_at.is_(None)).exists()
    taken: list[Lease] = []
    with write(engine) as connection:
        # The clock is read by a statement that begins when the lock is held.
        _locked(connection, leases)
        for lease in _ordered(leases):
            was = standing[lease.place]
            ended = g.owner_lease_until.is_(None) | (g.owner_lease_until <= now_ms()) | (g.owner == lease.owner)
            done = connection.execute(
                update(t.progress)
                .where(
                    _at(lease),
                    g.owner.is_not_distinct_from(was.owner),
                    g.owner_backend.is_not_distinct_from(was.owner_backend),
                    true() if lease.place in left else ended,
                    there,
                )
                .values(owner=lease.owner, owner_backend=unconnected(engine), owner_lease_until=now_ms() + lease_ms)
            )
            if done.rowcount == 1:
                taken.append(lease)
    return taken


def _locked(connection: Connection, leases: Sequence[Lease], *, skip_locked: bool = False) -> dict[Place, Any]:
    g = t.progress.c
    found: dict[Place, Any] = {}
    for lease in _ordered(leases):
        row = connection.execute(
            select(g.owner).where(_at(lease)).with_for_update(key_share=True, skip_locked=skip_locked)
        ).first()
        if row is not None:
            found[lease.place] = row
    return found


def _in_the_way(connection: Connection, lease: Lease, asset: str, *, above: int) -> str:
    s, p, c = t.slice_.c, t.publication.c, t.claim.c
    row = connection.execute(
        select(s.start_offset, s.end_offset, p.state, c.run_id, c.failure, (c.lease_until > now_ms()).label("claimed"))
        .outerjoin_from(t.slice_, t.publication, and_(p.slice_id == s.id, p.asset == asset))
        .outerjoin(t.claim, c.publication_id == p.id)
        .where(
            s.source_id == lease.source.id,
            s.partition == lease.partition,
            s.start_offset >= above,
            s.kind == "normal",
            uncommitted_by(asset),
        )
        .order_by(s.start_offset)
        .limit(1)
    ).first()
    if row is None:
        return f"{lease} was being committed at this moment"
    key = SliceKey(
        lease.source.topic, lease.source.incarnation, lease.partition, start=row.start_offset, end=row.end_offset
    )
    if row.state == "failed":
        return f"slice {key} was given up ({row.failure}): correct it and run it again, or skip it"
    if row.claimed:
        return f"run {row.run_id} is landing slice {key}"
    return f"slice {key} is planned and not landed: the sensor's runs do that, or `kafka-assets run`"


def _of_one_group(former: str | None, owner: str) -> bool:
    group = owner.split(":")[4:]
    return bool(group) and former is not None and former.split(":")[4:] == group


def _owner(connection: Connection, lease: Lease) -> str | None:
    return connection.scalar(select(t.progress.c.owner).where(_at(lease)))


def _held(lease: Lease, row: Any) -> LeaseHeld:
    return LeaseHeld(
        f"{lease} is held by the live consumer {row.owner}",
        why=f"its lease stands for {row.held_ms / 1000:.0f} s more",
        cure="wait: it gives it back when it loses the partition, and a dead one's lease ends by itself",
    )


def _at(lease: Lease) -> Any:
    g = t.progress.c
    return and_(g.source_id == lease.source.id, g.partition == lease.partition)


def _mine(lease: Lease) -> Any:
    return update(t.progress).where(_at(lease), t.progress.c.owner == lease.owner)


def _ordered(leases: Iterable[Lease]) -> list[Lease]:
    return sorted(leases, key=lambda one: one.place)
