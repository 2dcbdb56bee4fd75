"""The books of a slice: every offset is a record or a hole or expired, every record landed or is accounted for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from kafka_assets.errors import CountsDisagree, SliceFailed
from kafka_assets.ledger.publications import Outcome
from kafka_assets.reasons import Kind, kind_of
from kafka_assets.records import OFFSET, PARTITION, BadRecord, Chunk, Seen
from kafka_assets.sinks.road import slice_of
from kafka_assets.slices import SliceKey

TOLERATED = 100
"""Below so many bad records a ratio says nothing."""
EXAMPLES = 3
"""So many bad records of a slice are shown where it fails by them."""
_64_BITS = 2**64 - 1


@dataclass(frozen=True)
class Landed:
    """What became of the records of a slice that were neither bad nor left out by the transform."""

    landed: int = 0
    superseded: int = 0
    tombstoned: int = 0
    rows: int | None = None
    """Rows written, where they are not one for each record that landed."""

    @property
    def records(self) -> int:
        return self.landed + self.superseded + self.tombstoned


@dataclass(frozen=True)
class BadPolicy:
    """What becomes of bad records, and of a slice that has too many of them."""

    on_bad: Literal["quarantine", "fail"]
    max_bad_ratio: float
    quotes: bool = True
    """Whether why a slice failed may be told in words of its records: Dagster keeps what it is told."""


class Examples:
    """Some of the bad records of each slice, for whoever is told that there are too many of them."""

    def __init__(self, slices: Iterable[SliceKey]) -> None:
        self._found: dict[SliceKey, list[BadRecord]] = {key: [] for key in slices}

    def add(self, bad: Iterable[BadRecord], slices: Collection[SliceKey]) -> None:
        """Take what is still wanted of a chunk's bad records; the chunk is of these slices, and of one topic."""
        wanted = {key: self._found[key] for key in slices if len(self._found[key]) < EXAMPLES}
        for one in bad if wanted else ():
            key = slice_of(tuple(wanted), partition=one.partition, offset=one.offset)
            if key is not None:
                wanted[key].append(one)
                if len(wanted[key]) == EXAMPLES:
                    del wanted[key]
            if not wanted:
                return

    def of(self, key: SliceKey) -> Sequence[BadRecord]:
        return self._found[key]


def judge(
    key: SliceKey, seen: Seen, policy: BadPolicy, *, examples: Sequence[BadRecord] = (), reason: str = ""
) -> None:
    """Fail a slice with too many bad records, or with any where none is allowed.

    `examples` are some of them; `reason` is that of one whose bytes nobody has asked for yet.
    """
    if not seen.bad:
        return
    if not policy.quotes:
        examples = [replace(one, reason=_kind(one), key=None, value=None) for one in examples]
        reason = _shown(kind_of(reason)) if reason else ""
    if examples:
        first = examples[0]
        reason = f"{first.reason} (offset {first.offset} of partition {first.partition})"
    if policy.on_bad == "fail":
        raise SliceFailed(
            f"slice {key} has {seen.bad} bad records, and the stream declares on_bad: fail",
            why=f"one of them: {reason}" if reason else "",
            cure="correct the producer or the stream's schema, or declare on_bad: quarantine",
            bad=examples,
        )
    if seen.bad >= TOLERATED and seen.bad > policy.max_bad_ratio * seen.read:
        raise SliceFailed(
            f"slice {key} has {seen.bad} bad records of {seen.read}, more than max_bad_ratio {policy.max_bad_ratio}",
            why="so many say that the schema is wrong, or the producer changed"
            + (f"; one of them: {reason}" if reason else ""),
            cure="compare the schema with the topic's records, or raise max_bad_ratio",
            bad=examples,
        )


def _kind(bad: BadRecord) -> str:
    return _shown(kind_of(bad.reason) if bad.code is None else Kind(bad.code, bad.field))


def _shown(kind: Kind) -> str:
    return kind.code if kind.field is None else f"{kind.code} ({kind.field})"


def places(rows: pa.Table, keys: Iterable[SliceKey]) -> dict[SliceKey, Any]:
    """For each slice which of the rows came from it.

    A row whose place is in none of the slices was made up by a transform: refused.
    """
    partitions = np.asarray(rows.column(PARTITION))
    offsets = np.asarray(rows.column(OFFSET))
    found = {key: (partitions == key.partition) & (offsets >= key.start) & (offsets < key.end) for key in keys}
    outside = rows.num_rows - sum(int(inside.sum()) for inside in found.values())
    if outside:
        raise CountsDisagree(
            f"{outside} rows carry a partition and offset outside of the slices that were read",
            why="the transform changed kafka_partition or kafka_offset",
            cure="let both columns through as they come",
        )
    return found


def landed_by_slice(chunk: Chunk, wanted: Mapping[SliceKey, Any]) -> tuple[pa.Table, dict[SliceKey, int]]:
    """The chunk's rows that belong to wanted slices, and how many belong to each."""
    rows = chunk.rows
    found = places(rows, chunk.seen)
    counts = {key: int(inside.sum()) for key, inside in found.items() if key in wanted}
    if len(counts) == len(found):
        return rows, counts
    keep = np.zeros(rows.num_rows, dtype=bool)
    for key in counts:
        keep |= found[key]
    return rows.filter(pa.array(keep)), counts


def outcome_of(key: SliceKey, seen: Seen, *, landed: Landed, expired_to: int | None) -> Outcome:
    """Close a slice's books; what does not add up is never committed."""
    expired = (expired_to or key.start) - key.start
    holes = key.offsets - expired - seen.read
    filtered = seen.read - seen.bad - landed.records
    if holes < 0 or filtered < 0:
        raise CountsDisagree(
            f"the counts of slice {key} do not add up",
            why=f"{key.offsets} offsets, {expired} expired, {seen.read} read, {seen.bad} bad, {landed.records} landed",
            cure="a transform may give at most one row per record; if it does, please report this",
        )
    return Outcome(
        records_read=seen.read,
        landed=landed.landed,
        superseded=landed.superseded,
        tombstoned=landed.tombstoned,
        filtered=filtered,
        quarantined=seen.bad,
        holes=holes,
        rows_written=landed.landed if landed.rows is None else landed.rows,
        bytes_read=seen.bytes_read,
        expired_start=key.start if expired else None,
        expired_end=expired_to if expired else None,
        first_timestamp=seen.first_timestamp,
        last_timestamp=seen.last_timestamp,
        fingerprint=None if seen.fingerprint is None else f"{seen.fingerprint & _64_BITS:016x}",
    )
