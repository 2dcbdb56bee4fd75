"""How much of a partition waits to be landed, and what was jumped over: what skip_when_behind is decided by.

All of it is read from the slices themselves, so that there is nothing beside them to fall out of step. A
jump is a slice of kind `skipped` whose reason begins with SKIP_REASON; those that people skip begin otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Select, func, select

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.index_hints import by_start
from kafka_assets.ledger.publications import each
from kafka_assets.plan import SKIP_REASON, Backlog, SkipPolicy, jump
from kafka_assets.streams import Stream

Place = tuple[int, int]
"""A source's id, and a partition."""
LATELY = 200
"""So many of a partition's newest slices are looked at for what was skipped lately."""
_PAGE = 200


def policy_of(stream: Stream) -> SkipPolicy | None:
    """What the stream declares, as planning wants it."""
    said = stream.skip_when_behind
    return said and SkipPolicy(records=said.records, age=said.age, keep=said.keep, every=said.every)


def backlogs(
    engine: Engine,
    *,
    asset: str,
    source_id: int,
    ends: Mapping[int, tuple[int, int]],
    policy: SkipPolicy,
    young_from: Mapping[int, int],
) -> dict[int, Backlog]:
    """By partition what `jump` wants to know; `ends` gives its first offset that is not planned, and its last stable.

    To be read after `planned_through` was: whoever jumps in between moves that, and the plan is refused.
    """
    with read(engine) as connection:
        waiting = waiting_of(connection, asset=asset, source_id=source_id)
        found: dict[int, Backlog] = {}
        for partition, (at, end) in ends.items():
            one = replace(waiting.get(partition, Backlog()), young_from=young_from.get(partition))
            if jump(at, end, one, policy) is not None:  # else nobody cares when the last one was
                ago = last_jump_ms(connection, (source_id, partition), within=policy.every)
                one = replace(one, skipped_ms=ago)
            found[partition] = one
    return found


def waiting_of(connection: Connection, *, asset: str, source_id: int) -> dict[int, Backlog]:
    """By partition what is planned for an asset, and neither landed nor given up; none where there is nothing."""
    p, s = t.publication.c, t.slice_.c
    rows = connection.execute(
        select(s.partition, func.sum(s.end_offset - s.start_offset), func.min(s.start_offset))
        .join_from(t.publication, t.slice_, p.slice_id == s.id)
        .where(
            p.state == "planned",
            p.state != "committed",  # the index leaves out what is committed, and SQLite wants it said
            p.asset == asset,
            s.kind == "normal",
            s.is_open.is_(False),
            s.source_id + 0 == source_id,  # not by the index of the source's slices, which are all of history
        )
        .group_by(s.partition)
    ).all()
    return {row[0]: Backlog(waiting=int(row[1]), oldest=row[2]) for row in rows}


def last_jump_ms(connection: Connection, place: Place, *, within: timedelta) -> int | None:
    """How many ms ago the policy jumped last, on the database's clock; None where it was longer ago than `within`.

    The newest slices come first, and the look back ends where they are older than that: a long history costs nothing.
    """
    s = t.slice_.c
    before: int | None = None
    while True:
        page = by_start(
            select(s.start_offset, s.kind, s.reason, s.created_at, now_ms().label("now"))
            .where(s.source_id == place[0], s.partition == place[1])
            .order_by(s.start_offset.desc())
            .limit(_PAGE)
        )
        rows = connection.execute(page if before is None else page.where(s.start_offset < before)).all()
        for row in rows:
            ago = row.now - int(row.created_at.timestamp() * 1000)
            if ago >= within / timedelta(milliseconds=1):
                return None
            if row.kind == "skipped" and row.reason.startswith(SKIP_REASON):
                return max(0, ago)
        if len(rows) < _PAGE:
            return None
        before = rows[-1].start_offset


def database_ms(engine: Engine) -> int:
    """The time on the database's clock."""
    with read(engine) as connection:
        return int(connection.scalar(select(now_ms())) or 0)


def skipped_lately(connection: Connection, places: Sequence[Place]) -> int:
    """How many offsets the newest slices of these partitions leave out, by policy or by hand."""
    s = t.slice_.c
    left_out: list[Select[Any]] = []
    for source_id, partition in places:
        newest = by_start(
            select(s.kind, s.start_offset, s.end_offset)
            .where(s.source_id == source_id, s.partition == partition)
            .order_by(s.start_offset.desc())
            .limit(LATELY)
        ).subquery()
        offsets = func.sum(newest.c.end_offset - newest.c.start_offset)
        left_out.append(select(offsets.label("offsets")).where(newest.c.kind == "skipped"))
    return sum(int(row.offsets or 0) for row in each(connection, left_out))
