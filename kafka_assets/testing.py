"""What users import in their own tests: an asset's function on a list, without services, or with real ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Connection

from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.landing import frame_of, landing_of
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK
from kafka_assets.broker.read import StoredRecord
from kafka_assets.errors import StreamError
from kafka_assets.live.handling import Again, Handling, Raised
from kafka_assets.live.listener import Listener
from kafka_assets.records import OFFSET, PARTITION
from kafka_assets.schema import declared, landed_schema
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.streams import Derived

if TYPE_CHECKING:
    from kafka_assets.services import Services, local_services

__all__ = [
    "GivenRows",
    "Heard",
    "ListRecords",
    "Record",
    "Services",
    "Session",
    "local_services",
    "run_asset",
    "run_listener",
]

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

    def read(self, spark: SparkSession, pieces: Sequence[Piece], *, at_once: int | None = None) -> DataFrame:
        """The records of these ranges; `at_once` is a hint for brokers."""
        rows = [
            _raw(self.records[offset], piece, offset)
            for piece in pieces
            for offset in range(piece.start, min(piece.end, len(self.records)))
        ]
        return spark.createDataFrame(rows, RAW)

    def stored(self, topic: str, partition: int, start: int, end: int) -> Iterable[StoredRecord]:
        """Not asked for: nothing refuses what is made in memory."""
        raise NotImplementedError("no table is written")


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
    """What a kafka_asset makes of these records, or a slice_asset of these rows of its upstream.

    It runs under Dagster, in memory; bad records are left out. Rows are mappings, all in one slice.
    """
    given = list(records)
    stream = stream_of(asset)
    if stream is None:
        raise StreamError(
            "this asset was declared neither with kafka_asset nor with slice_asset", cure="pass the decorated function"
        )
    key = str(SliceKey(stream.topic or "topic", 1, 0, 0, max(1, len(given))))
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(stream.partitions_name, [key])
        if isinstance(stream, Derived):
            rows = GivenRows(given_rows(stream, given))
            dg.materialize(
                [asset], partition_key=key, instance=instance, resources={IO_MANAGER: rows, SPARK: Session(spark)}
            )
            return rows.made[0]
        result = dg.materialize_to_memory(
            [asset], partition_key=key, instance=instance, resources={KAFKA: ListRecords(given), SPARK: Session(spark)}
        )
        return cast(DataFrame, result.output_for_node(stream.name))


@dataclass(frozen=True)
class Heard:
    """What became of a listener's records beside what its function did."""

    quarantined: list[tuple[StoredRecord, Exception]]
    pauses: list[float]
    """The seconds that it would have waited before each further try."""


def run_listener(
    listener: Listener,
    records: Iterable[Record | Mapping[str, Any] | str | bytes | None],
    *,
    sql: Connection | None = None,
    producer: Any = None,
) -> Heard:
    """Hand these records to a listener as `run_listeners` would, without a broker: tries, quarantine, on_error.

    They stand at offsets 0, 1, 2, … of partition 0. `sql` and `producer` are for functions that take them; what a
    record raised that nothing handles, is raised here.
    """
    heard = Heard([], [])

    def quarantine(record: StoredRecord, error: Exception, tries: int) -> None:
        heard.quarantined.append((record, error))

    handling = Handling(
        listener,
        pause=heard.pauses.append,
        quarantine=quarantine if listener.quarantine else None,
        sql=None if sql is None else lambda: sql,
        producer=producer,
    )
    topic = listener.topics if isinstance(listener.topics, str) else listener.topics[0]
    given = [one if isinstance(one, Record) else Record(one) for one in records]
    stored = [_stored(record, topic, offset) for offset, record in enumerate(given)]
    size = listener.max_records if listener.batch else 1
    for at in range(0, len(stored), size):
        while True:
            try:
                handling(stored[at : at + size])
                handling.committed(stored[at : at + size])
                break
            except Again as again:
                heard.pauses.append(again.seconds)
            except Raised as raised:
                raise raised.error from raised.error.__cause__
    return heard


def _stored(record: Record, topic: str, offset: int) -> StoredRecord:
    return StoredRecord(
        topic=topic,
        partition=0,
        offset=offset,
        key=as_bytes(record.key),
        value=as_bytes(record.value),
        timestamp_ms=int(record.timestamp.timestamp() * 1000),
        headers=record.headers,
    )


def __getattr__(name: str) -> Any:
    """The real services stand in a module of their own, which knows this one: it is loaded when somebody asks."""
    if name in {"Services", "local_services"}:
        from importlib import import_module

        return getattr(import_module("kafka_assets.services"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class GivenRows(dg.IOManager):
    """Stands in for the IO manager of a slice_asset: the rows of its upstream are given, and its own are kept."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.schema = rows.schema
        self.made: list[DataFrame] = []

    def upstream_rows(self, stream: Derived, keys: Sequence[SliceKey]) -> GivenRows:
        return self

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        landing = landing_of(obj)
        assert landing is not None
        self.made.append(landing.made(frame_of(landing.spark, self.rows)))

    def load_input(self, context: dg.InputContext) -> object:
        raise NotImplementedError("its upstream's rows come from a list")


def given_rows(stream: Derived, given: Sequence[object]) -> pa.Table:
    """Rows as the upstream's table would give them: fields as declared, the rest as what they are."""
    if wrong := [one for one in given if not isinstance(one, Mapping)]:
        raise StreamError(
            f"{wrong[0]!r} is no row",
            why=f"{stream.name!r} is made of the rows that {stream.upstream!r} has committed, and not of records",
            cure="give mappings of its columns",
        )
    rows = cast("Sequence[Mapping[str, Any]]", given)
    kinds = dict(zip(*_columns(stream), strict=True))
    names = list(dict.fromkeys([*kinds, *(name for row in rows for name in row)]))
    columns: dict[str, Any] = {}
    for name in names:
        kind = kinds.get(name)
        values = [row.get(name) for row in rows]
        if kind is not None and pa.types.is_decimal(kind):
            values = [None if one is None else Decimal(str(one)) for one in values]
        columns[name] = pa.array(values, kind)
    places = {PARTITION: pa.array([0] * len(rows), pa.int32()), OFFSET: pa.array(range(len(rows)), pa.int64())}
    return pa.table({**places, **columns})


def _columns(stream: Derived) -> tuple[list[str], list[Any]]:
    schema = landed_schema(declared(stream.schema_, stream.format))
    return schema.names, [pa.string() if pa.types.is_nested(one) else one for one in schema.types]


def _raw(record: Record, piece: Piece, offset: int) -> tuple[Any, ...]:
    return (
        as_bytes(record.key),
        as_bytes(record.value),
        piece.topic,
        piece.partition,
        offset,
        record.timestamp,
        0,
        [{"key": name, "value": value} for name, value in record.headers] or None,
    )


def as_bytes(value: Mapping[str, Any] | str | bytes | None) -> bytes | None:
    """A record's key or value as a producer sends it."""
    if isinstance(value, Mapping):
        return json.dumps(value, default=str, ensure_ascii=False).encode()
    return value.encode() if isinstance(value, str) else value
