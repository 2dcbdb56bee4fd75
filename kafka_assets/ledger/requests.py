"""Which slices wait for a run, and the tokens under which runs were requested for them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, func, literal, select, update

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read, write
from kafka_assets.slices import SliceKey

HOLD_MS = 60_000
"""How long a request may stay without a claim before it is made again: a run may never have come of it."""


@dataclass(frozen=True)
class Due:
    """A planned slice that nobody works on."""

    publication_id: int
    key: SliceKey
    attempt: int
    token: str | None


def due(engine: Engine, *, asset: str, limit: int, upstream: str | None = None) -> list[Due]:
    """Planned slices without a live lease whose time has come, oldest first.

    With `upstream`, those that this asset has committed: its rows are there also where the topic is gone.
    """
    p, s, src, c = t.publication.c, t.slice_.c, t.source.c, t.claim.c
    above = t.publication.alias("above")
    readable = (
        src.retired_at.is_(None)
        if upstream is None
        else select(literal(1))
        .where(above.c.slice_id == p.slice_id, above.c.asset == upstream, above.c.state == "committed")
        .exists()
    )
    with read(engine) as connection:
        rows = connection.execute(
            select(
                p.id, src.topic, src.incarnation, s.partition, s.start_offset, s.end_offset, c.attempt, c.request_token
            )
            .join_from(t.publication, t.slice_, p.slice_id == s.id)
            .join(t.source, s.source_id == src.id)
            .join(t.claim, c.publication_id == p.id)
            .where(
                p.asset == asset,
                p.state == "planned",
                p.state != "committed",  # the index leaves out what is committed, and SQLite wants it said
                s.kind == "normal",
                s.is_open.is_(False),
                readable,
                c.lease_until.is_(None) | (c.lease_until <= now_ms()),
                c.not_before.is_(None) | (c.not_before <= now_ms()),
            )
            .order_by(p.id)
            .limit(limit)
        ).all()
    return [Due(row[0], SliceKey(row[1], row[2], row[3], row[4], row[5]), row[6], row[7]) for row in rows]


def given_up(engine: Engine, *, asset: str) -> int:
    """How many slices failed too often alone, and wait for somebody."""
    p = t.publication.c
    with read(engine) as connection:
        statement = select(func.count()).select_from(t.publication).where(p.asset == asset, p.state == "failed")
        return connection.scalar(statement) or 0


def live_runs(engine: Engine, *, asset: str) -> set[str]:
    """The runs that hold a live lease: whoever died holds none before long, whatever Dagster believes."""
    c = t.claim.c
    with read(engine) as connection:
        found = connection.scalars(
            select(c.run_id)
            .join(t.publication, t.publication.c.id == c.publication_id)
            .where(t.publication.c.asset == asset, c.lease_until > now_ms())
            .distinct()
        )
        return {run_id for run_id in found if run_id is not None}


def new_token() -> str:
    """The name of one request, that no other ever has: it is the run's key in Dagster, and stands in the claims."""
    return secrets.token_hex(8)


def store_request(engine: Engine, batch: Sequence[Due], *, token: str) -> bool:
    """Write the token of a run that is about to be requested; False when another tick was faster."""
    c = t.claim.c
    with write(engine) as connection:
        for one in sorted(batch, key=lambda item: item.publication_id):
            stored = connection.execute(
                update(t.claim)
                .where(
                    c.publication_id == one.publication_id,
                    c.attempt == one.attempt,
                    c.request_token.is_not_distinct_from(one.token),
                    c.lease_until.is_(None) | (c.lease_until <= now_ms()),
                )
                .values(
                    request_token=token,
                    requests=c.requests + 1,
                    not_before=now_ms() + HOLD_MS,
                )
            )
            if stored.rowcount != 1:
                connection.rollback()
                return False
    return True
