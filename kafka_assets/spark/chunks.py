"""From a lazy DataFrame to bounded Arrow chunks, two in flight, with what was seen at the source."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from kafka_assets.decode.batches import BAD, TOLD
from kafka_assets.errors import CountsDisagree, RecordsChanged, StreamError
from kafka_assets.records import CARRIED, OFFSET, PARTITION, BadRecord, Chunk, Seen
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.counts import PRINT, SIZE, all_counted, counted, counted_bad, seen_of
from kafka_assets.spark.decode import TOPIC, decode, millis, undecoded
from kafka_assets.spark.deletes import deletes_of, keyed, keyless, valued
from kafka_assets.spark.reached import reached
from kafka_assets.spark.result_size import let_through
from kafka_assets.streams import Stream, Upsert

IN_FLIGHT = 2
"""Measured: one leaves the publisher waiting, three make the executors fight (facts/writes.md)."""

Read = Callable[[Sequence[Piece]], DataFrame]
Transform = Callable[[DataFrame], DataFrame]


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
    return transformed.drop(*(name for name in (*CARRIED, TOPIC, PARTITION, OFFSET) if name not in needed))


def good(decoded: DataFrame) -> DataFrame:
    """The records that a transform sees."""
    return decoded.where(F.col(BAD).isNull()).drop(BAD, TOPIC, SIZE, PRINT)


def stream_chunks(plan: Sequence[Sequence[Piece]], fetch: Callable[[Sequence[Piece]], Chunk]) -> Iterator[Chunk]:
    """Fetch one chunk for each part of the plan, two at a time, and yield them in order."""
    with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="chunk") as pool:
        waiting = deque(plan)
        running: deque[Future[Chunk]] = deque()
        try:
            while waiting or running:
                while waiting and len(running) < IN_FLIGHT:
                    running.append(pool.submit(fetch, waiting.popleft()))
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


@reached()
@let_through()
def fetch_records(pieces: Sequence[Piece], *, read: Read, stream: Stream, transform: Transform) -> Chunk:
    """A chunk under a transform that looks at each record by itself: one query, counted as it passes."""
    slices = sorted({part for piece in pieces for part in piece.slices})
    raw = read(pieces)
    delivered, decoded = Observation(), Observation()
    records = valued(raw.observe(delivered, *counted(slices)), stream)
    records = decode(records, format=stream.format, schema=stream.schema_).observe(decoded, *counted_bad(slices))
    landed = landed_columns(transform(good(records)), stream=stream)
    rows = landed.toArrow()
    found = {**delivered.get, **decoded.get}
    offsets = sum(piece.end - piece.start for piece in pieces)
    if not all_counted(found, slices, offsets=0 if rows.num_rows else offsets):
        # Where a transform gives nothing whatever there is, as an inner join with an empty table does, Spark may not
        # look at the records at all, and drops what is to be observed of them (SPARK-54620).
        found = _counts_alone(raw, slices, stream)
    seen = seen_of(found, slices, stream)
    bad: list[BadRecord] = []
    if expected := sum(part.bad for part in seen.values()):
        bad += bad_records(raw, expected, stream)
    if stream.upsert is None:
        return Chunk(rows=rows, seen=seen, bad=tuple(bad))
    rows, places = keyed(rows, stream.upsert)
    if places.num_rows:
        whole = decode(valued(raw, stream), format=stream.format, schema=stream.schema_)
        unkeyed = keyless(raw, landed_columns(transform(good(whole)), stream=stream), stream.upsert)
        bad += fetched(unkeyed, places.num_rows, "records without key or order", transformed=True)
        seen = _added(seen, places, bad=1)
    deletes = None
    if expected := sum(part.deleted for part in seen.values()):
        found = deletes_of(raw, landed.schema, stream.upsert)
        deletes, refused = _told(found, expected, stream.upsert)
        bad += _bad(refused)
        seen = _added(seen, refused, bad=1, deleted=-1)
    return Chunk(rows=rows, seen=seen, bad=tuple(bad), deletes=deletes)


def _counts_alone(raw: DataFrame, slices: Sequence[SliceKey], stream: Stream) -> dict[str, Any]:
    """What is counted on the way of the records, by queries of its own."""
    records = decode(valued(raw, stream), format=stream.format, schema=stream.schema_)
    [delivered] = raw.agg(*counted(slices)).collect()
    [decoded] = records.agg(*counted_bad(slices)).collect()
    return {**delivered.asDict(), **decoded.asDict()}


def bad_records(raw: DataFrame, expected: int, stream: Stream) -> Iterator[BadRecord]:
    """The bad records with their bytes, read once more: a union with the good ones would read all of Kafka twice."""
    found = undecoded(valued(raw, stream), format=stream.format, schema=stream.schema_)
    return fetched(found, expected, "bad records")


def _told(found: DataFrame, expected: int, upsert: Upsert) -> tuple[pa.Table, pa.Table]:
    """The records that delete: those that tell their key, and those that do not."""
    records = _all_of(found, expected, "records that delete")
    told = pc.is_null(records.column("reason"))
    named = {name: TOLD + name if TOLD + name in records.column_names else name for name in upsert.needed}
    named |= {PARTITION: PARTITION, OFFSET: OFFSET}
    return records.filter(told).select(list(named.values())).rename_columns(list(named)), records.filter(
        pc.invert(told)
    )


def _added(seen: dict[SliceKey, Seen], records: pa.Table, *, bad: int, deleted: int = 0) -> dict[SliceKey, Seen]:
    """What was seen, with `bad` and `deleted` more of both for each of these records."""
    partitions, offsets = np.asarray(records.column(PARTITION)), np.asarray(records.column(OFFSET))
    more: dict[SliceKey, Seen] = {}
    for key, part in seen.items():
        inside = (partitions == key.partition) & (offsets >= key.start) & (offsets < key.end)
        count = int(inside.sum())
        more[key] = replace(part, bad=part.bad + bad * count, deleted=part.deleted + deleted * count)
    return more


def fetched(found: DataFrame, expected: int, what: str, *, transformed: bool = False) -> Iterator[BadRecord]:
    """The bytes of records that could not become rows, by a second read of the same offsets.

    `transformed`: they were found by what the transform gives, and it may not give the same twice.
    """
    return _bad(_all_of(found, expected, what, transformed=transformed))


def _all_of(found: DataFrame, expected: int, what: str, *, transformed: bool = False) -> pa.Table:
    records = found.withColumn("timestamp", millis()).toArrow()
    if records.num_rows == expected:
        return records
    said = f"{expected} {what} were counted, and {records.num_rows} found when their bytes were fetched"
    if transformed:
        raise CountsDisagree(
            said,
            why="the transform gives other rows each time, or the topic changed between the two reads",
            cure="let the transform give the same rows for the same records, and run the slice again",
        )
    raise RecordsChanged(
        said,
        why="the topic was compacted, or records expired, between the two reads",
        cure="nothing: the slice is asked for again",
    )


def _bad(records: pa.Table) -> Iterator[BadRecord]:
    parts = records.select([PARTITION, OFFSET, "reason", "key", "value", "headers", "timestamp"])
    for partition, offset, reason, key, value, headers, timestamp in (row.values() for row in parts.to_pylist()):
        yield BadRecord(
            partition=partition,
            offset=offset,
            reason=reason,
            key=key,
            value=value,
            headers=tuple((header["key"], header["value"]) for header in headers or ()),
            timestamp=timestamp,
        )
