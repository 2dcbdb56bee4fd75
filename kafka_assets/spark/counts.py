"""What is counted on the records that the source gives, before anything else: by these the books are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from kafka_assets.decode.batches import BAD
from kafka_assets.records import OFFSET, PARTITION, TIMESTAMP, Seen
from kafka_assets.slices import SliceKey
from kafka_assets.spark.decode import millis
from kafka_assets.streams import Stream

SIZE, PRINT = "_kafka_size", "_kafka_print"
"""Of each record, where it is counted after it was decoded."""


def size() -> Column:
    """The bytes of a record's key and value."""
    return F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))


def fingerprint() -> Column:
    """A hash of a record: its place is in it, so that no two are equal and cancel each other out.

    Key and value have the offset between them: a NULL leaves no trace, and could be the one or the other.
    """
    return F.xxhash64("key", "offset", "value", "partition")


def counted(slices: Sequence[SliceKey]) -> list[Column]:
    """For each slice what the source delivers of it."""
    columns: list[Column] = []
    for number, part in enumerate(slices):
        inside = _inside(part, partition="partition", offset="offset")
        stamp = F.when(inside, millis())
        columns += [
            F.count_if(inside).alias(f"read_{number}"),
            F.count_if(inside & F.col("value").isNull()).alias(f"null_{number}"),
            F.sum(F.when(inside, size())).alias(f"bytes_{number}"),
            F.min(stamp).alias(f"first_{number}"),
            F.max(stamp).alias(f"last_{number}"),
            F.bit_xor(F.when(inside, fingerprint())).alias(f"print_{number}"),
        ]
    return columns


def counted_bad(slices: Sequence[SliceKey]) -> list[Column]:
    """For each slice how many of its records could not be decoded."""
    return [
        F.count_if(_inside(part, partition=PARTITION, offset=OFFSET) & F.col(BAD).isNotNull()).alias(f"bad_{number}")
        for number, part in enumerate(slices)
    ]


def counted_whole() -> list[Column]:
    """The same of records that are decoded already, with `SIZE` and `PRINT`, and are all of one slice."""
    return [
        F.count(F.lit(1)).alias("read_0"),
        F.count_if(F.col(BAD).isNotNull()).alias("bad_0"),
        F.sum(SIZE).alias("bytes_0"),
        F.min(F.unix_millis(TIMESTAMP)).alias("first_0"),
        F.max(F.unix_millis(TIMESTAMP)).alias("last_0"),
        F.bit_xor(PRINT).alias("print_0"),
    ]


def all_counted(found: Mapping[str, Any], slices: Sequence[SliceKey], *, offsets: int) -> bool:
    """Whether every count is there, and as many records; of an offset that has none, nobody can tell by this."""
    counts: list[Any] = [found.get(f"{what}_{number}") for what in ("read", "bad") for number in range(len(slices))]
    return None not in counts and sum(counts[: len(slices)]) >= offsets


def seen_of(found: Mapping[str, Any], slices: Sequence[SliceKey], stream: Stream) -> dict[SliceKey, Seen]:
    """What was counted, by slice."""
    return {
        part: Seen(
            read=found[f"read_{number}"],
            bad=found[f"bad_{number}"],
            deleted=0 if stream.upsert is None else found[f"null_{number}"],
            bytes_read=found[f"bytes_{number}"] or 0,
            first_timestamp=found[f"first_{number}"],
            last_timestamp=found[f"last_{number}"],
            fingerprint=found[f"print_{number}"] or 0,
        )
        for number, part in enumerate(slices)
    }


def _inside(part: SliceKey, *, partition: str, offset: str) -> Column:
    place = F.col(offset)
    return (F.col(partition) == part.partition) & (place >= part.start) & (place < part.end)
