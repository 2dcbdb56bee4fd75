"""`@slice_asset`: an asset on the slices of another one, made of that one's committed rows."""

# No `from __future__ import annotations` here: Dagster checks the context's annotation itself, not its text.
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Self, cast

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Connection

from kafka_assets.assets.appearance import Appearance
from kafka_assets.assets.decorator import Transform, stream_of, version_of, wants_context
from kafka_assets.assets.landing import CHUNK_BYTES, CHUNK_OFFSETS, Landing, frame_of
from kafka_assets.assets.making import called, making
from kafka_assets.assets.names import IO_MANAGER, SPARK, Brought
from kafka_assets.broker.read import StoredRecord
from kafka_assets.errors import StreamError
from kafka_assets.records import OFFSET, ORDINAL, BadRecord, Chunk, Refused, Seen
from kafka_assets.sinks.committed_rows import CommittedRows
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.reached import reached
from kafka_assets.spark.transformed import landed_columns, placed
from kafka_assets.streams import Derived, Stream, declare


def slice_asset(
    *, upstream: dg.AssetsDefinition, target: str, name: str | None = None, **attributes: Any
) -> Callable[[Transform], dg.AssetsDefinition]:
    """Declare that the committed rows of `upstream` land in the table `target`, slice by slice, through the function.

    The function takes the rows (and `context`, if it wants it) and returns a DataFrame, as that of a
    `kafka_asset` does: the same rows for any subset, with `kafka_partition` and `kafka_offset`; with
    `scope="slice"` whatever it makes of all rows of one slice. The sensor asks for a slice once the upstream has
    committed it; replaying the upstream does not replay what was made of it.
    """

    def decorate(function: Transform) -> dg.AssetsDefinition:
        above = _appendable(upstream)
        _refuse_what_is_the_upstreams(name or function.__name__, attributes)
        shown, rest = Appearance.split({"description": inspect.getdoc(function), **attributes})
        stream = declare(
            Appearance.names(),
            name=name or function.__name__,
            topic=above.topic,
            topics=above.topics,
            # The keys are the upstream's: so is what becomes of them.
            keep_keys=above.keep_keys,
            target=target,
            schema=above.schema_,
            upstream=above.asset,
            upstream_target=above.target,
            root=above.root if isinstance(above, Derived) else above.name,
            **rest,
        )
        _refuse_rows_without_a_record(above, stream)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*`backfill_policy`.*", category=dg.BetaWarning)
            return _asset(cast(Derived, stream), function, shown, upstream.key)

    return decorate


def _asset(stream: Derived, function: Transform, shown: Appearance, upstream: dg.AssetKey) -> dg.AssetsDefinition:
    with_context = wants_context(function, stream, argument="rows")
    version = shown.code_version or version_of(function, stream)
    arguments = shown.arguments(stream, table=stream.target, kinds={"spark", "table"})
    arguments["metadata"].pop("dagster/column_schema")  # it is the upstream's, and the function's may be any
    asset: Any = cast("Callable[..., Any]", dg.asset)(
        name=stream.name,
        partitions_def=dg.DynamicPartitionsDefinition(name=stream.partitions_name),
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=IO_MANAGER,
        required_resource_keys={Brought(SPARK), Brought(IO_MANAGER)},
        deps=[upstream],
        code_version=version,
        description=shown.description or f"Rows of {stream.upstream} in the table {stream.target}.",
        **arguments,
    )

    def land(context: dg.AssetExecutionContext) -> Any:
        keys = tuple(sorted(SliceKey.parse(key) for key in context.partition_keys))

        def tell(key: str, metadata: Mapping[str, Any]) -> None:
            context.add_asset_metadata(dict(metadata), partition_key=key)

        with making(context, stream, keys, code_version=version):
            return DerivedLanding(
                stream=stream,
                keys=keys,
                spark=getattr(context.resources, SPARK).spark_session,
                records=_NoTopic(),
                transform=called(function, stream, context if with_context else None),
                code_version=version,
                tags=context.run.tags,
                run_id=context.run.run_id,
                tell=tell,
                rows=getattr(context.resources, IO_MANAGER).upstream_rows(stream, keys),
            ).frame()

    return asset(land)


class _NoTopic:
    """Stands where a landing has its topic: nothing of it is read, and the broker is not asked."""

    def read(self, spark: SparkSession, pieces: Sequence[Piece], *, at_once: int | None = None) -> DataFrame:
        raise NotImplementedError("rows come from the upstream's table")

    def stored(self, topic: str, partition: int, start: int, end: int) -> Iterable[StoredRecord]:
        raise NotImplementedError("rows come from the upstream's table")


