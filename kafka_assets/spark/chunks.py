"""From Kafka to bounded Arrow chunks, two in flight, each of one read, with what was seen at the source."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from kafka_assets.decode.batches import Upsert as UpsertAsked
from kafka_assets.decode.packets import BAD, BAD_RECORDS, COUNTS, DELETES, ENDS, ROWS, SLICE_COUNTS, TASK_ENDS, opened
from kafka_assets.decode.passage import rows_schema
from kafka_assets.decode.upserts import Deletes
from kafka_assets.records import CARRIED, KEY, OFFSET, PARTITION, BadRecord, Chunk, Seen
from kafka_assets.schema import declared, fields_of, landed_schema
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.decode import landed
from kafka_assets.spark.reached import reached
from kafka_assets.spark.result_size import let_through
from kafka_assets.streams import Stream

IN_FLIGHT = 2
"""Beside the chunk that the publisher has. Measured: one leaves Spark waiting for the publisher (facts/writes.md)."""

PROBE = 40_000
"""Offsets of a chunk while nobody knows yet how large the records are: where they are small it fits, and the database
has something to do early. A task that has to stop costs a worker of Spark's, which starts anew."""

FILLED = 0.9
"""So much of a chunk's room is planned for: where records grow, a task is stopped seldom."""

Read = Callable[[Sequence[Piece]], DataFrame]
Transform = Callable[[DataFrame], DataFrame]


class Fetched(NamedTuple):
    """A chunk, and what of its pieces was left because there was no room for it."""

    chunk: Chunk
    left: Sequence[Sequence[Piece]] = ()


def stream_chunks(
    plan: Sequence[Sequence[Piece]], fetch: Callable[[Sequence[Piece]], Fetched], *, room: int | None = None
) -> Iterator[Chunk]:
    """Fetch the parts of the plan in chunks, some at a time; what a chunk leaves is fetched before the rest.

    `room`: bytes of a chunk, for which the parts are cut; how large records are is known from the first chunk on.
    """
    with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="chunk") as pool:
        waiting = _Waiting(plan, room)
        running: deque[tuple[Sequence[Piece], Future[Fetched]]] = deque()

        def begin() -> None:
            while waiting and len(running) < IN_FLIGHT:
                pieces = waiting.taken()
                running.append((pieces, pool.submit(fetch, pieces)))

        def ended() -> Chunk:
            # The next ones are under way while the publisher has this one; and nothing here holds it then.
            pieces, future = running.popleft()
            chunk = waiting.learned(pieces, future.result())
            begin()
            return chunk

        try:
            begin()
            while running:
                yield ended()
        finally:
            for _, future in running:
                future.cancel()


