"""Which slices wait for a run, and the tokens under which runs were requested for them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Engine, func, literal, select, true, update

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.gone import not_gone
from kafka_assets.ledger.index_hints import uncommitted
from kafka_assets.ledger.publications import lock_rows
from kafka_assets.slices import SliceKey

HOLD_MS = 60_000
"""How long a request may stay without a claim before it is made again: a run may never have come of it."""

REARM_MS = 60_000
"""How long a slice that was given up rests before other code tries it."""


@dataclass(frozen=True)
class Due:
    """A planned slice that nobody works on."""

    publication_id: int
    key: SliceKey
    attempt: int
    token: str | None


def due(
    engine: Engine, *, asset: str, limit: int, topics: Collection[str] = (), upstream: str | None = None
) -> list[Due]:
    """Planned slices of these topics, without a live lease, whose time has come: each partition's oldest first.

    Then come their second ones, and so on. So a partition with a thousand slices waiting keeps no other one
    waiting: where the turn is the same, the one with fewer of them goes first. With `upstream`, those that
    this asset has committed: its rows are there also where the topic is gone.
    """
    p, s, src, c = t.publication.c, t.slice_.c, t.source.c, t.claim.c
    mine = (s.source_id, s.partition)
    turn = func.row_number().over(partition_by=mine, order_by=s.start_offset)
    above = t.publication.alias("above")
    readable = (
        src.topic.in_(sorted(topics)) & src.retired_at.is_(None)
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
                *_wanted(),
                p.asset == asset,
                readable,
                c.lease_until.is_(None) | (c.lease_until <= now_ms()),
                c.not_before.is_(None) | (c.not_before <= now_ms()),
            )
            .order_by(turn, func.count().over(partition_by=mine), p.id)
            .limit(limit)
        ).all()
    return [Due(row[0], SliceKey(row[1], row[2], row[3], row[4], row[5]), row[6], row[7]) for row in rows]


def waits(*assets: str) -> tuple[ColumnElement[bool], ...]:
    """Publications of these assets that are not committed: planned, or given up."""
    p = t.publication.c
    # By name, since a server takes what is unlike one value for most of the table; and unlike committed, since the
    # index leaves that out, and SQLite wants it said.
    return (p.state.in_(("planned", "failed")), p.state != "committed", p.asset.in_(sorted(assets)))


def _wanted() -> tuple[ColumnElement[bool], ...]:
    """What somebody has yet to land."""
    p, s = t.publication.c, t.slice_.c
    return (
        p.state == "planned",
        p.state != "committed",  # the index leaves out what is committed, and SQLite wants it said
        s.kind == "normal",
        s.is_open.is_(False),
    )


def waiting(engine: Engine, *, assets: Collection[str], topics: Collection[str] | None = None) -> dict[str, int]:
    """How many slices of each asset are planned and not landed; with `topics`, of these alone, as `due` has them."""
    p, s, src = t.publication.c, t.slice_.c, t.source.c
    shown = () if topics is None else (src.topic.in_(sorted(topics)),)
    with read(engine) as connection:
        rows = connection.execute(
            select(p.asset, func.count())
            .join_from(t.publication, t.slice_, p.slice_id == s.id)
            .join(t.source, s.source_id == t.source.c.id)
            .where(*_wanted(), p.asset.in_(sorted(assets)), src.retired_at.is_(None), *shown)
            .group_by(p.asset)
        ).all()
    return {row[0]: row[1] for row in rows}


def given_up(engine: Engine, *, assets: Collection[str]) -> dict[str, int]:
    """How many slices of each asset failed too often alone, and wait for somebody.

    Not those of a topic that was deleted since: they are recorded as lost, or landed by another asset, and there is
    nothing to be done.
    """
    p, s, c = t.publication.c, t.slice_.c, t.claim.c
    with read(engine) as connection:
        rows = connection.execute(
            select(p.asset, func.count())
            .join_from(t.publication, t.slice_, p.slice_id == s.id)
            .join(t.claim, c.publication_id == p.id)
            .where(p.asset.in_(sorted(assets)), p.state == "failed", p.state != "committed", s.kind == "normal")
            .where(not_gone())
            .group_by(p.asset)
        ).all()
    return {row[0]: row[1] for row in rows}


def rearm(engine: Engine, *, asset: str, code_version: str, max_attempts: int, limit: int = 100) -> int:
    """Plan again what was given up under other code than this: one more failure alone gives it up for good.

    At most so many at a time, and none that failed within `REARM_MS`: two deployments may differ for long.
    """
    p, s, c = t.publication.c, t.slice_.c, t.claim.c
    with read(engine) as connection:
        given_up_by_others = (
            select(p.id)
            .join_from(t.publication, t.slice_, p.slice_id == s.id)
            .join(t.claim, c.publication_id == p.id)
            .where(
                p.asset == asset,
                p.state == "failed",
                p.state != "committed",
                s.kind == "normal",
                p.code_version != code_version,
                c.lease_until.is_(None) | (c.lease_until <= now_ms() - REARM_MS),
            )
            .order_by(p.id)
            .limit(limit)
        )
        found = connection.scalars(uncommitted(given_up_by_others)).all()
    if not found:
        return 0
    with write(engine) as connection:
        lock_rows(connection, found)
        # Another tick may have been faster, and its run may hold one, or have given it up again.
        still = connection.scalars(
            select(p.id).where(p.id.in_(found), p.state == "failed", p.code_version != code_version)
        ).all()
        connection.execute(update(t.publication).where(p.id.in_(still)).values(state="planned", code_version=None))
        connection.execute(
            update(t.claim).where(c.publication_id.in_(still)).values(failures_alone=max_attempts - 1, not_before=None)
        )
    return len(still)


def live_runs(engine: Engine, *, asset: str) -> set[str]:
    """The runs that hold a live lease: whoever died holds none before long, whatever Dagster believes."""
    p, c = t.publication.c, t.claim.c
    # Claim by claim: PostgreSQL takes what is leased for a third of all claims, and joined it reads all publications.
    its = select(p.asset).where(p.id == c.publication_id).scalar_subquery()
    with read(engine) as connection:
        found = connection.scalars(select(c.run_id).where(its == asset, c.lease_until > now_ms()).distinct())
        return {run_id for run_id in found if run_id is not None}


def asked_for(engine: Engine, *, asset: str) -> set[str]:
    """The tokens of runs that were requested a short while ago and have not claimed their slices yet."""
    p, c = t.publication.c, t.claim.c
    with read(engine) as connection:
        found = connection.scalars(
            select(c.request_token)
            .join(t.publication, p.id == c.publication_id)
            .where(p.asset == asset, p.state == "planned", p.state != "committed", c.not_before > now_ms())
            .distinct()
        )
        return {token for token in found if token is not None}


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


def withdraw(engine: Engine, tokens: Collection[str], *, assets: Collection[str], run_id: str | None = None) -> None:
    """Take back requests of these assets' slices of which no run came and none will: they may be made again at once.

    What this run has claimed is left as it is, and so is what is held: its pause says when it is tried again.
    """
    p, c = t.publication.c, t.claim.c
    with write(engine) as connection:
        # Found by what is not committed, which has an index: tokens have none.
        found = connection.scalars(
            select(c.publication_id)
            .join(t.publication, p.id == c.publication_id)
            .where(*waits(*assets), c.request_token.in_(sorted(tokens)))
        ).all()
        connection.execute(
            update(t.claim)
            .where(
                c.publication_id.in_(found),
                c.request_token.in_(sorted(tokens)),
                c.not_before.is_not(None),
                c.requests > 0,
                c.run_id.is_distinct_from(run_id) if run_id else true(),
                c.lease_until.is_(None) | (c.lease_until <= now_ms()),
            )
            .values(not_before=None, requests=c.requests - 1)
        )
