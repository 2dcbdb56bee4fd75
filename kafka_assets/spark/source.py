"""Exact offset ranges of Kafka as tasks of Spark's: read_committed, and never a record more or less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession

from kafka_assets.decode.fetch import Fetch, Range
from kafka_assets.slices import Piece


@dataclass(frozen=True)
class OnWorkers:
    """Records that Spark's workers are to read from Kafka, a range for each task.

    Not guaranteed: that every offset has a record. Control records, aborted transactions and compaction leave holes,
    which they pass over.
    """

    spark: SparkSession
    config: Mapping[str, str] = field(repr=False)
    """Of their client, with passwords and keys, as `broker.connection.worker_config` gives it."""
    ranges: Sequence[Range]
    valued: bool = False
    """Records that have no value are left out."""

    @property
    def fetch(self) -> Fetch:
        return dict(self.config), list(self.ranges), self.valued


Raw = DataFrame | OnWorkers
"""Records as they come: those that workers read, or rows of a test's list, in the columns of `testing.RAW`."""


def read(
    spark: SparkSession, config: Mapping[str, str], pieces: Sequence[Piece], *, at_once: int | None = None
) -> OnWorkers:
    """The records of `pieces`, at most one of each topic's partition: each is a task, and one of more offsets than
    `at_once` several of them.
    """
    places = [(piece.topic, piece.partition) for piece in pieces]
    if len(set(places)) < len(places):
        raise ValueError(f"two ranges of one partition in one read: {places}")
    ranges = [(piece.topic, piece.partition, start, end) for piece in pieces for start, end in _parts(piece, at_once)]
    return OnWorkers(spark, config, ranges)


def _parts(piece: Piece, at_once: int | None) -> Sequence[tuple[int, int]]:
    """So many offsets of the piece at most, in parts of about one size."""
    count = piece.end - piece.start
    parts = 1 if at_once is None else max(1, -(-count // at_once))
    ends = [piece.start + count * part // parts for part in range(parts + 1)]
    return list(pairwise(ends))


def with_values(raw: Raw) -> Raw:
    """The same without records that have no value."""
    return replace(raw, valued=True) if isinstance(raw, OnWorkers) else raw.where("value IS NOT NULL")