class _Waiting:
    """What is still to be read."""

    def __init__(self, plan: Sequence[Sequence[Piece]], room: int | None) -> None:
        self._parts = deque(plan)
        self._room = room
        self._fitting: int | None = PROBE
        """So many offsets should fit into a chunk; None where all that was read of the last one were holes."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def taken(self) -> Sequence[Piece]:
        """The next part, or so much of it as should fit."""
        pieces = self._parts.popleft()
        if self._room is None or self._fitting is None:
            return pieces
        head, rest = cut(pieces, self._fitting)
        if rest:
            self._parts.appendleft(rest)
        return head

    def learned(self, pieces: Sequence[Piece], fetched: Fetched) -> Chunk:
        """The chunk that was made of these pieces; what it left is next."""
        chunk, left = fetched
        self._parts.extendleft(reversed(left))
        if self._room is not None:
            # Of the last chunk: records of one time are alike, and so are the holes between them.
            offsets = _offsets(pieces) - sum(map(_offsets, left))
            size = max(chunk.rows.nbytes, sum(part.bytes_read for part in chunk.seen.values()))
            self._fitting = max(1, int(FILLED * self._room * offsets / size)) if size else None
        return chunk


def _offsets(pieces: Sequence[Piece]) -> int:
    return sum(piece.end - piece.start for piece in pieces)


def cut(pieces: Sequence[Piece], offsets: int) -> tuple[list[Piece], list[Piece]]:
    """So many offsets of the pieces, and the rest."""
    head: list[Piece] = []
    rest: list[Piece] = []
    for piece in pieces:
        at = min(piece.end, piece.start + offsets)
        offsets -= at - piece.start
        head += part_of(piece, piece.start, at)
        rest += part_of(piece, at, piece.end)
    return head, rest


def part_of(piece: Piece, start: int, end: int) -> list[Piece]:
    """These offsets of a piece, with the slices that they are of; nothing where there are none."""
    slices = tuple(part for part in piece.slices if part.start < end and start < part.end)
    return [Piece(piece.topic, piece.partition, start, end, slices)] if start < end else []


def plain_schema(stream: Stream) -> pa.Schema:
    """The columns of a stream whose records land as they come."""
    return rows_schema(landed_schema(declared(stream.schema_, stream.format)), _carried(stream))


def upsert_of(stream: Stream, schema: pa.Schema) -> UpsertAsked | None:
    """What `decode/` is told of an upsert stream whose rows have these columns."""
    upsert = stream.upsert
    if upsert is None:
        return None
    needed = [field for field in fields_of(schema) if field.name in upsert.needed]
    return upsert.needed, KEY if KEY in upsert.key else None, pa.schema(needed)


@reached()
@let_through()
def fetch_landed(pieces: Sequence[Piece], *, read: Read, stream: Stream, room: int | None = None) -> Fetched:
    """A chunk of records that land as they come: one query of two columns."""
    slices = slices_of(pieces)
    schema = plain_schema(stream)
    upsert = upsert_of(stream, schema)
    found = landed(read(pieces), stream, _carried(stream), slices, upsert=upsert, room=room).toArrow()
    told = Opened(found, slices, rows=schema, upsert=upsert)
    return Fetched(told.chunk(), told.left(pieces))


def slices_of(pieces: Sequence[Piece]) -> list[SliceKey]:
    return sorted({part for piece in pieces for part in piece.slices})


def _carried(stream: Stream) -> list[str]:
    """What Kafka says of a record that its row needs."""
    needed = {PARTITION, OFFSET} | set(() if stream.upsert is None else stream.upsert.needed)
    return [name for name in (*CARRIED, PARTITION, OFFSET) if name in needed]


class Opened:
    """The packets of a query."""

    def __init__(
        self,
        found: pa.Table,
        slices: Sequence[SliceKey],
        *,
        rows: pa.Schema | None = None,
        upsert: UpsertAsked | None = None,
    ) -> None:
        self._slices = slices
        self._rows = rows
        self._deletes = None if upsert is None else Deletes(upsert[2], upsert[0], whole_key=upsert[1]).schema
        self._of: dict[int, list[Any]] = {kind: [] for kind in (ROWS, BAD, DELETES, COUNTS, ENDS)}
        for kind, packet in zip(*found.columns, strict=True):
            self._of[kind.as_py()].append(packet)

    def _table(self, kind: int, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches([opened(packet, schema) for packet in self._of[kind]], schema=schema)

    def chunk(self, rows: pa.Table | None = None) -> Chunk:
        """All of it; with these rows where the packets have none."""
        if rows is None:
            assert self._rows is not None
            rows = self._table(ROWS, self._rows)
        deletes = None if self._deletes is None or not self._of[DELETES] else self._table(DELETES, self._deletes)
        return Chunk(rows=rows, seen=self.seen(), bad=self.bad(), deletes=deletes)

    def seen(self) -> dict[SliceKey, Seen]:
        """What was seen of each slice, by all tasks together."""
        seen = dict.fromkeys(self._slices, Seen(fingerprint=0))
        for row in self._table(COUNTS, SLICE_COUNTS).to_pylist():
            seen[self._slices[row.pop("slice")]] += Seen(**row)
        return seen

    def bad(self) -> tuple[BadRecord, ...]:
        return bad_records(self._table(BAD, BAD_RECORDS))

    def left(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        """What the tasks left, in parts of at most one range for each partition.

        A task reads one range of a partition from its start, or several tasks do, each its own.
        """
        ends = self._table(ENDS, TASK_ENDS).to_pylist()
        if not any(end["stopped"] for end in ends):
            return []
        ranges = [_left_of(piece, [end for end in ends if end["partition"] == piece.partition]) for piece in pieces]
        return [[piece for piece in part if piece is not None] for part in zip_longest(*ranges)]


def _left_of(piece: Piece, ends: list[dict[str, Any]]) -> list[Piece]:
    """What nobody read of a piece: it is behind each task that stopped, and all of it where no task came to it."""
    tasks = sorted(ends, key=lambda end: end["first"])
    starts = [*(task["first"] for task in tasks[1:]), piece.end]
    ranges = [(task["next"], until) for task, until in zip(tasks, starts, strict=True) if task["stopped"]]
    if not tasks:
        ranges = [(piece.start, piece.end)]
    return [part for start, end in ranges for part in part_of(piece, start, end)]


def added(seen: Mapping[SliceKey, Seen], bad: Sequence[BadRecord]) -> dict[SliceKey, Seen]:
    """What was seen, and these bad records among it."""
    partitions = np.array([one.partition for one in bad])
    offsets = np.array([one.offset for one in bad])
    counts = {
        key: int(((partitions == key.partition) & (offsets >= key.start) & (offsets < key.end)).sum()) for key in seen
    }
    return {key: replace(part, bad=part.bad + counts[key]) for key, part in seen.items()}


def bad_records(records: pa.Table) -> tuple[BadRecord, ...]:
    """Bad records, from a table of them."""
    rows: list[dict[str, Any]] = records.to_pylist()
    for row in rows:
        row["headers"] = tuple((one["key"], one["value"]) for one in row["headers"] or ())
    return tuple(BadRecord(**row) for row in rows)
