"""Exact offset ranges of Kafka as tasks of Spark's: read_committed, and never a record more or less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    config: Mapping[str, str]
    """Of their client, as `broker.connection.worker_config` gives it."""
    ranges: Sequence[Range]
    valued: bool = False
    """Records that have no value are left out."""

    @property
    def fetch(self) -> Fetch:
        return dict(self.config), list(self.ranges), self.valued


Raw = DataFrame | OnWorkers
"""Records as they come: those that workers read, or rows with the columns that Spark's own Kafka source has."""


def read(
    spark: SparkSession, config: Mapping[str, str], pieces: Sequence[Piece], *, at_once: int | None = None
) -> OnWorkers:
    """The records of `pieces`, each a task; with `at_once` one of more offsets is cut, for several tasks."""
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
