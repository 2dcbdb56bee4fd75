"""From Kafka to bounded Arrow chunks, two queries in flight, each chunk with what was seen at the source."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from queue import Full, Queue
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from kafka_assets.decode.batches import Upsert as UpsertAsked
from kafka_assets.decode.packets import (
    BAD,
    BAD_RECORDS,
    COUNTS,
    DELETES,
    ENDS,
    POSTED,
    ROWS,
    SLICE_COUNTS,
    TASK_ENDS,
    opened,
)
from kafka_assets.decode.passage import rows_schema
from kafka_assets.decode.upserts import Deletes
from kafka_assets.records import CARRIED, KEY, OFFSET, PARTITION, BadRecord, Chunk, Seen
from kafka_assets.schema import declared, fields_of, landed_schema
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.decode import landed
from kafka_assets.spark.mailbox import Mailbox
from kafka_assets.spark.reached import reached
from kafka_assets.spark.result_size import let_through
from kafka_assets.spark.source import Raw
from kafka_assets.spark.transport import arriving
from kafka_assets.streams import Stream

IN_FLIGHT = 2
"""Queries at a time. Measured: with one Spark waits at its end for the next; three fight (facts/writes.md)."""

PROBE = 40_000
"""Offsets of a query while nobody knows yet how large the records are: where they are small it fits, and the database
has something to do early. A task that has to stop costs a worker of Spark's, which starts anew."""

TASK_BYTES = 14 << 20
"""So many bytes of records a task is planned for: what it gives comes here as one chunk."""

FILLED = 0.9
"""So much of the room is planned for: where records grow, a task is stopped seldom."""

Transform = Callable[[DataFrame], DataFrame]
Left = Sequence[Sequence[Piece]]
"""What there was no room for: parts that are read next."""
Arriving = Generator[Chunk, None, Left]
"""The chunks of one query, as they come; and what it left."""
Ask = Callable[[Sequence[Piece], "int | None"], Arriving]
"""Asks one query for the records of these ranges; the number of offsets that a task should have at most, if known."""


class Read(Protocol):
    """Where raw records come from."""

    def __call__(self, pieces: Sequence[Piece], /) -> Raw: ...


@dataclass
class Sizes:
    """How many records fit, as far as it is known from the query that was read last how large they are."""

    room: int
    """Bytes of records that a query is to read at most."""
    at_most: int | None = field(default_factory=lambda: PROBE)
    """So many offsets should fit into a query; None where all that the last one read were holes."""
    at_once: int | None = None
    """So many offsets are a task; None where nobody knows."""

    def learn(self, offsets: int, size: int) -> None:
        """So many offsets had so many bytes."""
        self.at_most, self.at_once = (
            max(1, int(FILLED * room * offsets / size)) if size else None for room in (self.room, TASK_BYTES)
        )


def stream_chunks(plan: Sequence[Sequence[Piece]], ask: Ask, *, sizes: Sizes | None = None) -> Iterator[Chunk]:
    """Read the parts of the plan, in queries of which some are under way at a time; what one leaves is read next.

    The parts are cut for the room that `sizes` tells of, which learns of each query.
    """
    # One more: whose last chunk nobody has taken yet has a thread that waits for that.
    with ThreadPoolExecutor(IN_FLIGHT + 1, thread_name_prefix="query") as pool:
        reading = _Reading(_Waiting(plan, sizes), ask, pool)
        try:
            yield from reading.chunks()
        finally:
            reading.over.set()


