"""The frame of a publishing transaction: named before it begins, and asked about where COMMIT gave no answer."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine, select

from kafka_assets.errors import Fenced, LedgerBusy, OutcomeUnknown
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.backends import backend_of, terminate
from kafka_assets.ledger.claims import Claim, register_backend
from kafka_assets.ledger.drivers import set_idle_timeout
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.publications import batches, lock
from kafka_assets.ledger.retries import retried


@dataclass
class Publishing:
    """One try at publishing: its connection, and the claims whose results it writes."""

    connection: Connection
    written: list[Claim] = field(default_factory=list[Claim])


@contextmanager
def publishing(engine: Engine, claims: Sequence[Claim]) -> Generator[Publishing]:
    """A transaction whose backend stands in its claims before it begins; done when the block has ended well.

    It may pause while rows are fetched from elsewhere: nobody but another attempt at the same slices
    waits for what it locks until then, and whoever makes that attempt ends this one by its name.
    """
    backend = ""
    this: Publishing | None = None

    def register(connection: Connection) -> None:
        nonlocal backend
        backend = backend_of(connection)
        register_backend(engine, claims, backend)

    try:
        with write(engine, before=register) as connection:
            set_idle_timeout(connection, 0)
            this = Publishing(connection)
            yield this
    except OutcomeUnknown as error:
        assert this is not None
        if not _committed(engine, this.written, backend):
            raise LedgerBusy(
                "the connection to the database was lost during COMMIT, and nothing was committed",
                why=error.why,
                cure="the whole transaction is tried again",
            ) from error
    except LedgerBusy:
        if backend:
            # The next try names another backend: what the server still holds of this one, nobody else would end.
            terminate(engine, backend)
        raise


def _committed(engine: Engine, claims: Sequence[Claim], backend: str) -> bool:
    """Whether a transaction whose COMMIT gave no answer committed; asked until there is an answer."""
    try:
        return retried(lambda: _ask(engine, claims, backend))
    except (LedgerBusy, OutcomeUnknown) as error:
        raise OutcomeUnknown(
            "the connection to the database was lost during COMMIT, and it does not say what became of it",
            why=str(error),
            cure="the next attempt at the slice asks the ledger first: what is committed is not done again",
        ) from error


def _ask(engine: Engine, claims: Sequence[Claim], backend: str) -> bool:
    """Under the publications' lock, which a backend that is still committing holds: a plain read says too little.

    The old backend is ended first, and ended does not mean rolled back.
    """
    terminate(engine, backend)
    mine = {held.publication.id: held for held in claims}
    with write(engine) as connection:
        standing = {one.id: one.committed_attempt for one in lock(connection, mine)}
        c = t.claim.c
        found = [
            row
            for some in batches(sorted(mine))
            for row in connection.execute(select(c.publication_id, c.attempt).where(c.publication_id.in_(some)))
        ]
    if all(standing[number] == held.attempt for number, held in mine.items()):
        return True
    for number, attempt in found:
        if attempt != mine[number].attempt:
            raise Fenced(
                f"attempt {mine[number].attempt} at slice {mine[number].publication.key} was taken over",
                why="the connection was lost during its COMMIT, and whether that had committed nobody can tell any "
                "more: another run claimed it since",
                cure="nothing to do: the other attempt's result stands",
            )
    return False
