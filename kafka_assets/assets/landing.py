"""What an asset's function leaves behind for the IO manager: how to read its slices again, chunk by chunk.

The function returns a lazy DataFrame, so that it can be tested as any Spark function. To land it in
bounded chunks, the IO manager needs to apply the function to each chunk's records; a `Landing`
travels with the DataFrame for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, Self, runtime_checkable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from sqlalchemy import Connection

from kafka_assets.assets.refused import fetch_refused
from kafka_assets.broker.offsets import TopicOffsets
from kafka_assets.broker.read import StoredRecord
from kafka_assets.records import BadRecord, Chunk, Refused
from kafka_assets.sinks.steps import Steps
from kafka_assets.slices import Piece, SliceKey, pieces
from kafka_assets.spark.chunks import Arriving, Sizes, Transform, fetch_landed, plain_schema, stream_chunks
from kafka_assets.spark.decode import decode, good
from kafka_assets.spark.landed_types import refuse_types
from kafka_assets.spark.reached import reached
from kafka_assets.spark.source import Raw, with_values
from kafka_assets.spark.transformed import check_key, fetch_transformed, landed_columns, placed
from kafka_assets.streams import Stream

CHUNK_OFFSETS = 250_000
"""Of what a function makes rows of that were committed before. Measured: smaller chunks pay Spark's fixed cost too
often, bigger ones only take memory."""

CHUNK_BYTES = 16 << 20
"""Of records, or of what is made of them: while the publisher has one chunk, others wait."""

QUERY_OFFSETS = 1_000_000
QUERY_BYTES = 64 << 20
"""Of records that are read by one query, in tasks of about a chunk: each query costs a third of a second, and more
while its server is cold. What its tasks have given waits in Spark's driver, or Spark holds it for a function, for two
queries at a time."""

CHUNK_SLICES = 20
"""A worker counts each slice of a chunk by itself."""

ALL = 2**63 - 1

_ATTRIBUTE = "_kafka_assets_landing"


class Records(Protocol):
    """Where raw records come from: a broker, or a list in a test."""

    def read(self, spark: SparkSession, pieces: Sequence[Piece], *, at_once: int | None = None) -> Raw:
        """The records of these ranges; `at_once`: offsets that a task of Spark's should have at most."""
        ...

    def stored(self, topic: str, partition: int, start: int, end: int) -> Iterable[StoredRecord]:
        """The records of one range, read by this process."""
        ...


@runtime_checkable
class Observed(Protocol):
    """Records that can say where their topics begin and end now, as a broker can and a list in a test need not."""

    def observe(self, topics: Sequence[str]) -> Mapping[str, TopicOffsets]: ...