class _Query:
    """One query, read by a thread of the pool: a chunk of it waits here, and another one there."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.bytes_read = self.bytes_made = 0
        """Of the records of the chunks so far, and of what became of them."""
        self.is_read = False
        self.given: Queue[Chunk | None] = Queue(maxsize=1)
        self.reader: Future[None] | None = None


class _Reading:
    """The queries of a stream of chunks, those that wait and those under way."""

    def __init__(self, waiting: _Waiting, ask: Ask, pool: ThreadPoolExecutor) -> None:
        self.over = threading.Event()
        """Nobody takes chunks any more."""
        self._waiting = waiting
        self._ask = ask
        self._pool = pool
        self._running: deque[_Query] = deque()
        self._lock = threading.Lock()
        """For what waits and what runs: whoever ends a query begins the next."""

    def chunks(self) -> Iterator[Chunk]:
        """The chunks of all queries, one query after the other; and the error of the first that failed."""
        self._begin()
        while self._running:
            query = self._running[0]
            while (chunk := query.given.get()) is not None:
                taken = [chunk]
                del chunk  # nothing here holds a chunk that the publisher is done with
                yield taken.pop()
            with self._lock:
                self._running.popleft()
                assert query.reader is not None
            query.reader.result()
            self._begin()

    def _begin(self) -> None:
        """Begin as many as may be under way. One more may be whose last chunk nobody has taken yet."""
        with self._lock:
            while self._waiting and len(self._running) <= IN_FLIGHT and self._unread() < IN_FLIGHT:
                query = _Query(self._waiting.taken())
                self._running.append(query)
                query.reader = self._pool.submit(self._read, query, self._waiting.at_once)

    def _unread(self) -> int:
        return sum(not query.is_read for query in self._running)

    def _read(self, query: _Query, at_once: int | None) -> None:
        with closing(self._ask(query.pieces, at_once)) as arriving:
            try:
                while self._give(query, next(arriving)):
                    pass
            except StopIteration as end:
                # Before anybody hears that this was all: what it left is to be read.
                with self._lock:
                    query.is_read = True
                    self._waiting.learn(query, end.value)
                self._begin()
            finally:
                self._give(query, None)

    def _give(self, query: _Query, chunk: Chunk | None) -> bool:
        """Wait until there is room for it; False where nobody takes it any more."""
        if chunk is not None:
            query.bytes_read += sum(part.bytes_read for part in chunk.seen.values())
            query.bytes_made += chunk.rows.nbytes
        while not self.over.is_set():
            with suppress(Full):
                query.given.put(chunk, timeout=0.5)
                return True
        return False


class _Waiting:
    """What is still to be read."""

    def __init__(self, plan: Sequence[Sequence[Piece]], sizes: Sizes | None) -> None:
        self._parts = deque(plan)
        self._sizes = sizes

    @property
    def at_once(self) -> int | None:
        return None if self._sizes is None else self._sizes.at_once

    def __bool__(self) -> bool:
        return bool(self._parts)

    def taken(self) -> Sequence[Piece]:
        """The next part, or so much of it as should fit."""
        pieces = self._parts.popleft()
        # Another transaction's reading may learn meanwhile.
        at_most = None if self._sizes is None else self._sizes.at_most
        if at_most is None:
            return pieces
        head, rest = cut(pieces, at_most)
        if rest:
            self._parts.appendleft(rest)
        return head

    def learn(self, query: _Query, left: Left) -> None:
        """What a query left is next; and how large its records are, those of the next ones will be, too."""
        self._parts.extendleft(reversed(left))
        if self._sizes is not None:
            offsets = _offsets(query.pieces) - sum(map(_offsets, left))
            self._sizes.learn(offsets, max(query.bytes_read, query.bytes_made))


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


def fetch_landed(pieces: Sequence[Piece], *, read: Read, stream: Stream, room: int | None = None) -> Arriving:
    """Records that land as they come: one query of two columns, and a chunk for each task of it."""
    slices = slices_of(pieces)
    schema = plain_schema(stream)
    upsert = upsert_of(stream, schema)
    ends: list[TaskEnd] = []
    with Mailbox() as mailbox:
        with reached(), let_through():
            found = landed(
                read(pieces),
                stream,
                _carried(stream),
                slices,
                needed=() if upsert is None else upsert[0],
                upsert=upsert,
                room=room,
                mailbox=mailbox.address,
            )
        with closing(arriving(found)) as parts:
            for packets in tasks_of(parts, mailbox.claimed):
                task = Opened(packets, slices, rows=schema, upsert=upsert)
                ends += task.ends()
                given = [task.chunk()]
                del packets, task  # nothing here holds a chunk that the publisher is done with
                yield given.pop()
    # Of a slice without records, too, the books are kept.
    yield Chunk(rows=schema.empty_table(), seen=dict.fromkeys(slices, Seen(fingerprint=0)))
    return left(pieces, ends)


def tasks_of(parts: Iterable[pa.RecordBatch], claimed: Callable[[bytes], pa.Table] | None = None) -> Iterator[pa.Table]:
    """The packets of each task that had a record: the last of them says where it ended.

    `claimed` gives those that a task has put into the mailbox, by their name, where the query has one.
    """
    waiting: list[pa.RecordBatch] = []
    for part in parts:
        start = 0
        kinds: list[Any] = cast("Any", part).column(0).to_pylist()
        for at, kind in enumerate(kinds):
            if kind == POSTED:
                assert claimed is not None
                start = at + 1
                yield claimed(cast("Any", part).column(1)[at].as_py())
            elif kind == ENDS:
                task = pa.Table.from_batches([*waiting, part.slice(start, at + 1 - start)])
                waiting, start = [], at + 1
                yield task
        waiting += [part.slice(start)] if start < part.num_rows else []


def slices_of(pieces: Sequence[Piece]) -> list[SliceKey]:
    return sorted({part for piece in pieces for part in piece.slices})


def _carried(stream: Stream) -> list[str]:
    """What Kafka says of a record that its row needs."""
    needed = {PARTITION, OFFSET} | set(() if stream.upsert is None else stream.upsert.needed)
    return [name for name in (*CARRIED, PARTITION, OFFSET) if name in needed]


class TaskEnd(NamedTuple):
    """Where a task began to read a partition and where it ended; `stopped`: it left what comes after."""

    partition: int
    first: int
    next: int
    stopped: bool


class Opened:
    """The packets of a query, or of one task of it."""

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
        rows: list[dict[str, Any]] = self._table(BAD, BAD_RECORDS).to_pylist()
        for row in rows:
            row["headers"] = tuple((one["key"], one["value"]) for one in row["headers"] or ())
        return tuple(BadRecord(**row) for row in rows)

    def ends(self) -> list[TaskEnd]:
        return [TaskEnd(**row) for row in self._table(ENDS, TASK_ENDS).to_pylist()]


def left(pieces: Sequence[Piece], ends: Sequence[TaskEnd]) -> Left:
    """What the tasks left, in parts of at most one range for each partition."""
    ranges = [_left_of(piece, ends) for piece in pieces]
    return [[piece for piece in part if piece is not None] for part in zip_longest(*ranges)]


def _left_of(piece: Piece, ends: Sequence[TaskEnd]) -> list[Piece]:
    """What nobody read of a piece: it is behind each task that stopped, up to the first record of the next one.

    Each task is a range of one piece, and has read all that is before its first record.
    """
    tasks = _in(piece, ends)
    untils = [*(task.first for task in tasks[1:]), piece.end]
    return [
        part
        for task, until in zip(tasks, untils, strict=False)  # of a piece without tasks there is one end too many
        if task.stopped
        for part in part_of(piece, task.next, until)
    ]


def _in(piece: Piece, ends: Sequence[TaskEnd]) -> list[TaskEnd]:
    """The tasks of a piece, in the order of what they read: one range from its start, or several, each its own."""
    return sorted(end for end in ends if end.partition == piece.partition)


def added(seen: Mapping[SliceKey, Seen], bad: Sequence[BadRecord]) -> dict[SliceKey, Seen]:
    """What was seen, and these bad records among it."""
    partitions = np.array([one.partition for one in bad])
    offsets = np.array([one.offset for one in bad])
    counts = {
        key: int(((partitions == key.partition) & (offsets >= key.start) & (offsets < key.end)).sum()) for key in seen
    }
    return {key: replace(part, bad=part.bad + counts[key]) for key, part in seen.items()}
