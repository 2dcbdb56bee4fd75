"""From a lazy DataFrame to bounded Arrow chunks, two in flight, with what was seen at the source."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from kafka_assets.errors import CountsDisagree, StreamError
from kafka_assets.records import CARRIED, OFFSET, PARTITION, BadRecord, Chunk, Seen
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.decode import BAD, TOPIC, decode, undecoded
from kafka_assets.streams import Stream

IN_FLIGHT = 2
"""Measured: one leaves the publisher waiting, three make the executors fight (facts/writes.md)."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Read = Callable[[Sequence[Piece]], DataFrame]
Transform = Callable[[DataFrame], DataFrame]


def landed_columns(transformed: DataFrame, *, stream: str) -> DataFrame:
    """What of the transform's result reaches the table; the record's own place must have survived."""
    missing = [name for name in (PARTITION, OFFSET) if name not in transformed.columns]
    if missing:
        raise StreamError(
            f"stream {stream!r}: the transform dropped {' and '.join(missing)}",
            why="a row is identified by its record's partition and offset",
            cure="keep both columns: add them to your select",
        )
    return transformed.drop(*(name for name in (*CARRIED, TOPIC) if name in transformed.columns))


def good(decoded: DataFrame) -> DataFrame:
    """The records that a transform sees."""
    return decoded.where(F.col(BAD).isNull()).drop(BAD, TOPIC)


def stream_chunks(
    plan: Sequence[Sequence[Piece]], *, read: Read, stream: Stream, transform: Transform
) -> Iterator[Chunk]:
    """Run one query per chunk, two at a time, and yield the results in order."""

    def fetch(pieces: Sequence[Piece]) -> Chunk:
        return _fetch(pieces, read=read, stream=stream, transform=transform)

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


def _fetch(pieces: Sequence[Piece], *, read: Read, stream: Stream, transform: Transform) -> Chunk:
    slices = sorted({part for piece in pieces for part in piece.slices})
    raw = read(pieces)
    delivered, decoded = Observation(), Observation()
    counted = decode(raw.observe(delivered, *_delivered(slices)), format=stream.format, schema=stream.schema_).observe(
        decoded, *_bad(slices)
    )
    rows = landed_columns(transform(good(counted)), stream=stream.name).toArrow()
    seen = _seen({**delivered.get, **decoded.get}, slices)
    bad = sum(part.bad for part in seen.values())
    return Chunk(rows=rows, seen=seen, bad=_bad_records(raw, stream, expected=bad) if bad else ())


def _delivered(slices: Sequence[SliceKey]) -> list[Column]:
    """Counted on what the source gives, before anything else: by these the books are kept."""
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    columns: list[Column] = []
    for number, part in enumerate(slices):
        inside = _inside(part, partition="partition", offset="offset")
        stamp = F.when(inside, F.col("timestamp"))
        columns += [
            F.count_if(inside).alias(f"read_{number}"),
            F.sum(F.when(inside, size)).alias(f"bytes_{number}"),
            F.min(stamp).alias(f"first_{number}"),
            F.max(stamp).alias(f"last_{number}"),
        ]
    return columns


def _bad(slices: Sequence[SliceKey]) -> list[Column]:
    return [
        F.count_if(_inside(part, partition=PARTITION, offset=OFFSET) & F.col(BAD).isNotNull()).alias(f"bad_{number}")
        for number, part in enumerate(slices)
    ]


def _inside(part: SliceKey, *, partition: str, offset: str) -> Column:
    place = F.col(offset)
    return (F.col(partition) == part.partition) & (place >= part.start) & (place < part.end)


def _seen(found: dict[str, Any], slices: Sequence[SliceKey]) -> dict[SliceKey, Seen]:
    return {
        part: Seen(
            read=found[f"read_{number}"],
            bad=found[f"bad_{number}"],
            bytes_read=found[f"bytes_{number}"] or 0,
            first_timestamp=_millis(found[f"first_{number}"]),
            last_timestamp=_millis(found[f"last_{number}"]),
        )
        for number, part in enumerate(slices)
    }


def _millis(stamp: datetime | None) -> int | None:
    if stamp is None:
        return None
    aware = stamp.astimezone(UTC) if stamp.tzinfo is None else stamp
    return (aware - EPOCH) // timedelta(milliseconds=1)


def _bad_records(raw: DataFrame, stream: Stream, *, expected: int) -> tuple[BadRecord, ...]:
    """Fetch the bytes of the bad records by a second read of the same offsets; the counts must agree.

    A union of good and bad in one query would read Kafka twice for every chunk.
    """
    found = undecoded(raw, format=stream.format, schema=stream.schema_).toArrow()
    if found.num_rows != expected:
        raise CountsDisagree(
            f"{expected} bad records were counted, and {found.num_rows} found when their bytes were fetched",
            why="the topic changed between the two reads (retention, compaction)",
            cure="run the slice again",
        )
    return tuple(_bad_record(row) for row in found.to_pylist())


def _bad_record(row: dict[str, Any]) -> BadRecord:
    return BadRecord(
        partition=row[PARTITION],
        offset=row[OFFSET],
        reason=row["reason"],
        key=row["key"],
        value=row["value"],
        headers=tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        timestamp=_millis(row["timestamp"]),
    )
