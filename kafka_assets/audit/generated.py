"""Records without a broker and without Spark: what publishing alone costs is measured with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from kafka_assets.ledger import planning
from kafka_assets.ledger.claims import claim, release
from kafka_assets.ledger.publications import find
from kafka_assets.plan import NewSlice, Offsets
from kafka_assets.records import OFFSET, PARTITION, Chunk, Seen
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.publish import Published, Work, publish
from kafka_assets.sinks.road import Road, Table
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey

CHUNK = 250_000
RECORD_BYTES = 200
"""What a record takes as JSON, about: an order with a note of this many characters."""
_NOTE = 120

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("placed_at", pa.timestamp("us", tz="UTC")),
        ("note", pa.string()),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
    ]
)


@dataclass(frozen=True)
class Orders:
    """So many orders, in one partition; a chunk is made anew each time, from values that all chunks share."""

    records: int

    def tables(self) -> Iterator[pa.Table]:
        for start in range(0, self.records, CHUNK):
            yield self._table(start, min(CHUNK, self.records - start))

    def chunks(self, key: SliceKey) -> Iterator[Chunk]:
        for rows in self.tables():
            yield Chunk(rows=rows, seen={key: Seen(read=rows.num_rows, bytes_read=rows.num_rows * RECORD_BYTES)})

    def _table(self, start: int, count: int) -> pa.Table:
        numbers = pa.array(np.arange(start, start + count), pa.int64())
        partition = pa.array(np.zeros(count, dtype=np.int32))
        columns: list[Any] = [numbers, *(column[:count] for column in self._shared), partition, numbers]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    @cached_property
    def _shared(self) -> list[Any]:
        chance = np.random.default_rng(0)
        count = min(CHUNK, self.records)
        first = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000)
        letters = chance.integers(97, 123, size=count * _NOTE, dtype=np.uint8).tobytes().decode()
        names = ("ada", "grace", "linus", "edsger", "barbara", "donald", "margaret", "tim")
        amounts = [Decimal(cents).scaleb(-2) for cents in chance.integers(100, 100_000, size=count).tolist()]
        return [
            pa.array([f"{names[one % 8]} {one}" for one in chance.integers(0, 1000, size=count)], pa.string()),
            pa.array(amounts, pa.decimal128(12, 2)),
            pa.array(first + np.arange(count) * 1_000_000, pa.timestamp("us", tz="UTC")),
            pa.array([letters[at : at + _NOTE] for at in range(0, len(letters), _NOTE)], pa.string()),
        ]


def fresh_table(engine: Engine, road: Road, name: str) -> Table:
    """A new table of orders, which the asset of its name owns."""
    return ensure_table(engine, road, name=name, asset=name, schema=SCHEMA)


def planned_slice(engine: Engine, *, asset: str, records: int) -> SliceKey:
    """One slice of all records, in a ledger where nothing is planned for this asset."""
    source = planning.resolve_source(engine, stream=asset, topic="orders", topic_id=asset)
    planning.observe(engine, source, offsets={0: Offsets(0, records, records)}, origins={0: 0}, asset=asset)
    planned = planning.commit_plan(engine, source, 0, expected=0, slices=[NewSlice(0, records)], asset=asset)
    assert planned is not None
    return planned[0]


def publish_orders(engine: Engine, road: Road, table: Table, orders: Orders, key: SliceKey) -> list[Published]:
    """Claim and publish them as a run does: one slice, one transaction."""
    claims = claim(engine, list(find(engine, asset=table.name, keys=[key]).values()), run_id="generated")
    published = publish(
        engine,
        road,
        Work(
            claims=claims,
            table=table,
            chunks=lambda: orders.chunks(key),
            confirm=lambda seen: None,
            expired={},
            bad_policy=BadPolicy("fail", 0.0),
            run_id="generated",
            code_version="generated",
            replaces=False,
        ),
    )
    release(engine, claims)
    return published
