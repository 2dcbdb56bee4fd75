"""Frames as Kafka's source gives them, made from bytes, and what the decoder says of each record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
AT = datetime(2024, 1, 1, tzinfo=UTC)


def raw_frame(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    """One record for each value, its offset the value's place."""
    rows = [
        (b"key", value, "orders", 3, offset, AT, 0, [("trace", b"\xff"), ("none", None)])
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RAW)


def decoded(
    spark: SparkSession, values: Sequence[bytes | None], *, schema: str, format: str = "json"
) -> list[dict[str, Any]]:
    """Each record's decoded columns, in the order of the values."""
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

    from kafka_assets.spark.decode import decode

    frame = decode(raw_frame(spark, values), format=format, schema=schema)
    # What a bad record's columns hold means nothing, and may be more than Python can hold.
    good = F.col("_kafka_bad").isNull()
    shown = [F.when(good, F.col(f"`{name}`")).alias(name) for name in frame.columns if "kafka" not in name]
    told = [name for name in frame.columns if "kafka" in name]
    rows = frame.select(*shown, *told).toArrow().to_pylist()
    assert len(rows) == len(values)
    return sorted(rows, key=lambda row: row["kafka_offset"])
