"""Values are decoded while their batch still gathers, on a thread of its own: a batch that is full is nearly ready.

Decoding costs more than all else that a consumer does, and most of it without Python's lock. Done only when its batch
is landed, it would keep the thread that waits for the database from waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from kafka_assets.decode.contract import Decoded
from kafka_assets.live.batch import Batch

PIECE = 5_000
"""Values that are worth a turn of that thread."""


@dataclass(frozen=True)
class Piece:
    """Values of one batch, from the piece before it up to `end`, that are decoded or about to be."""

    end: int
    columns: Future[Decoded]


class ReadAhead:
    """One stream's values. `begin` of one thread, `columns` of any."""

    def __init__(self, read: Callable[[Sequence[bytes | None]], Decoded]) -> None:
        self._read = read
        self._one = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decoder")

    def begin(self, batch: Batch) -> None:
        """Decode what the batch has beyond its last piece, where that is enough for one."""
        start = batch.pieces[-1].end if batch.pieces else 0
        if (end := len(batch)) - start >= PIECE:
            batch.pieces.append(Piece(end, self._thread.submit(self.read, batch.values[start:end])))

    def columns(self, batches: Iterable[Batch]) -> Decoded:
        """The values of the batches, one after the other; what was not begun with is decoded now."""
        parts = list(self._parts(batches)) or [(0, self.read([]))]
        bad = {first + at: reason for first, found in parts for at, reason in found.bad.items()}
        return Decoded(pa.concat_tables([found.rows for _, found in parts]), bad)

    def _parts(self, batches: Iterable[Batch]) -> Iterator[tuple[int, Decoded]]:
        """The place of each part's first value among all, and what became of the part."""
        first = 0
        for batch in batches:
            done = 0
            for piece in batch.pieces:
                yield first + done, piece.columns.result()
                done = piece.end
            if done < len(batch):
                yield first + done, self.read(batch.values[done:] if done else batch.values)
            first += len(batch)

    def read(self, values: Sequence[bytes | None]) -> Decoded:
        """These values, now."""
        # A format's reader learns from what it meets: one thread at a time.
        with self._one:
            return self._read(values)

    def close(self) -> None:
        """What nobody waits for any more is not decoded."""
        self._thread.shutdown(wait=True, cancel_futures=True)
