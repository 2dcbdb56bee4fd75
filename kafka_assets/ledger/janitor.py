"""Ending what was left behind: the backends of claims and of live consumers whose lease has ended."""

from __future__ import annotations

import logging
from collections.abc import Collection

from sqlalchemy import Engine, select, update

from kafka_assets.errors import KafkaAssetsError
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.backends import pid_of, terminate
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.windows import close_left


def end_live(engine: Engine, *, log: logging.Logger) -> list[str]:
    """End the backend of every live consumer whose lease has ended, before anybody plans in its place.

    Then the partition is nobody's, and its window is closed. What could not be ended is said.
    """
    g = t.progress.c
    with read(engine) as connection:
        left = connection.execute(
            select(g.source_id, g.partition, g.owner, g.owner_backend)
            .where(g.owner_lease_until <= now_ms())
            .order_by(g.source_id, g.partition)
        ).all()
    gone, troubles = _ended(engine, {row.owner_backend for row in left} - {None}, log=log, what="a live consumer")
    free = [row for row in left if row.owner_backend is None or row.owner_backend in gone]
    for row in free:
        with write(engine) as connection:
            # Not where it has come back, or somebody took the partition, meanwhile.
            connection.execute(
                update(t.progress)
                .where(
                    g.source_id == row.source_id,
                    g.partition == row.partition,
                    g.owner == row.owner,
                    g.owner_backend.is_not_distinct_from(row.owner_backend),
                    g.owner_lease_until <= now_ms(),
                )
                .values(owner=None, owner_lease_until=None, owner_backend=None)
            )
    for key in close_left(engine):
        log.info(f"the live window {key} was left open, and is closed")
    return troubles


def end_expired(engine: Engine, *, log: logging.Logger) -> list[str]:
    """End every backend whose claim's lease has ended; what could not be ended, as sentences.

    Also where the publication is committed: a frozen replay may hold the row of committed_through, for
    which its neighbours wait, and nobody asks for a committed slice again.
    """
    c = t.claim.c
    with read(engine) as connection:
        # Sorted here: to have the order for nothing, SQLite would read every claim of history.
        left = sorted(
            connection.execute(
                select(c.publication_id, c.attempt, c.backend).where(c.lease_until <= now_ms(), c.backend.is_not(None))
            ),
            key=lambda row: row.publication_id,
        )
    gone, troubles = _ended(engine, {row.backend for row in left}, log=log, what="a claim")
    for backend in sorted(gone):
        with write(engine) as connection:
            for row in (row for row in left if row.backend == backend):
                # Not where somebody claimed, or registered a new connection, meanwhile.
                connection.execute(
                    update(t.claim)
                    .where(c.publication_id == row.publication_id, c.attempt == row.attempt, c.backend == backend)
                    .values(backend=None)
                )
    return troubles


def _ended(engine: Engine, backends: Collection[str], *, log: logging.Logger, what: str) -> tuple[set[str], list[str]]:
    """Which of these are gone now; and what could not be ended, as sentences."""
    gone: set[str] = set()
    troubles: list[str] = []
    for backend in sorted(backends):
        try:
            if terminate(engine, backend):
                gone.add(backend)
            else:
                log.info(f"{what} whose lease has ended is held by {pid_of(backend)}; only its user can end that")
        except KafkaAssetsError as error:
            troubles.append(str(error))
    return gone, troubles