@dataclass(frozen=True)
class DerivedLanding(Landing):
    """A landing whose records are the rows that another asset committed for the same slices."""

    rows: CommittedRows = field(kw_only=True, compare=False)

    def of(self, keys: Sequence[SliceKey]) -> Self:
        return replace(super().of(keys), rows=self.rows.of(keys))

    @property
    def recheck(self) -> Callable[[Connection], None]:
        return self.rows.recheck

    @property
    def fingerprints(self) -> Mapping[SliceKey, str]:
        return self.rows.fingerprints()

    def frame(self) -> DataFrame:
        """What the function gives for no rows: its columns. The rows are read chunk by chunk when it is landed."""
        return self.attached(self.made(frame_of(self.spark, self.rows.schema.empty_table())).drop(ORDINAL))

    def first(self) -> DataFrame:
        return self.frame()

    def chunks(self, read_from: Mapping[SliceKey, int], schema: pa.Schema) -> Callable[[], Any]:
        return partial(self._chunks, [key for key in self.keys if key in read_from])

    def refused(self, refused: Sequence[Refused]) -> Sequence[BadRecord]:
        """The rows of the upstream that these are made of, as JSON: this asset reads no topic."""
        return self.rows.as_records(refused)

    def _chunks(self, wanted: Sequence[SliceKey]) -> Iterator[Chunk]:
        if self.stream.scope == "slice":
            yield from map(self._whole, wanted)
            return
        # Rows of two topics, or of a topic's two lives, carry the same partitions and offsets: never in one chunk.
        for _, keys in groupby(sorted(wanted), key=lambda key: (key.topic, key.incarnation)):
            yield from self._chunks_of(list(keys))

    def _chunks_of(self, keys: Sequence[SliceKey]) -> Iterator[Chunk]:
        waiting: list[pa.Table] = []
        seen: dict[SliceKey, Seen] = {}
        for key in keys:
            seen[key] = Seen()
            for batch in self.rows.batches(key):
                waiting.append(batch)
                seen[key] += Seen(read=batch.num_rows)
                rows, size = sum(part.num_rows for part in waiting), sum(part.nbytes for part in waiting)
                if rows >= CHUNK_OFFSETS or size >= CHUNK_BYTES:
                    yield self._chunk(waiting, seen)
                    waiting, seen = [], {key: Seen()}
        if waiting or seen:
            yield self._chunk(waiting or [self.rows.schema.empty_table()], seen)

    def _whole(self, key: SliceKey) -> Chunk:
        """A slice in one piece, for a function that looks across its rows."""
        batches = list(self.rows.batches(key)) or [self.rows.schema.empty_table()]
        # A record that became several rows is one record.
        read = len({offset for batch in batches for offset in batch.column(OFFSET).to_pylist()})
        chunk = self._chunk(batches, {key: Seen(read=read)})
        return replace(chunk, rows=placed(chunk.rows, key))

    @reached()
    def _chunk(self, rows: list[pa.Table], seen: dict[SliceKey, Seen]) -> Chunk:
        # The number of a row in its slice is the upstream's; rows of this asset get their own.
        given = self.made(frame_of(self.spark, pa.concat_tables(rows))).drop(ORDINAL)
        return Chunk(rows=landed_columns(given, stream=self.stream).toArrow(), seen=seen)


def _refuse_what_is_the_upstreams(name: str, attributes: Mapping[str, Any]) -> None:
    if theirs := sorted({"topic", "topics", "schema", "keep_keys", "skip_when_behind"} & attributes.keys()):
        raise StreamError(
            f"stream {name!r}: {theirs[0]} is its upstream's",
            why="the two share their slices",
            cure=f"declare {theirs[0]} where the upstream is declared",
        )


def _refuse_rows_without_a_record(above: Stream, stream: Stream) -> None:
    if above.scope == "slice" and stream.scope != "slice":
        raise StreamError(
            f"stream {stream.name!r} looks at each row by itself, and those of {above.name!r} belong to no record",
            why=f"{above.name!r} has scope slice: its rows are a whole slice's, and share one offset",
            cure='declare scope="slice" here, too',
        )


def _appendable(upstream: dg.AssetsDefinition) -> Stream:
    above = stream_of(upstream)
    if above is None:
        raise StreamError(
            f"{upstream.key.to_user_string()!r} has no slices",
            why="it was declared neither with kafka_asset nor with slice_asset",
            cure="give an asset that was",
        )
    if above.upsert is not None:
        raise StreamError(
            f"stream {above.name!r} is of mode upsert, and its slices have no rows of their own",
            why="a later slice replaces what an earlier one wrote",
            cure="declare an unpartitioned @dg.asset with deps on it, which reads the whole table",
        )
    return above
