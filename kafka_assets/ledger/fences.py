"""The fence: a publisher commits only what it still holds, verified under lock as its last act before COMMIT."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, select

from kafka_assets.errors import Fenced, LedgerBusy, OutcomeUnknown
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.claims import LEASE_MS, Claim, extend, fenced
from kafka_assets.ledger.drivers import set_idle_timeout
from kafka_assets.ledger.engine import IDLE_SECONDS


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


@contextmanager
def kept_alive(engine: Engine, claims: Sequence[Claim], *, lease_ms: int = LEASE_MS) -> Generator[threading.Event]:
    """Extend the leases from a thread of its own; the event says that they were lost.

    A busy ledger is no reason to stop: the lease has three chances before it ends, and where a
    publisher holds SQLite's one lock nobody else can claim meanwhile.
    """
    stop, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not stop.wait(lease_ms / 3000):
            try:
                extend(engine, claims, lease_ms=lease_ms)
            except (LedgerBusy, OutcomeUnknown):
                continue
            except Fenced:
                lost.set()
                return

    thread = threading.Thread(target=keep, name="lease", daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        stop.set()
        thread.join(timeout=lease_ms / 1000)
