"""The bytes of records whose rows the database refused: the same offsets, read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from kafka_assets.errors import RecordsChanged
from kafka_assets.records import OFFSET, PARTITION, BadRecord, Refused
from kafka_assets.slices import Piece
from kafka_assets.spark.chunks import bad_records
from kafka_assets.spark.decode import millis
from kafka_assets.spark.reached import reached

_AT_ONCE = 10_000
"""Records whose bytes are fetched by one query."""


@reached()
def fetch_refused(
    spark: SparkSession, refused: Sequence[Refused], *, topic: str, read: Callable[[Sequence[Piece]], DataFrame]
) -> list[BadRecord]:
    """The refused records as Kafka has them; raises where one of them is not delivered any more."""
    found: list[BadRecord] = []
    ordered = sorted(refused, key=lambda one: (one.partition, one.offset))
    for first in range(0, len(ordered), _AT_ONCE):
        some = ordered[first : first + _AT_ONCE]
        places = [(one.partition, one.offset, one.reason) for one in some]
        wanted = spark.createDataFrame(places, f"{PARTITION} int, {OFFSET} bigint, reason string")
        same = (F.col("partition") == F.col(PARTITION)) & (F.col("offset") == F.col(OFFSET))
        records = read(_ranges(some, topic)).join(F.broadcast(wanted), same)
        columns = ("partition", "offset", "reason", "key", "value", "headers")
        given = bad_records(records.select(*columns, millis().alias("timestamp")).toArrow())
        if len(given) < len(some):
            raise RecordsChanged(
                f"the table refused {len(some)} records, and {len(given)} were found when their bytes were fetched",
                why="the topic was compacted, or records expired, between the two reads",
                cure="nothing: the slice is asked for again",
            )
        found += given
    return found


def _ranges(refused: Sequence[Refused], topic: str) -> list[Piece]:
    """One range for each partition, from its first record to its last: Spark reads no two of one partition."""
    offsets: dict[int, list[int]] = {}
    for one in refused:
        offsets.setdefault(one.partition, []).append(one.offset)
    return [Piece(topic, partition, min(found), max(found) + 1, ()) for partition, found in offsets.items()]
