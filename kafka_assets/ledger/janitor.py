"""Ending what was left behind: the backends of claims whose lease has ended."""

from __future__ import annotations

import logging

from sqlalchemy import Engine, select, update

from kafka_assets.errors import KafkaAssetsError
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.backends import pid_of, terminate
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read, write


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
    troubles: list[str] = []
    for backend in sorted({row.backend for row in left}):
        try:
            gone = terminate(engine, backend)
        except KafkaAssetsError as error:
            troubles.append(str(error))
            continue
        if not gone:
            log.info(f"a claim whose lease has ended is held by {pid_of(backend)}; only its user can end that")
            continue
        with write(engine) as connection:
            for row in (row for row in left if row.backend == backend):
                # Not where somebody claimed, or registered a new connection, meanwhile.
                connection.execute(
                    update(t.claim)
                    .where(c.publication_id == row.publication_id, c.attempt == row.attempt, c.backend == backend)
                    .values(backend=None)
                )
    return troubles