@dataclass(frozen=True)
class Landing:
    """One run's slices of one stream, and everything needed to read them again."""

    stream: Stream
    keys: tuple[SliceKey, ...]
    spark: SparkSession
    records: Records
    transform: Transform | None
    """None: the records land as they come."""
    code_version: str
    tags: Mapping[str, str]
    run_id: str
    tell: Callable[[str, Mapping[str, Any]], None] = field(compare=False)
    """Attaches metadata to one key of the run's materialization."""
    steps: Steps = field(default_factory=Steps, compare=False)
    """The stopwatch of its transaction; the first one's has what the run did before."""
    sizes: Sizes = field(default_factory=lambda: Sizes(QUERY_BYTES), compare=False)
    """What was learned of the records' sizes, by all of the run's transactions."""

    def of(self, keys: Sequence[SliceKey]) -> Self:
        """The same for some of its slices, which land in a transaction of their own, with a stopwatch of its own."""
        return replace(self, keys=tuple(keys), steps=Steps())

    @property
    def recheck(self) -> Callable[[Connection], None] | None:
        """What is asked again just before COMMIT, where the records are another asset's rows."""
        return None

    @property
    def fingerprints(self) -> Mapping[SliceKey, str]:
        return {}

    @property
    def plain(self) -> bool:
        """Whether Spark's workers make the rows as they land."""
        return self.transform is None and self.stream.scope == "record"

    def decoded(self, some: Sequence[Piece]) -> DataFrame:
        raw = self.records.read(self.spark, some)
        if self.stream.upsert is not None:
            raw = with_values(raw)
        return good(decode(raw, self.stream), self.stream)

    def made(self, records: DataFrame) -> DataFrame:
        """What the asset's function gives for these records."""
        return records if self.transform is None else self.transform(records)

    def frame(self) -> DataFrame:
        """The whole of it, lazily: what the asset's function gives for all slices of the run."""
        if self.stream.scope == "slice":
            frame = united([self.made(self.decoded(some)) for some in _whole(self.keys)])
        else:
            reads = [self.decoded(some) for some in pieces(self.keys, max_offsets=ALL, max_slices=len(self.keys))]
            frame = self.made(united(reads))
        return self.attached(frame)

    def first(self) -> DataFrame:
        """What the function gives for the first slice of the run alone."""
        return self.made(self.decoded(_whole(self.keys[:1])[0]))

    def attached(self, frame: DataFrame) -> DataFrame:
        """The frame, with this on it for the IO manager."""
        setattr(frame, _ATTRIBUTE, self)
        return frame

    @reached()
    def schema(self, frame: DataFrame) -> pa.Schema:
        """The columns that reach the table, as Arrow types; asks Spark to analyse a function's, not to read.

        Of whole slices it asks for one: the function gives all of them the same, and each takes Spark a while.
        """
        if self.plain:
            return plain_schema(self.stream)
        if self.stream.scope == "slice" and len(self.keys) > 1:
            frame = self.first()
        landed = landed_columns(frame, stream=self.stream).schema
        refuse_types(landed)
        if self.stream.upsert is not None:
            check_key(landed, self.stream.upsert)
        return to_arrow_schema(landed, timezone="UTC")

    def chunks(self, read_from: Mapping[SliceKey, int], schema: pa.Schema) -> Callable[[], Any]:
        """Bounded chunks, or one for each slice, from the offset of each that can still be read.

        Slices that do not stand in `read_from` are not read: another run has committed them. `schema` is what
        `schema()` gave.
        """
        readable = [part for part in self.keys if part in read_from and read_from[part] < part.end]
        plan = pieces(readable, max_offsets=QUERY_OFFSETS, max_slices=CHUNK_SLICES, read_from=read_from)
        if self.stream.scope == "slice":
            plan = _whole(readable, read_from)

        def read() -> Any:
            if not plan:
                return iter((self._nothing(schema),))
            return stream_chunks(
                plan,
                lambda some, at_once: self._arriving(some, at_once, schema),
                sizes=None if self.stream.scope == "slice" else self.sizes,
            )

        return read

    def _arriving(self, some: Sequence[Piece], at_once: int | None, schema: pa.Schema) -> Arriving:
        fetch = fetch_landed if self.plain else partial(fetch_transformed, transform=self.made, schema=schema)
        return fetch(
            some,
            read=partial(self.records.read, self.spark, at_once=at_once),
            stream=self.stream,
            room=CHUNK_BYTES,
        )

    def _nothing(self, schema: pa.Schema) -> Chunk:
        """Every record expired: an empty chunk keeps the books of each slice."""
        rows = schema.empty_table()
        return Chunk(rows=placed(rows, self.keys[0]) if self.stream.scope == "slice" else rows, seen={})

    def refused(self, refused: Sequence[Refused]) -> Sequence[BadRecord]:
        """The records whose rows the table refuses, with their bytes: they are quarantined."""
        return fetch_refused(refused, stored=self.records.stored)


def _whole(keys: Sequence[SliceKey], read_from: Mapping[SliceKey, int] = MappingProxyType({})) -> list[list[Piece]]:
    """Each slice by itself, uncut."""
    return pieces(keys, max_offsets=ALL, max_slices=1, read_from=read_from)


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """All of them under each other, by halves: a plan as deep as there are slices is more than Spark can take."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return united(frames[:half]).unionByName(united(frames[half:]))


def landing_of(frame: object) -> Landing | None:
    """The landing that travels with a DataFrame that a `kafka_asset` returned."""
    return getattr(frame, _ATTRIBUTE, None)


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Arrow as a DataFrame, also where it has no rows: Spark would then ask what its columns are."""
    return spark.createDataFrame(rows) if rows.num_rows else spark.createDataFrame([], from_arrow_schema(rows.schema))
