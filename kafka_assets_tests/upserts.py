"""Crafted chunks for upsert tables: what the tests of the merge are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from sqlalchemy import Engine

from kafka_assets.records import OFFSET, PARTITION, TIMESTAMP, Chunk, Seen
from kafka_assets.sinks.publish import Published
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Upsert
from kafka_assets_tests.ledgers import ASSET, Attempt, rows

BY_OFFSET = Upsert(("id",), "offset")
BY_TIMESTAMP = Upsert(("id",), "kafka_timestamp")
BY_COLUMN = Upsert(("id",), "rank")
PLACE = [(PARTITION, pa.int32()), (OFFSET, pa.int64())]
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), ("rank", pa.int32()), *PLACE])
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Put:
    """A record that became a row."""

    offset: int
    id: int | None
    note: str = "a"
    at: int = 0
    """What it is ordered by: seconds of Kafka's clock, or the column `rank`."""


@dataclass(frozen=True)
class Gone:
    """A record that deletes its key."""

    offset: int
    id: int
    at: int = 0


def chunk_of(key: SliceKey, *records: Put | Gone, upsert: Upsert = BY_OFFSET, read: int | None = None) -> Chunk:
    """A chunk of one slice, of these records."""
    puts = [one for one in records if isinstance(one, Put)]
    gone = [one for one in records if isinstance(one, Gone)]

    def table(of: list[Any], columns: Mapping[str, pa.Array[Any]]) -> pa.Table:
        carried: dict[str, Any] = dict(columns)
        if upsert.order_by == TIMESTAMP:
            carried[TIMESTAMP] = pa.array([EPOCH + timedelta(seconds=one.at) for one in of], pa.timestamp("us", "UTC"))
        carried["id"] = pa.array([one.id for one in of], pa.int64())
        carried["rank"] = pa.array([one.at for one in of], pa.int32())
        carried[PARTITION] = pa.array([key.partition] * len(of), pa.int32())
        carried[OFFSET] = pa.array([one.offset for one in of], pa.int64())
        return pa.table(carried)

    seen = Seen(read=len(records) if read is None else read, deleted=len(gone))
    return Chunk(
        rows=table(puts, {"note": pa.array([one.note for one in puts], pa.string())}),
        seen={key: seen},
        deletes=table(gone, {}) if gone else None,
    )


def target(engine: Engine, upsert: Upsert = BY_OFFSET) -> Table:
    schema = SCHEMA
    if upsert.order_by == TIMESTAMP:
        schema = schema.append(pa.field(TIMESTAMP, pa.timestamp("us", "UTC")))
    return ensure_table(engine, road_for(engine), name="orders", asset=ASSET, schema=schema, upsert=upsert)


def land(
    engine: Engine,
    key: SliceKey,
    *records: Put | Gone,
    upsert: Upsert = BY_OFFSET,
    confirm: Callable[[object], None] = lambda seen: None,
) -> list[Published]:
    """A run that lands these records of one slice, whatever was committed of it before."""
    attempt = Attempt(engine, [key], replaces=True).claim(force=True)
    return attempt.publish(chunk_of(key, *records, upsert=upsert), table=target(engine, upsert), confirm=confirm)


def standing(engine: Engine) -> dict[int, str]:
    """What the table says of each key."""
    return dict(rows(engine, "select id, note from orders order by id"))


def tombstones(engine: Engine) -> list[str]:
    return [row[0] for row in rows(engine, "select key_text from kafka_tombstone order by key_text")]


def counts(engine: Engine) -> list[tuple[int, ...]]:
    """Of each slice in order: read, landed, superseded, filtered, quarantined, tombstoned."""
    listed = "records_read, landed, superseded, filtered, quarantined, tombstoned"
    return rows(engine, f"select {listed} from kafka_publication order by id")
