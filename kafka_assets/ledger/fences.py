"""The fence: a publisher commits only what it still holds, verified under lock as its last act before COMMIT."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, select

from kafka_assets.errors import LedgerBusy, OutcomeUnknown
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.claims import LEASE_MS, Claim, extend, fenced
from kafka_assets.ledger.drivers import set_idle_timeout
from kafka_assets.ledger.engine import IDLE_SECONDS
from kafka_assets.records import Chunk, Chunks

_log = logging.getLogger(__name__)


def verify_attempts(connection: Connection, claims: Sequence[Claim]) -> None:
    """Lock the claims in order and see that each attempt is still ours; Fenced rolls everything back.

    Under lock, and after the rows: a check without it, or before them, lets a zombie commit. These are
    the first locks that others wait for: from here on the server ends a transaction whose client is frozen.
    """
    set_idle_timeout(connection, IDLE_SECONDS)
    for held in sorted(claims, key=lambda one: one.publication.id):
        attempt = connection.scalar(
            select(t.claim.c.attempt).where(t.claim.c.publication_id == held.publication.id).with_for_update()
        )
        if attempt != held.attempt:
            raise fenced(held)


class Held:
    """The claims of a run that are kept alive: the first thing that ends that, ends the run at its next step."""

    def __init__(self) -> None:
        self._ended: Exception | None = None

    def check(self) -> None:
        """Raise what was met by whoever extends the leases: Fenced, or what nobody had thought of."""
        if self._ended is not None:
            raise self._ended

    def while_held(self, chunks: Chunks) -> Chunks:
        """The same chunks, for as long as what becomes of them could still be committed."""

        def read() -> Iterator[Chunk]:
            for chunk in chunks():
                self.check()
                yield chunk

        return read

    def end(self, error: Exception) -> None:
        self._ended = error


@contextmanager
def kept_alive(engine: Engine, claims: Sequence[Claim], *, lease_ms: int = LEASE_MS) -> Generator[Held]:
    """Extend the leases from a thread of its own; what is yielded says whether they still are.

    A busy ledger is no reason to stop: the lease has three chances before it ends, and where a
    publisher holds SQLite's one lock nobody else can claim meanwhile.
    """
    stop, held = threading.Event(), Held()

    def keep() -> None:
        while not stop.wait(lease_ms / 3000):
            try:
                extend(engine, claims, lease_ms=lease_ms)
            except (LedgerBusy, OutcomeUnknown):
                continue
            except Exception as error:  # noqa: BLE001 - a thread's edge: raised in the run's own
                _log.warning("the leases of a run are not extended any more: %s", error)
                held.end(error)
                return

    thread = threading.Thread(target=keep, name="lease", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        stop.set()
        thread.join(timeout=lease_ms / 1000)
