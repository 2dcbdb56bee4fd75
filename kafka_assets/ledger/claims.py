"""Claims: who works on a publication. A claim never touches a result."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, null, select, update

from kafka_assets.errors import Fenced, LeaseHeld, LedgerBusy, OutcomeUnknown
from kafka_assets.faults import reached
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.backends import terminate, unconnected
from kafka_assets.ledger.constructs import now_ms, storable
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.publications import Publication, batches, lock_rows
from kafka_assets.ledger.stalls import end_stalls

LEASE_MS = 60_000
_TRIES = 5
"""How often a claim reads again after somebody else claimed between its read and its write."""


@dataclass(frozen=True)
class Claim:
    """An attempt at a publication, held by this run while its number stands in the ledger."""

    publication: Publication
    attempt: int


@dataclass(frozen=True)
class _Read:
    attempt: int
    backend: str | None
    run_id: str | None
    held_ms: int


def claim(
    engine: Engine,
    publications: Sequence[Publication],
    *,
    run_id: str,
    force: bool = False,
    over: Collection[str] = (),
    lease_ms: int = LEASE_MS,
) -> list[Claim]:
    """Raise the attempt of every publication, all or none.

    `over` are runs that have ended for certain: a lease that one of them left behind is not waited for.

    What a former claim names is ended first, and the claim is then written by compare-and-set on
    what was read: in the other order a frozen holder could block whoever comes after it for ever.
    """
    backend = unconnected(engine)
    for _ in range(_TRIES):
        standing = _read_claims(engine, [publication.id for publication in publications])
        if not force:
            _refuse_live_leases(publications, standing, over=over)
        for name in {claim.backend for claim in standing.values()} - {None, backend}:
            assert name is not None
            terminate(engine, name)
        claims = _compare_and_set(
            engine, publications, standing, run_id=run_id, backend=backend, force=force, over=over, lease_ms=lease_ms
        )
        if claims is not None:
            reached("land", publications[0].asset)
            return claims
    raise LedgerBusy(
        "the claim on a slice changed each time it was about to be taken",
        why=f"other runs claimed the same slices {_TRIES} times in a row",
        cure="let one of them finish; the sensor asks again",
    )


def extend(engine: Engine, claims: Sequence[Claim], *, lease_ms: int = LEASE_MS) -> None:
    """Move the leases on, aside from the publishing transaction; Fenced when one is no longer ours."""
    with write(engine) as connection:
        for held in _ordered(claims):
            _update_mine(connection, held, lease_until=now_ms() + lease_ms)


def register_backend(engine: Engine, claims: Sequence[Claim], backend: str) -> None:
    """Name the backend of a new connection before its BEGIN, so that whoever takes over can end it."""
    try:
        with write(engine) as connection:
            for held in _ordered(claims):
                _update_mine(connection, held, backend=backend)
    except OutcomeUnknown as error:
        # Nothing hangs on it: the transaction that it was for has not begun.
        raise LedgerBusy("a publisher's connection could not be registered", why=error.why, cure=error.cure) from error


def release(engine: Engine, claims: Sequence[Claim]) -> None:
    """End the leases after a commit, so that a replay need not wait for them; another's are left alone.

    What kept the asset from landing keeps it no more.
    """
    with write(engine) as connection:
        for held in _ordered(claims):
            connection.execute(_mine(held).values(lease_until=None, backend=None, not_before=None, failure=None))
        end_stalls(connection, {held.publication.asset for held in claims})


def record_failure(
    engine: Engine,
    claims: Sequence[Claim],
    *,
    reason: str,
    max_attempts: int,
    counts: bool = True,
    pauses: bool = True,
    code_version: str | None = None,
) -> bool:
    """Give failed claims back with a pause; what fails alone too often is given up. True when it was.

    `counts=False`: it was not the slices' fault, or passes by itself, and is no step towards giving up.
    `pauses=False`: it did not even fail, or waits for what keeps all slices of the asset.
    `code_version`: the code that failed at it; other code gets a slice that was given up once more.
    A result is never touched: a publication becomes `failed` only from `planned`, under its lock. A server's
    backend stays named, and the lease ends now: where the connection was lost, the server may still hold it.
    """
    backend: Any = null() if engine.dialect.name == "sqlite" else t.claim.c.backend
    alone = counts and len(claims) == 1
    given_up = False
    with write(engine) as connection:
        lock_rows(connection, (held.publication.id for held in claims))
        for held in _ordered(claims):
            pause = min(300_000, 5_000 * 2 ** min(held.attempt - 1, 10))
            released = connection.execute(
                _mine(held).values(
                    lease_until=now_ms(),
                    backend=backend,
                    not_before=now_ms() + pause if pauses else null(),
                    failures_alone=t.claim.c.failures_alone + int(alone),
                    failure=storable(reason[:2000]),
                )
            )
            if released.rowcount == 1 and alone:
                failures = connection.scalar(
                    select(t.claim.c.failures_alone).where(t.claim.c.publication_id == held.publication.id)
                )
                if failures is not None and failures >= max_attempts:
                    changed = connection.execute(
                        update(t.publication)
                        .where(t.publication.c.id == held.publication.id, t.publication.c.state == "planned")
                        .values(state="failed", code_version=code_version)
                    )
                    given_up = changed.rowcount == 1
    return given_up


def give_back(engine: Engine, *, run_id: str) -> None:
    """End the leases that a run holds: its process ends, and whoever comes next need not wait for them."""
    c = t.claim.c
    with write(engine) as connection:
        connection.execute(
            update(t.claim)
            .where(c.run_id == run_id, c.lease_until > now_ms())
            .values(lease_until=now_ms(), not_before=null())
        )


def _read_claims(engine: Engine, ids: Sequence[int]) -> dict[int, _Read]:
    """Without a lock: a frozen publisher may hold the claim row itself."""
    c = t.claim.c
    wanted = select(c.publication_id, c.attempt, c.backend, c.run_id, c.lease_until - now_ms())
    with read(engine) as connection:
        rows = [row for some in batches(ids) for row in connection.execute(wanted.where(c.publication_id.in_(some)))]
    return {row[0]: _Read(attempt=row[1], backend=row[2], run_id=row[3], held_ms=row[4] or 0) for row in rows}


def _refuse_live_leases(
    publications: Sequence[Publication], standing: dict[int, _Read], *, over: Collection[str]
) -> None:
    for publication in publications:
        held = standing[publication.id]
        if held.held_ms > 0 and held.run_id not in over:
            raise LeaseHeld(
                f"slice {publication.key} is being worked on by run {held.run_id}",
                why=f"attempt {held.attempt} holds a lease for {held.held_ms / 1000:.0f} s more",
                cure="wait until it ends (a dead run's lease ends by itself), then run the slice again",
            )


def _compare_and_set(
    engine: Engine,
    publications: Sequence[Publication],
    standing: dict[int, _Read],
    *,
    run_id: str,
    backend: str | None,
    force: bool,
    over: Collection[str],
    lease_ms: int,
) -> list[Claim] | None:
    c = t.claim.c
    claims: list[Claim] = []
    with write(engine) as connection:
        for publication in sorted(publications, key=lambda one: one.id):
            was = standing[publication.id]
            statement = update(t.claim).where(
                c.publication_id == publication.id,
                c.attempt == was.attempt,
                c.backend.is_not_distinct_from(was.backend),
            )
            if not force and was.run_id not in over:
                statement = statement.where(c.lease_until.is_(None) | (c.lease_until <= now_ms()))
            taken = connection.execute(
                statement.values(
                    attempt=was.attempt + 1,
                    run_id=run_id,
                    backend=backend,
                    lease_until=now_ms() + lease_ms,
                    not_before=None,
                )
            )
            if taken.rowcount != 1:
                connection.rollback()
                return None
            claims.append(Claim(publication, was.attempt + 1))
    return claims


def _mine(held: Claim):
    return update(t.claim).where(t.claim.c.publication_id == held.publication.id, t.claim.c.attempt == held.attempt)


def _update_mine(connection: Connection, held: Claim, **values: object) -> None:
    if connection.execute(_mine(held).values(**values)).rowcount != 1:
        raise fenced(held)


def fenced(held: Claim) -> Fenced:
    return Fenced(
        f"attempt {held.attempt} at slice {held.publication.key} was taken over",
        why="another run claimed it, by force or after this one's lease had ended",
        cure="nothing to do: nothing of this attempt is visible, and the other one goes on",
    )


def _ordered(claims: Sequence[Claim]) -> list[Claim]:
    return sorted(claims, key=lambda held: held.publication.id)
