"""Up to where an asset has committed: what a hand-written consumer asked its offset table."""

from __future__ import annotations

from sqlalchemy import Engine, select

from kafka_assets.ledger import views
from kafka_assets.ledger.engine import read

Where = tuple[str, int]


def next_offsets(engine: Engine, *, group: str) -> dict[Where, int]:
    """The next offset of each partition of the topics that a group, which is an asset, reads now."""
    v = views.committed_offset.table.c
    with read(engine) as connection:
        rows = connection.execute(
            select(v.topic, v.topic_partition, v.next_offset)
            .where(v.consumer_group == group)
            .order_by(v.topic, v.topic_partition)
        ).all()
    return {(row[0], row[1]): row[2] for row in rows}


def next_offset(engine: Engine, *, group: str, topic: str, partition: int, default: int | None = None) -> int | None:
    """The offset below which everything is committed, lost or skipped; the default where the ledger knows nothing."""
    return next_offsets(engine, group=group).get((topic, partition), default)


def last_offset(engine: Engine, *, group: str, topic: str, partition: int, default: int | None = None) -> int | None:
    """The last offset of which that is so, one below the next; the default where none is, or nothing is known."""
    found = next_offset(engine, group=group, topic=topic, partition=partition)
    return default if not found else found - 1
