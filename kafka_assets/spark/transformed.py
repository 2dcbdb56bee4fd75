"""Records that land through a function of Spark DataFrames: of single records, or of one slice as a whole.

The records are decoded once and kept in Spark: the function is asked for its rows, and the packets for all else. So
a function that stops early (a limit, a join with nothing) leaves no record uncounted, one that uses its records twice
does not read Kafka twice, and what is told of a record is told of the same bytes as its row was made of.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

from kafka_assets.decode.contract import Reason
from kafka_assets.decode.names import HEADERS, VALUE
from kafka_assets.decode.upserts import keyless
from kafka_assets.errors import CountsDisagree, StreamError
from kafka_assets.records import CARRIED, KEY, OFFSET, ORDINAL, PARTITION, TIMESTAMP, BadRecord, Chunk, Seen
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.chunks import (
    Arriving,
    Opened,
    Read,
    TaskEnd,
    Transform,
    added,
    left,
    slices_of,
    tasks_of,
    upsert_of,
)
from kafka_assets.spark.decode import beside, decode, good, rows_in
from kafka_assets.spark.reached import reached
from kafka_assets.spark.result_size import let_through
from kafka_assets.spark.transport import arriving, bounded
from kafka_assets.streams import Stream, Upsert

Place = tuple[int, int]
"""A record's partition and offset."""
_OF_BAD = (PARTITION, OFFSET, KEY, VALUE, HEADERS, TIMESTAMP)
"""What is kept of a bad record."""


def landed_columns(transformed: DataFrame, *, stream: Stream) -> DataFrame:
    """What of the transform's result reaches the table; the record's own place must have survived."""
    # A slice's rows are told apart by the slice's own place: what they carry of a record's is not theirs.
    needed = {PARTITION, OFFSET} if stream.scope == "record" else set[str]()
    if stream.upsert is not None:
        needed |= {*stream.upsert.key, stream.upsert.order_by} - {"offset"}
    missing = sorted(needed - set(transformed.columns))
    if missing:
        raise StreamError(
            f"stream {stream.name!r}: the transform gives no {' and '.join(missing)}",
            why="a row is identified by its record's partition and offset, and in mode upsert by its key and order_by",
            cure="keep these columns: add them to your select",
        )
    return transformed.drop(*(name for name in (*CARRIED, PARTITION, OFFSET) if name not in needed))


def check_key(landed: T.StructType, upsert: Upsert) -> None:
    """Refuse a `kafka_key` that the transform made into something that no tombstone can be compared with."""
    if KEY in upsert.key and landed[KEY].dataType not in (T.BinaryType(), T.StringType()):
        raise StreamError(
            f"the transform makes kafka_key a {landed[KEY].dataType.simpleString().upper()}, and it is the table's key",
            why="a record that deletes carries it as bytes: it can stay so, or become text",
            cure="leave it BINARY, or cast it to STRING; or give the key another name, and declare that",
        )


def fetch_transformed(
    pieces: Sequence[Piece], *, read: Read, stream: Stream, transform: Transform, schema: pa.Schema, room: int
) -> Arriving:
    """What a transform makes of the records, in the columns of `schema`: one read of Kafka, and what is asked of it.

    A transform of single records is given those of all pieces, one of whole slices those of one slice. What is told of
    the records comes first, in a chunk for each task that has read some; then rows, in chunks of about `room` bytes.
    """
    slices = slices_of(pieces)
    upsert = upsert_of(stream, schema)
    whole = slices[0] if stream.scope == "slice" else None
    ends: list[TaskEnd] = []
    with reached(), let_through():
        packets = decode(read(pieces), stream, slices, upsert=upsert, room=None if whole else room)
    with held(packets) as kept:
        with closing(arriving(beside(kept))) as parts:
            for task in tasks_of(parts):
                told = Opened(task, slices, upsert=upsert)
                ends += told.ends()
                given = [told.chunk(_placed(schema.empty_table(), whole))]
                del task, told  # nothing here holds what the publisher is done with
                yield given.pop()
        with reached():
            # By their names: Spark would be asked once more which columns there are, in order to leave some out.
            made = transform(good(kept, stream)).select(*map(_quoted, schema.names))
        with closing(arriving(made)) as parts:
            count = 0
            keyless_before = set[Place]()
            for rows in bounded(parts, schema, room=room):
                chunk = Chunk(_placed(rows, whole, first=count), dict.fromkeys(slices, Seen(fingerprint=0)))
                count += rows.num_rows
                del rows
                if upsert is not None:
                    chunk = _with_keys(chunk, kept, stream, keyless_before)
                given = [chunk]
                del chunk
                yield given.pop()
    return left(pieces, ends)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _placed(rows: pa.Table, whole: SliceKey | None, *, first: int = 0) -> pa.Table:
    return rows if whole is None else placed(rows, whole, first=first)


