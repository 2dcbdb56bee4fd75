"""What is in quarantine: how much of what, and the records themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Select, func, literal, select

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.publications import each

LOOKED, LEAST = 1_000, 20
"""So many of an asset's bad records are counted by their reasons, the newest of each partition alike; but at least so
many of each. Nothing removes bad records, and whoever asks what is wrong does not wait for all that ever was."""
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
    more_records: bool
    """Whether the asset has bad records that were not looked at, of this kind or of others."""
    example: str
    """The reason of one of them, in words."""
    first_at: datetime
    last_at: datetime

    def with_more(self, other: Reason) -> Reason:
        """These and those of the same kind from another partition."""
        return replace(
            self,
            records=self.records + other.records,
            example=min(self.example, other.example),
            first_at=min(self.first_at, other.first_at),
            last_at=max(self.last_at, other.last_at),
        )


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
    """What kinds of reasons have put the newest records in quarantine, most first, and no more kinds than `limit`.

    Counted are the newest `LOOKED` of each asset: what it takes does not grow with what was bad long ago.
    """
    d = t.committed.c
    with read(engine) as connection:
        places = connection.execute(select(d.asset, d.source_id, d.partition).where(d.asset.in_(sorted(assets)))).all()
        partitions = Counter(place.asset for place in places)
        most = {asset: max(LEAST, LOOKED // number) for asset, number in partitions.items()}
        newest = [_newest(*place, limit=most[place.asset] + 1) for place in places]
        found: dict[tuple[str, str | None, str | None], Reason] = {}
        looked: Counter[tuple[str, int, int]] = Counter()
        for row in each(connection, newest):
            one = Reason(row.asset, row.code, row.field, row.records, False, row.example, row.first_at, row.last_at)
            kind = (one.asset, one.code, one.field)
            found[kind] = one.with_more(found[kind]) if kind in found else one
            looked[row.asset, row.source_id, row.partition] += row.records
    more = {asset for (asset, _, _), records in looked.items() if records > most[asset]}
    reasons = [replace(one, more_records=one.asset in more) for one in found.values()]
    reasons.sort(key=lambda one: (-one.records, one.asset, one.code or "", one.field or ""))
    return reasons[:limit]


def _newest(asset: str, source_id: int, partition: int, *, limit: int) -> Select[Any]:
    """The newest bad records of one partition, by the kind of their reason."""
    q = t.quarantine.c
    newest = (
        select(q.code, q.field, func.substr(q.reason, 1, _EXAMPLE).label("example"), q.quarantined_at)
        .where(q.asset == asset, q.kafka_source == source_id, q.kafka_partition == partition)
        # By all of the key, since a server takes one that is whole for the way to read it.
        .order_by(q.asset.desc(), q.kafka_source.desc(), q.kafka_partition.desc(), q.kafka_offset.desc())
        .limit(limit)
        .subquery()
    )
    n = newest.c
    return select(
        literal(asset).label("asset"),
        literal(source_id).label("source_id"),
        literal(partition).label("partition"),
        n.code,
        n.field,
        func.count().label("records"),
        func.min(n.example).label("example"),
        func.min(n.quarantined_at).label("first_at"),
        func.max(n.quarantined_at).label("last_at"),
    ).group_by(n.code, n.field)


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
