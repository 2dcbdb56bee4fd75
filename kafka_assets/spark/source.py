"""Exact offset ranges of Kafka as a DataFrame: read_committed, and never a record more or less."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from kafka_assets.slices import Piece

POLL_TIMEOUT_MS = 30_000
"""Past the log's end Spark waits this long before it fails; both ends are checked before, so it never should."""

FETCH_WAIT_MS = 10
"""What is read is there: nobody has to wait for it to come. But with each answer Kafka's client asks for what comes
next, and at the log's end the broker keeps that question for so long; Spark asks for the log's ends behind it, on the
same connection, and waits as well. With the client's half second each of the smallest slices took half a second more.
So it is never what `fetch.wait.max.ms` says, which is for those who wait."""

FETCHED = {"kafka.max.poll.records": "10000", "kafka.max.partition.fetch.bytes": str(4 << 20)}
"""After each poll Spark's consumer (4.2.0) asks where the partition begins and ends, and by that throws away what the
client has fetched ahead. A poll of the client's 500 records kept one record in ten that the broker had sent, and cost
two questions more. What is fetched at once is so small that it fits into one poll, and not much smaller than a task."""


def read(
    spark: SparkSession, options: Mapping[str, str], pieces: Sequence[Piece], *, at_once: int | None = None
) -> DataFrame:
    """The records of `pieces`, at most one range per topic partition, as the Kafka source gives them.

    `at_once`: a range of more offsets is cut, for several tasks; without it, a range is a task.

    Not guaranteed: that every offset has a record. Control records, aborted transactions and
    compaction leave holes, which the source passes over.
    """
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for piece in pieces:
        if str(piece.partition) in starts.get(piece.topic, {}):
            raise ValueError(f"two ranges of {piece.topic}:{piece.partition} in one read")
        assigned.setdefault(piece.topic, []).append(piece.partition)
        starts.setdefault(piece.topic, {})[str(piece.partition)] = piece.start
        ends.setdefault(piece.topic, {})[str(piece.partition)] = piece.end
    tasks = {} if at_once is None else {"maxRecordsPerPartition": str(at_once)}
    return (
        spark.read.format("kafka")
        .options(**{**FETCHED, **options, **tasks})
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        # Spark's default is read_uncommitted: aborted records would land.
        .option("kafka.isolation.level", "read_committed")
        .option("kafkaConsumer.pollTimeoutMs", str(POLL_TIMEOUT_MS))
        .option("kafka.fetch.max.wait.ms", str(FETCH_WAIT_MS))
        .load()
    )
