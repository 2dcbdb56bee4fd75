"""Values are decoded while their batch still gathers, as soon as they came: a batch that is full is nearly ready.

By the thread that consumes, which has nothing else to do while a database takes the batch before: what it has just
taken apart is still in the processor's cache. Done only when its batch is landed, decoding would keep the thread that
waits for the database from waiting; by a thread of its own it costs a tenth more (measured).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from kafka_assets.decode.contract import Decoded, Reason
from kafka_assets.live.batch import Batch, Columns

PIECE = 5_000
"""Values that are worth a call."""


class ReadAhead:
    """One stream's values. `begin` of one thread, `columns` of any."""

    def __init__(self, read: Callable[[Sequence[Columns]], Decoded]) -> None:
        self._read = read
        self._one = threading.Lock()

    def begin(self, batch: Batch) -> None:
        """Decode what the batch has beyond its last piece, where that is enough for one."""
        waiting = batch.parts[batch.begun :]
        if sum(map(len, waiting)) >= PIECE:
            batch.pieces.append(self.read(waiting))
            batch.begun = len(batch.parts)

    def columns(self, batches: Iterable[Batch]) -> Decoded:
        """The values of the batches, one after the other; what was not begun with is decoded now."""
        tables: list[pa.Table] = []
        bad, first = dict[int, Reason](), 0
        for found in self._found(batches):
            tables.append(found.rows)
            bad.update((first + at, reason) for at, reason in found.bad.items())
            first += found.rows.num_rows + len(found.bad)
        return Decoded(pa.concat_tables(tables or [self.read([]).rows]), bad)

    def _found(self, batches: Iterable[Batch]) -> Iterator[Decoded]:
        for batch in batches:
            yield from batch.pieces
            if batch.begun < len(batch.parts):
                yield self.read(batch.parts[batch.begun :])

    def read(self, parts: Sequence[Columns]) -> Decoded:
        """These values, now."""
        # A format's reader learns from what it meets: one thread at a time.
        with self._one:
            return self._read(parts)
