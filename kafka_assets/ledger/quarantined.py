"""What is in quarantine: how much of what, and the records themselves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, func, select

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.engine import read

_EXAMPLE = 200
"""Characters of a reason that are an example."""


@dataclass(frozen=True)
class Reason:
    """Records of one asset that are bad for one kind of reason, in one field where it is one's."""

    asset: str
    code: str | None
    """None: they were put there by a version that had no codes."""
    field: str | None
    records: int
    example: str
    """The reason of one of them, in words."""
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True)
class Quarantined:
    """One bad record, as Kafka delivered it."""

    asset: str
    topic: str
    incarnation: int
    partition: int
    offset: int
    code: str | None
    field: str | None
    reason: str
    key_bytes: int | None
    value_bytes: int | None
    """How long they are in Kafka: of what is long the beginning is here."""
    key: bytes | None
    value: bytes | None
    headers: str | None
    timestamp_ms: int | None
    quarantined_at: datetime


def quarantine_reasons(engine: Engine, *, assets: Collection[str], limit: int) -> list[Reason]:
    """How many records each kind of reason has put in quarantine, most first, and no more kinds than `limit`."""
    q = t.quarantine.c
    found = func.count()
    example = func.min(func.substr(q.reason, 1, _EXAMPLE))
    with read(engine) as connection:
        rows = connection.execute(
            select(q.asset, q.code, q.field, found, example, func.min(q.quarantined_at), func.max(q.quarantined_at))
            .where(q.asset.in_(sorted(assets)))
            .group_by(q.asset, q.code, q.field)
            .order_by(found.desc(), q.asset, q.code, q.field)
            .limit(limit)
        ).all()
    return [Reason(*row) for row in rows]


def quarantined(
    engine: Engine, *, asset: str, partition: int | None = None, offset: int | None = None, limit: int = 20
) -> list[Quarantined]:
    """The records themselves, by place, beginning at an offset where one is given."""
    q, src = t.quarantine.c, t.source.c
    some = (
        select(t.quarantine)
        .where(q.asset == asset)
        .order_by(q.kafka_source, q.kafka_partition, q.kafka_offset)
        .limit(limit)
    )
    if partition is not None:
        some = some.where(q.kafka_partition == partition)
    if offset is not None:
        some = some.where(q.kafka_offset >= offset)
    # So many first, and then their topics: of a join MariaDB reads all there is, and sorts it.
    found = some.subquery()
    f = found.c
    statement = (
        select(
            f.asset, src.topic, src.incarnation, f.kafka_partition, f.kafka_offset, f.code, f.field, f.reason,
            f.key_bytes, f.value_bytes, f.key, f.value, f.headers, f.kafka_timestamp, f.quarantined_at,
        )
        .join_from(found, t.source, f.kafka_source == src.id)
        .order_by(f.kafka_source, f.kafka_partition, f.kafka_offset)
    )  # fmt: skip
    with read(engine) as connection:
        return [Quarantined(*row) for row in connection.execute(statement)]
