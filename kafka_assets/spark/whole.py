"""A transform that looks at one slice as a whole: aggregates, deduplication.

The slice's records are kept in Spark first, and counted there. Else a transform that stops early (a limit, a join
with nothing) would leave records uncounted, and one that uses its records twice would read Kafka twice.
Its result comes to the publisher in one piece: it should be smaller than the slice, whose size `slices` limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from kafka_assets.records import OFFSET, ORDINAL, PARTITION, Chunk
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.chunks import Read, Transform, bad_records, good, landed_columns
from kafka_assets.spark.counts import PRINT, SIZE, counted_whole, fingerprint, seen_of, size
from kafka_assets.spark.decode import decode
from kafka_assets.spark.reached import reached
from kafka_assets.spark.result_size import let_through
from kafka_assets.streams import Stream


@reached()
@let_through()
def fetch_slice(pieces: Sequence[Piece], *, read: Read, stream: Stream, transform: Transform) -> Chunk:
    """A chunk that is one slice, all of it."""
    [piece] = pieces
    [part] = piece.slices
    raw = read(pieces)
    marked = raw.withColumns({SIZE: size().cast("BIGINT"), PRINT: fingerprint()})
    # Lost with an executor, it is not read again: the query fails, and the slice is attempted again.
    kept = _kept(decode(marked, format=stream.format, schema=stream.schema_, also=(SIZE, PRINT)))
    [found] = kept.agg(*counted_whole()).collect()
    seen = seen_of(found.asDict(), [part], stream)
    rows = landed_columns(transform(good(kept)), stream=stream).toArrow()
    bad = tuple(bad_records(raw, seen[part].bad, stream)) if seen[part].bad else ()
    return Chunk(rows=placed(rows, part), seen=seen, bad=bad)


def _kept(records: DataFrame) -> DataFrame:
    """The records, held by Spark.

    A client of Spark Connect takes what is held for the active session's of the process, whoever asked (4.2.0): where
    a process has several, another one, which does not know it.
    """
    kept = records.localCheckpoint(eager=True)
    session: Any = records.sparkSession
    if kept.sparkSession is session:
        return kept
    plan: Any = kept._plan  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]
    plan._spark_session = session
    return type(kept)(plan, session)


def placed(rows: pa.Table, part: SliceKey) -> pa.Table:
    """Rows at their slice's start, numbered. A replay may number them otherwise: it replaces all of them."""
    count = rows.num_rows
    places: dict[str, Any] = {
        PARTITION: pa.repeat(pa.scalar(part.partition, pa.int32()), count),
        OFFSET: pa.repeat(pa.scalar(part.start, pa.int64()), count),
        ORDINAL: pa.array(range(count), pa.int64()),
    }
    for name, column in places.items():
        rows = rows.append_column(name, column)
    return rows
