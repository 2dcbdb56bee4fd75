"""What users import in their own tests: an asset's function on records from a list, without broker or ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.names import KAFKA, SPARK
from kafka_assets.errors import StreamError
from kafka_assets.slices import Piece, SliceKey

RAW = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
"""The columns of Spark's Kafka source."""


@dataclass(frozen=True)
class Record:
    """A record for a test. A mapping as its value becomes JSON; None is a tombstone."""

    value: Mapping[str, Any] | str | bytes | None
    key: str | bytes | None = None
    timestamp: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ListRecords:
    """Stands in for the `kafka` resource: records from a list, at offsets 0, 1, 2, … of partition 0."""

    def __init__(self, records: Iterable[Record | Mapping[str, Any] | str | bytes | None]) -> None:
        self.records = [one if isinstance(one, Record) else Record(one) for one in records]

    def read(self, spark: SparkSession, pieces: Sequence[Piece]) -> DataFrame:
        rows = [
            _raw(self.records[offset], piece, offset)
            for piece in pieces
            for offset in range(piece.start, min(piece.end, len(self.records)))
        ]
        return spark.createDataFrame(rows, RAW)


@dataclass(frozen=True)
class Session:
    """Stands in for the `pyspark` resource."""

    spark_session: SparkSession


def run_asset(
    asset: dg.AssetsDefinition,
    records: Iterable[Record | Mapping[str, Any] | str | bytes | None],
    *,
    spark: SparkSession,
) -> DataFrame:
    """What a kafka_asset makes of these records, under `materialize_to_memory`; bad records are left out."""
    stream = stream_of(asset)
    if stream is None:
        raise StreamError("this asset was not declared with kafka_asset", cure="pass the decorated function")
    given = ListRecords(records)
    key = str(SliceKey(stream.topic or "topic", 1, 0, 0, max(1, len(given.records))))
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(stream.partitions_name, [key])
        result = dg.materialize_to_memory(
            [asset], partition_key=key, instance=instance, resources={KAFKA: given, SPARK: Session(spark)}
        )
        return cast(DataFrame, result.output_for_node(stream.name))


def _raw(record: Record, piece: Piece, offset: int) -> tuple[Any, ...]:
    return (
        _bytes(record.key),
        _bytes(record.value),
        piece.topic,
        piece.partition,
        offset,
        record.timestamp,
        0,
        [{"key": name, "value": value} for name, value in record.headers] or None,
    )


def _bytes(value: Mapping[str, Any] | str | bytes | None) -> bytes | None:
    if isinstance(value, Mapping):
        return json.dumps(value, default=str, ensure_ascii=False).encode()
    return value.encode() if isinstance(value, str) else value
