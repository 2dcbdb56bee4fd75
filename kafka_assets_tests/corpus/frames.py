"""Frames as Kafka's source gives them, made from bytes, and what the decoder says of each record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kafka_assets.records import OFFSET, Chunk, Seen
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
BAD = "_kafka_bad"
AT = datetime(2024, 1, 1, tzinfo=UTC)


def raw_frame(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    """One record for each value, its offset the value's place."""
    rows = [
        (b"key", value, "orders", 3, offset, AT, 0, [("trace", b"\xff"), ("none", None)])
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RAW)


def as_one(chunks: Iterable[Chunk]) -> Chunk:
    """What the tasks of a query give, in the order of its records: whichever task comes first."""
    found = list(chunks)
    seen: dict[SliceKey, Seen] = {}
    for key, part in (both for one in found for both in one.seen.items()):
        seen[key] = seen.get(key, Seen(fingerprint=0)) + part
    deletes = [one.deletes for one in found if one.deletes is not None]
    bad = sorted((one for chunk in found for one in chunk.bad), key=lambda one: one.offset)
    return Chunk(
        rows=_in_order([one.rows for one in found]),
        seen=seen,
        bad=tuple(bad),
        deletes=_in_order(deletes) if deletes else None,
    )


def _in_order(tables: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables)
    order: Any = np.argsort(table.column(OFFSET).to_numpy(), kind="stable")
    return table.take(order)


def decoded(
    spark: SparkSession, values: Sequence[bytes | None], *, schema: str, format: str = "json"
) -> list[dict[str, Any]]:
    """Each record's decoded columns, in the order of the values, and why it is bad."""
    from kafka_assets.spark.chunks import Opened
    from kafka_assets.spark.decode import beside, decode, good

    stream = Stream(name="s", topic="s", target="s", schema=schema, format=format)
    frame = decode(raw_frame(spark, values), stream)
    landed = good(frame, stream).toArrow()
    rows = [row | {BAD: None} for row in landed.to_pylist()]
    told = [{"kafka_offset": one.offset, BAD: one.reason} for one in Opened(beside(frame).toArrow(), []).bad()]
    rows += [dict.fromkeys(landed.column_names) | row for row in told]
    assert len(rows) == len(values)
    return sorted(rows, key=lambda row: row["kafka_offset"])
