"""committed_through: per asset and partition, the offset below which everything is committed, lost or skipped."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, func, select, update

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
    done, s, g = t.committed, t.slice_.c, t.progress.c
    mine = and_(done.c.asset == asset, done.c.source_id == source_id, done.c.partition == partition)
    through = connection.scalar(select(done.c.committed_through).where(mine).with_for_update())
    if through is None:
        return
    lowest_open = (
        select(s.start_offset)
        .where(
            s.source_id == source_id,
            s.partition == partition,
            s.kind == "normal",
            # Everything below is done already. As a value: of a column of another table no planner knows how little
            # lies above it, and MariaDB seeks nothing by it.
            s.start_offset >= through,
            uncommitted_by(asset),
        )
        .order_by(s.start_offset)
        .limit(1)
        .scalar_subquery()
    )
    planned = select(g.planned_through).where(g.source_id == source_id, g.partition == partition).scalar_subquery()
    connection.execute(
        update(done).where(mine).values(committed_through=func.coalesce(lowest_open, planned), updated_at=now_ts())
    )


def uncommitted_by(asset: str) -> ColumnElement[bool]:
    """Whether this asset has no committed publication of the slice that a statement is at.

    Asked slice by slice, by the key of kafka_publication. A join or NOT EXISTS says the same, and leaves it to the
    server to read all publications there are first, which it does where it takes the slices for many.
    """
    p = t.publication.alias("its").c
    state = select(p.state).where(p.slice_id == t.slice_.c.id, p.asset == asset).scalar_subquery()
    return func.coalesce(state, "planned") != "committed"