@contextmanager
def held(records: DataFrame) -> Generator[DataFrame]:
    """The records, held by Spark until the block ends.

    What is lost with an executor is not read again: the query fails, and its slices are attempted again.
    """
    # A client of Spark Connect takes what is held for the active session's of the process, whoever asked (4.2.0):
    # where a process has several, another one, which does not know it.
    with reached(), let_through():
        kept = records.localCheckpoint(eager=True)
    session: Any = records.sparkSession
    if kept.sparkSession is not session:
        plan: Any = kept._plan  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]
        plan._spark_session = session
        kept = type(kept)(plan, session)
    try:
        yield kept
    finally:
        # A Connect server is told by the client, once nobody has the frame any more; a classic session waits for the
        # JVM's garbage collector.
        java: Any = getattr(kept, "_jdf", None)
        if java is not None:
            java.queryExecution().logical().rdd().unpersist(False)


def placed(rows: pa.Table, part: SliceKey, *, first: int = 0) -> pa.Table:
    """Rows at their slice's start, numbered. A replay may number them otherwise: it replaces all of them."""
    count = rows.num_rows
    places: dict[str, Any] = {
        PARTITION: pa.repeat(pa.scalar(part.partition, pa.int32()), count),
        OFFSET: pa.repeat(pa.scalar(part.start, pa.int64()), count),
        ORDINAL: pa.array(range(first, first + count), pa.int64()),
    }
    for name, column in places.items():
        rows = rows.append_column(name, column)
    return rows


def _with_keys(chunk: Chunk, kept: DataFrame, stream: Stream, known: set[Place]) -> Chunk:
    """The chunk without the rows that have no key or order value: their records are bad.

    Those that are `known` were told of with another chunk: a function may give several rows for one record.
    """
    assert stream.upsert is not None
    missing, reasons = keyless(chunk.rows, stream.upsert.needed)
    if not reasons:
        return chunk
    without = chunk.rows.filter(pa.array(missing)).select([PARTITION, OFFSET]).to_pydict()
    places = zip(without[PARTITION], without[OFFSET], strict=True)
    why = {place: reason for place, reason in zip(places, reasons, strict=True) if place not in known}
    known.update(why)
    bad = _records(rows_in(kept, stream, _OF_BAD), why) if why else []
    if len(bad) < len(why):
        raise CountsDisagree(
            f"{len(why)} rows have no key or order, and {len(bad)} records stand where they say that theirs do",
            why="the transform changed kafka_partition or kafka_offset",
            cure="let both columns through as they come",
        )
    seen = added(chunk.seen, bad)
    return replace(chunk, rows=chunk.rows.filter(pa.array(~missing)), seen=seen, bad=(*chunk.bad, *bad))


@reached()
def _records(records: DataFrame, why: dict[Place, Reason]) -> list[BadRecord]:
    """The records at these places, as they were read."""
    places = np.array(list(why), dtype=np.int64)
    wanted = records.sparkSession.createDataFrame(
        pa.table({"_partition": pa.array(places[:, 0], pa.int32()), "_offset": pa.array(places[:, 1])})
    )
    same = (F.col(PARTITION) == F.col("_partition")) & (F.col(OFFSET) == F.col("_offset"))
    found = records.join(F.broadcast(wanted), same)
    millis = F.unix_millis(TIMESTAMP).alias("timestamp")
    rows = found.select(PARTITION, OFFSET, KEY, VALUE, HEADERS, millis).toArrow().to_pylist()
    return [
        BadRecord(
            partition=row[PARTITION],
            offset=row[OFFSET],
            reason=(reason := why[row[PARTITION], row[OFFSET]]).words,
            key=row[KEY],
            value=row[VALUE],
            headers=tuple((one["key"], one["value"]) for one in row[HEADERS] or ()),
            timestamp=row["timestamp"],
            code=reason.code,
            field=reason.field or None,
        )
        for row in rows
    ]
