"""Why slices wait that somebody wants landed: who holds them, what was asked for, what failed last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, select

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.index_hints import uncommitted
from kafka_assets.ledger.publications import batches, find
from kafka_assets.slices import SliceKey


@dataclass(frozen=True)
class Wait:
    """A slice that is planned and not landed, and why."""

    asset: str
    key: SliceKey
    why: str

    def said(self) -> str:
        return f"{self.key} waits: {self.why}"


def waits(engine: Engine, *, asset: str, limit: int) -> list[Wait]:
    """The oldest of an asset's slices that wait, and are not given up."""
    p, s, src, c = t.publication.c, t.slice_.c, t.source.c, t.claim.c
    with read(engine) as connection:
        oldest = (
            select(
                src.topic, src.incarnation, s.partition, s.start_offset, s.end_offset, s.is_open, c.run_id, c.failure,
                (c.lease_until - now_ms()).label("held_ms"), (c.not_before - now_ms()).label("pause_ms"),
            )
            .join_from(t.publication, t.slice_, p.slice_id == s.id)
            .join(t.source, s.source_id == src.id)
            .join(t.claim, c.publication_id == p.id)
            .where(
                p.asset == asset, p.state == "planned", p.state != "committed", s.kind == "normal",
                src.retired_at.is_(None),
            )
            .order_by(p.id)
            .limit(limit)
        )  # fmt: skip
        rows = connection.execute(uncommitted(oldest)).all()
    return [
        Wait(asset, SliceKey(row.topic, row.incarnation, row.partition, row.start_offset, row.end_offset), _why(row))
        for row in rows
    ]


@dataclass(frozen=True)
class Tried:
    """A slice after an attempt that failed."""

    key: SliceKey
    attempt: int
    failures_alone: int
    given_up: bool
    waits: bool
    """Whether it is planned, so that it is tried again; what was committed before stays as it is."""
    wait_ms: int
    """In so long; never below 0."""


def tried(engine: Engine, *, asset: str, keys: Sequence[SliceKey]) -> list[Tried]:
    """How these slices stand now; KeysUnknown where the ledger does not have one of them."""
    by_id = {one.id: one for one in find(engine, asset=asset, keys=keys).values()}
    c = t.claim.c
    wanted = select(c.publication_id, c.attempt, c.failures_alone, c.not_before - now_ms())
    with read(engine) as connection:
        rows = [
            row for some in batches(list(by_id)) for row in connection.execute(wanted.where(c.publication_id.in_(some)))
        ]
    return [
        Tried(
            key=by_id[row[0]].key,
            attempt=row[1],
            failures_alone=row[2],
            given_up=by_id[row[0]].state == "failed",
            waits=by_id[row[0]].state == "planned",
            wait_ms=max(0, row[3] or 0),
        )
        for row in rows
    ]


def _why(row: Any) -> str:
    held, pause = row.held_ms or 0, row.pause_ms or 0
    if row.is_open:
        return "a live consumer is growing it"
    if held > 0:
        return f"the run {row.run_id} holds it, for {_seconds(held)} more unless it goes on"
    again = f"tried again in {_seconds(pause)}" if pause > 0 else "to be tried again"
    if row.failure:
        return f"{again}; the last attempt failed: {row.failure}"
    return f"a run was asked for and has not come; asked for again in {_seconds(pause)}" if pause > 0 else again


def _seconds(ms: int) -> str:
    return f"{-(-ms // 1000)} s"
