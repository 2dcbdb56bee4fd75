"""One pass over records: what Spark's Python workers run.

Rows, bad records with their bytes, deletes and counts come out of the same pass, so that none of them is asked for
again: between two reads of Kafka a topic may be compacted. Only what a task gives that succeeds reaches the result.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.decode.contract import Reason
from kafka_assets.decode.fetch import Fetch, fetched
from kafka_assets.decode.fingerprints import hashes_of
from kafka_assets.decode.names import HEADERS, KEY, OFFSET, PARTITION
from kafka_assets.decode.packets import (
    BAD,
    BAD_RECORDS,
    COUNTS,
    DELETES,
    ENDS,
    PACKET,
    POSTED,
    ROWS,
    SLICE_COUNTS,
    TASK_ENDS,
    opened,
    packed,
    packets,
)
from kafka_assets.decode.passage import LEFT_OUT, Found, Reader, column_of, untold_of
from kafka_assets.decode.post import Address, posted
from kafka_assets.decode.upserts import Deletes

pc: Any = pyarrow.compute

Slice = tuple[int, int, int]
"""Partition, start, end."""
Upsert = tuple[Sequence[str], "str | None", pa.Schema]
"""The columns of key and order, which of them is the record's own key, and the table's columns."""
Packet = tuple[int, Any]


def landed(batches: Iterable[Any], declared: pa.Schema, fetch: Fetch | None, *asked: Any) -> Iterator[Any]:
    """All that becomes of records, as packets; `asked` is what `made` takes besides.

    With `fetch` the batches are tasks, and their records are read here; else they are records that somebody has.
    """
    return map(packets, made(_records(batches, fetch), declared, *asked))


def put(
    batches: Iterable[Any], declared: pa.Schema, mailbox: Address, fetch: Fetch | None, *asked: Any
) -> Iterator[Any]:
    """The same, in the mailbox if they can be put there: then the name under which they stand is what Spark gets."""
    parts = [*made(_records(batches, fetch), declared, *asked)]
    unit = [packet for part in parts for packet in part]
    name = posted(mailbox, unit) if unit else None
    return map(packets, parts if name is None else [[(POSTED, name)]])


def made(
    records: Generator[Any],
    declared: pa.Schema,
    format: str,
    carried: Sequence[str],
    needed: Sequence[str],
    slices: Sequence[Slice],
    upsert: Upsert | None,
    room: int | None,
) -> Iterator[list[Packet]]:
    """All that becomes of records, as packets, batch by batch; a row without a value in a `needed` column is bad.

    With `room` a task ends when it has had records of so many bytes, or made so many of them, and says where.
    """
    reader = Reader(declared, format, carried, needed=needed, deletes=_deletes(upsert))
    task = _Task(slices, room)
    with closing(records):
        for batch in task.bounded(records):
            found = reader.read(batch)
            task.count(batch, found, made=found.rows.nbytes)
            yield [*packed(ROWS, found.rows), *_beside(batch, found)]
    yield task.ended()


def unpacked(batches: Iterable[Any], rows: pa.Schema, wanted: Sequence[str]) -> Iterator[Any]:
    """The rows in packets as columns, for a transform of Spark's: those of these names."""
    for batch in batches:
        for packet in batch.column(PACKET):
            yield opened(packet, rows).select(list(wanted))


def _records(batches: Iterable[Any], fetch: Fetch | None) -> Generator[Any]:
    return _given(batches) if fetch is None else fetched(batches, fetch)


def _given(batches: Iterable[Any]) -> Generator[Any]:
    """The batches with the hashes of their records, all of whose headers can be told."""
    for batch in batches:
        partitions, offsets = (np.asarray(batch.column(name)).astype(np.int64) for name in ("partition", "offset"))
        hashes: Any = pa.array(hashes_of(partitions, offsets, batch.column("key"), batch.column("value")))
        untold: Any = pa.repeat(pa.scalar(False), batch.num_rows)
        yield batch.append_column("fingerprint", hashes).append_column("untold", untold)


def _deletes(upsert: Upsert | None) -> Deletes | None:
    return None if upsert is None else Deletes(upsert[2], upsert[0], whole_key=upsert[1])


def _beside(batch: Any, found: Found) -> Iterator[Packet]:
    """The bad records with their bytes, and what is deleted."""
    if found.bad:
        yield from packed(BAD, _bad(batch, found.bad))
    if found.deletes is not None:
        yield from packed(DELETES, found.deletes)


