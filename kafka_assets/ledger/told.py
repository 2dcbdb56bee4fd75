"""What Dagster may have to be told of, a bounded part of the ledger at a time, whatever its history.

Publications are met in the order of their ids, which is the order in which they were planned. They commit in
another one, so whoever tells keeps a list of those that were met before they were committed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, case, func, select

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.gone import not_gone
from kafka_assets.ledger.windows import open_publications
from kafka_assets.slices import SliceKey


@dataclass(frozen=True)
class Told:
    """A publication, as far as Dagster cares."""

    id: int
    asset: str
    key: SliceKey
    lost: bool
    """Lost or skipped: nobody will ever land it."""
    given_up: bool
    """It failed too often: nobody asks for it, until somebody materializes its key by hand."""
    gone: bool
    """Its topic was deleted, and another asset has its rows: nobody will land it, and its key is the other's, too."""
    attempt: int | None
    """The attempt that committed it; None where none did, or where it is a live window that still grows."""
    run_id: str | None
    committed_at: datetime | None


def moment(connection: Connection) -> tuple[datetime, int]:
    """The database's time, and the highest id that a publication has."""
    row = connection.execute(select(now_ts(), func.max(t.publication.c.id))).one()
    return row[0], row[1] or 0


def between(connection: Connection, after: int, through: int, *, assets: Collection[str]) -> list[Told]:
    """The publications of these assets with ids in (after, through]."""
    p = t.publication.c
    return _found(connection, _told().where(p.id > after, p.id <= through, p.asset.in_(sorted(assets))))


def those(connection: Connection, ids: Collection[int]) -> list[Told]:
    """The publications with these ids, which are few."""
    return _found(connection, _told().where(t.publication.c.id.in_(sorted(ids)))) if ids else []


def unfinished(connection: Connection, *, assets: Collection[str]) -> set[int]:
    """The ids of what may still be committed, and of open windows: as many as there is backlog, not history.

    Also of what was given up: it may be landed, or skipped, by hand. What is lost, skipped or gone is finished.
    """
    p, s, c = t.publication.c, t.slice_.c, t.claim.c
    waits: ColumnElement[bool] = p.state.in_(("planned", "failed")) & (p.state != "committed")
    planned = connection.scalars(
        select(p.id)
        .join_from(t.publication, t.slice_, p.slice_id == s.id)
        .join(t.claim, c.publication_id == p.id)
        .where(waits, s.kind == "normal", p.asset.in_(sorted(assets)), not_gone())
    )
    return {*planned, *open_publications(connection)}


def _told() -> Any:
    p, s, src, c = t.publication.c, t.slice_.c, t.source.c, t.claim.c
    return (
        select(
            p.id, p.asset, p.state, p.committed_attempt, p.run_id, p.committed_at, s.kind, s.is_open, s.partition,
            s.start_offset, s.end_offset, src.topic, src.incarnation, case((not_gone(), 0), else_=1).label("gone"),
        )
        .join_from(t.publication, t.slice_, p.slice_id == s.id)
        .join(t.source, s.source_id == src.id)
        .join(t.claim, c.publication_id == p.id)
        .order_by(p.id)
    )  # fmt: skip


def _found(connection: Connection, statement: Any) -> list[Told]:
    return [_one(row) for row in connection.execute(statement)]


def _one(row: Row[Any]) -> Told:
    done = row.state == "committed" and not row.is_open
    failed = row.kind == "normal" and row.state == "failed"
    return Told(
        id=row.id,
        asset=row.asset,
        key=SliceKey(row.topic, row.incarnation, row.partition, row.start_offset, row.end_offset),
        lost=row.kind != "normal",
        given_up=failed and not row.gone,
        gone=failed and bool(row.gone),
        attempt=row.committed_attempt if done else None,
        run_id=row.run_id,
        committed_at=row.committed_at if done else None,
    )
