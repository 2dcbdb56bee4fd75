"""The frame of a live transaction: its backend stands in the leases before it begins, and its outcome is known."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, and_, select, update

from kafka_assets.errors import Fenced, LedgerBusy, OutcomeUnknown
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.backends import backend_of, terminate
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import Kept, write
from kafka_assets.ledger.leases import LEASE_MS, Lease, register, taken_over
from kafka_assets.ledger.retries import retried

Moves = Mapping[Lease, tuple[int, int]]
"""From where to where a transaction moves planned_through of each partition."""


class LiveConnection:
    """An owner's connection: kept from commit to commit, and named in the leases of what it commits. Of one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept = Kept(engine, opened=self._name)
        self._backend = ""

    @contextmanager
    def owning(self, moves: Moves) -> Generator[Connection]:
        """A transaction, committed when the block has ended well; or it raises, and nothing of it is there."""
        try:
            with self._begun(moves) as connection:
                yield connection
        except OutcomeUnknown as error:
            if not _committed(self._engine, moves, self._backend):
                raise LedgerBusy(
                    "the connection to the database was lost during COMMIT, and nothing was committed",
                    why=error.why,
                    cure="the whole transaction is tried again",
                ) from error
        except LedgerBusy:
            if self._backend:
                # The next try names another backend: what the server still holds of this one, nobody else would end.
                terminate(self._engine, self._backend)
            raise

    def close(self) -> None:
        self._kept.close()

    def _name(self, connection: Connection) -> None:
        self._backend = backend_of(connection)

    @contextmanager
    def _begun(self, moves: Moves) -> Generator[Connection]:
        """Begun with its backend in every lease: one that is not is written there first, and nothing is locked yet."""
        with self._kept.write() as connection:
            if require_standing(connection, moves) == {self._backend}:
                yield connection
                return
            connection.rollback()
        register(self._engine, list(moves), self._backend)
        registered = self._backend
        with self._kept.write() as connection:
            if require_standing(connection, moves) != {self._backend}:
                raise LedgerBusy(
                    "the connection to the database was another one when its transaction began",
                    why=f"the leases name {registered}, and not {self._backend}: nobody could end it",
                    cure="the whole transaction is tried again",
                )
            yield connection


def require_standing(connection: Connection, moves: Moves) -> set[str | None]:
    """See by a plain read that these partitions stand where the batch begins, and are still ours; their backends.

    What a record's row meets in the table would otherwise be taken for the record's fault.
    """
    g = t.progress.c
    named: set[str | None] = set()
    for lease, (start, _) in moves.items():
        row = connection.execute(select(g.planned_through, g.owner, g.owner_backend).where(_at(lease))).one()
        if row.planned_through != start or row.owner != lease.owner:
            raise _moved(lease, start, row.planned_through, owner=row.owner)
        named.add(row.owner_backend)
    return named


def move(connection: Connection, moves: Moves, *, lease_ms: int = LEASE_MS) -> None:
    """planned_through by compare-and-set, in order, and the leases with it: Fenced rolls everything back.

    Not the lease's end, but its owner is asked for: whoever came after it has written another one.
    """
    g = t.progress.c
    for lease, (start, end) in sorted(moves.items(), key=lambda item: item[0].place):
        moved = connection.execute(
            update(t.progress)
            .where(_at(lease), g.planned_through == start, g.owner == lease.owner)
            .values(planned_through=end, pending_since=None, owner_lease_until=now_ms() + lease_ms)
        )
        if moved.rowcount != 1:
            row = connection.execute(select(g.planned_through, g.owner).where(_at(lease))).one()
            raise _moved(lease, start, row.planned_through, owner=row.owner)


def _moved(lease: Lease, start: int, through: int, *, owner: str | None) -> Fenced:
    if owner != lease.owner:
        return taken_over(lease)
    return taken_over(lease, why=f"it stands at offset {through}, and the batch begins at {start}")


def _committed(engine: Engine, moves: Moves, backend: str) -> bool:
    try:
        return retried(lambda: _ask(engine, moves, backend))
    except (LedgerBusy, OutcomeUnknown) as error:
        raise OutcomeUnknown(
            "the connection to the database was lost during COMMIT, and it does not say what became of it",
            why=str(error),
            cure="take the lease again, and go on from planned_through: what is committed is below it",
        ) from error


def _ask(engine: Engine, moves: Moves, backend: str) -> bool:
    """Under the progress rows' lock, which a backend that is still committing holds: a plain read says too little.

    The old backend is ended first, and ended does not mean rolled back.
    """
    terminate(engine, backend)
    g = t.progress.c
    committed: set[bool] = set()
    with write(engine) as connection:
        for lease, (start, end) in sorted(moves.items(), key=lambda item: item[0].place):
            row = connection.execute(select(g.planned_through, g.owner).where(_at(lease)).with_for_update()).one()
            if row.owner != lease.owner or row.planned_through not in {start, end}:
                raise taken_over(lease, why="the connection was lost during its COMMIT, and somebody else plans it now")
            committed.add(row.planned_through == end)
    assert len(committed) == 1, "one transaction moves all of its partitions or none"
    return committed.pop()


def _at(lease: Lease):
    g = t.progress.c
    return and_(g.source_id == lease.source.id, g.partition == lease.partition)