def _bad(batch: Any, bad: dict[int, Reason]) -> Any:
    places = np.array(sorted(bad), dtype=np.int64)
    reasons = [bad[at] for at in places.tolist()]
    untold = set(untold_of(batch).tolist())
    words = [f"{bad[at].words} · {LEFT_OUT}" if at in untold else bad[at].words for at in places.tolist()]
    some = batch.take(pa.array(places))
    columns: list[Any] = [
        column_of(some, PARTITION),
        column_of(some, OFFSET),
        pa.array([one.code for one in reasons], pa.string()),
        pa.array([one.field or None for one in reasons], pa.string()),
        pa.array(words, pa.string()),
        column_of(some, KEY),
        some.column("value").cast(pa.binary()),
        column_of(some, HEADERS),
        some.column("timestamp"),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BAD_RECORDS)


@dataclass
class _Counts:
    """What a task has seen of one slice."""

    read: int = 0
    bad: int = 0
    deleted: int = 0
    bytes_read: int = 0
    first: int | None = None
    last: int | None = None
    fingerprint: int = 0


class _Task:
    """What one task has had so far, and whether it may have more."""

    def __init__(self, slices: Sequence[Slice], room: int | None) -> None:
        self._slices = slices
        self._counts = dict[int, _Counts]()
        self._room = room
        self._ends = dict[int, tuple[int, int]]()
        self._stopped = False
        self._used = 0
        """Bytes of the room."""
        self._had = 0
        """Bytes of the records in hand, their headers included."""

    def bounded(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches, up to the record that no room is left for; of the first batch at least one."""
        for batch in batches:
            if not batch.num_rows:
                continue
            left = batch.num_rows
            if self._room is not None:
                ends = np.cumsum(_sizes(batch) + _header_sizes(batch))
                left = int(np.searchsorted(ends, self._room - self._used, side="right"))
                left = left if self._used else max(1, left)
                self._had = int(ends[left - 1]) if left else 0
            if left:
                self._met(batch, left)
                yield batch.slice(0, left)
            if left < batch.num_rows:
                self._stopped = True
                return

    def _met(self, batch: Any, count: int) -> None:
        partitions = np.asarray(batch.column("partition"))[:count]
        offsets = np.asarray(batch.column("offset"))[:count]
        for partition in np.unique(partitions).tolist():
            mine = offsets[partitions == partition]
            first = self._ends[partition][0] if partition in self._ends else int(mine[0])
            self._ends[partition] = first, int(mine[-1]) + 1

    def count(self, batch: Any, found: Found, *, made: int) -> None:
        """Count the batch in hand with what became of it."""
        sizes, count = _sizes(batch), batch.num_rows
        self._used += max(self._had, made)
        partitions, offsets = np.asarray(batch.column("partition")), np.asarray(batch.column("offset"))
        bad, deleted = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        bad[list(found.bad)] = True
        deleted[found.deleted] = True
        prints = np.asarray(batch.column("fingerprint"))
        stamps = batch.column("timestamp")
        for number, (partition, start, end) in enumerate(self._slices):
            inside = (partitions == partition) & (offsets >= start) & (offsets < end)
            if not inside.any():
                continue
            counts = self._counts.setdefault(number, _Counts())
            counts.read += int(inside.sum())
            counts.bad += int((bad & inside).sum())
            counts.deleted += int((deleted & inside).sum())
            counts.bytes_read += int(sizes[inside].sum())
            counts.fingerprint ^= int(np.bitwise_xor.reduce(prints[inside]))
            ends = pc.min_max(stamps.filter(pa.array(inside)))
            if (first := ends["min"].as_py()) is not None:
                counts.first = first if counts.first is None else min(first, counts.first)
                last = ends["max"].as_py()
                counts.last = last if counts.last is None else max(last, counts.last)

    def ended(self) -> list[Packet]:
        """The counts, and where the task ended."""
        seen = [
            (number, one.read, one.bad, one.deleted, one.bytes_read, one.first, one.last, one.fingerprint)
            for number, one in self._counts.items()
        ]
        ends = [(partition, first, after, self._stopped) for partition, (first, after) in self._ends.items()]
        return [*packed(COUNTS, _table(seen, SLICE_COUNTS)), *packed(ENDS, _table(ends, TASK_ENDS))]


def _sizes(batch: Any) -> np.ndarray[Any, Any]:
    """The bytes of each record's key and value."""
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in ("key", "value"):
        sizes += pc.binary_length(batch.column(name)).fill_null(0).to_numpy(zero_copy_only=False)
    return sizes


def _header_sizes(batch: Any) -> np.ndarray[Any, Any]:
    """The bytes of each record's headers."""
    headers = batch.column("headers")
    if headers.null_count == len(headers):
        return np.zeros(len(headers), dtype=np.int64)
    pairs = headers.flatten()
    sizes = sum(pc.binary_length(part).fill_null(0).to_numpy(zero_copy_only=False) for part in pairs.flatten())
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    counts = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False)
    places = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return np.diff(ends[places])


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns: list[Any] = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(schema.types)]
    return pa.Table.from_arrays(columns, schema=schema)
