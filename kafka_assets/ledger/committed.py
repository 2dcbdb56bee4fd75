"""committed_through: per asset and partition, the offset below which everything is committed, lost or skipped."""

from __future__ import annotations

from sqlalchemy import Connection, and_, func, literal, select, update

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts


def advance_all(connection: Connection, *, source_id: int, partition: int) -> None:
    """Set committed_through of every asset that reads this partition: a slice that is lost or skipped is so for all."""
    done = t.committed.c
    assets = connection.scalars(
        select(done.asset).where(done.source_id == source_id, done.partition == partition)
    ).all()
    for asset in sorted(assets):
        advance(connection, asset=asset, source_id=source_id, partition=partition)


def advance(connection: Connection, *, asset: str, source_id: int, partition: int) -> None:
    """Set committed_through: lock its row, then a statement of its own.

    One statement for both would compute the value from a snapshot taken before it waited for the
    lock, and leave committed_through behind for ever (measured on PostgreSQL and MariaDB).
    """
    done = t.committed
    mine = and_(done.c.asset == asset, done.c.source_id == source_id, done.c.partition == partition)
    connection.execute(select(done.c.committed_through).where(mine).with_for_update()).all()
    committed = (
        select(literal(1))
        .where(
            t.publication.c.slice_id == t.slice_.c.id,
            t.publication.c.asset == asset,
            t.publication.c.state == "committed",
        )
        .exists()
    )
    lowest_open = (
        select(t.slice_.c.start_offset)
        .where(
            t.slice_.c.source_id == source_id,
            t.slice_.c.partition == partition,
            t.slice_.c.kind == "normal",
            # Everything below is done already: history must not slow a commit down.
            t.slice_.c.start_offset >= done.c.committed_through,
            ~committed,
        )
        .order_by(t.slice_.c.start_offset)
        .limit(1)
        .correlate(done)
        .scalar_subquery()
    )
    planned = (
        select(t.progress.c.planned_through)
        .where(t.progress.c.source_id == source_id, t.progress.c.partition == partition)
        .scalar_subquery()
    )
    connection.execute(
        update(done).where(mine).values(committed_through=func.coalesce(lowest_open, planned), updated_at=now_ts())
    )
