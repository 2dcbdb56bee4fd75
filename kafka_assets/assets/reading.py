"""What a run reads: each transaction's chunks, begun while the one before it is committed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import islice, pairwise

import pyarrow as pa
from pyspark.sql import DataFrame

from kafka_assets.assets.landing import Landing, Observed
from kafka_assets.records import Chunk, Chunks
from kafka_assets.slices import SliceKey

From = Mapping[SliceKey, int]
"""From where each slice is read."""


class Begun:
    """Chunks whose first one is read from now on, in a thread: meanwhile the table is looked at, and slices locked.

    Asked for again, as by a transaction that is tried again, they are read anew. `then` is called when all were given.
    """

    def __init__(self, chunks: Chunks, then: Callable[[], object] = lambda: None) -> None:
        self._chunks, self._then = chunks, then
        self._stream, self._asked = _generated(chunks), False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="first chunk")
        self._first = self._pool.submit(lambda: list(islice(self._stream, 1)))

    @property
    def has_failed(self) -> bool:
        """Whether the first one is known not to come."""
        return self._first.done() and self._first.exception() is not None

    def __call__(self) -> Iterator[Chunk]:
        again, self._asked = self._asked, True
        if again:
            self.close()
            yield from self._chunks()
        elif met := self._first.result():
            yield met.pop()  # nothing here holds a chunk that the publisher is done with
            yield from self._stream
        self._then()

    def close(self) -> None:
        """End what is still being read; waits for the first chunk: a stream that is read cannot be ended.

        Where somebody does not wait for it, whoever reads it ends the stream then.
        """
        try:
            wait([self._first])
        finally:
            self._pool.shutdown(wait=False)
            if self._first.done():
                self._stream.close()
            else:
                self._first.add_done_callback(lambda first: self._stream.close())


class Reading:
    """The records of a run's transactions, in their order."""

    def __init__(self, run: Landing, frame: DataFrame, parts: Sequence[Landing]) -> None:
        self._run, self._frame = run, frame
        self._after = {one.keys: after for one, after in pairwise(parts)}
        self._ahead: tuple[From, Begun] | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that reach the table. All slices' are the same, and Spark takes a while to say what they are."""
        return self._run.schema(self._frame)

    @contextmanager
    def of(self, landing: Landing, read_from: From) -> Generator[Chunks]:
        """A transaction's chunks. When all of them were taken, those of the next one are begun."""
        if not isinstance(landing.records, Observed):
            # Another asset's rows are read from the same database, by functions that run in this thread.
            yield landing.chunks(read_from, self.schema)
            return
        begun = self._taken(read_from) or self._begun(landing, read_from)
        try:
            yield begun
        finally:
            begun.close()

    def close(self) -> None:
        """End what was begun for a transaction that never came."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[1].close()

    def _begun(self, landing: Landing, read_from: From) -> Begun:
        return Begun(landing.chunks(read_from, self.schema), partial(self._go_ahead, self._after.get(landing.keys)))

    def _taken(self, read_from: From) -> Begun | None:
        """What was begun, if it is what is to be read: of what has expired since, less is. What failed is read anew."""
        if self._ahead is None or self._ahead[0] != read_from or self._ahead[1].has_failed:
            self.close()
            return None
        (_, begun), self._ahead = self._ahead, None
        return begun

    def _go_ahead(self, part: Landing | None) -> None:
        """Begin to read the next transaction's slices, from their starts: it says later whether that is right."""
        if part is not None and self._ahead is None:
            read_from = {key: key.start for key in part.keys}
            self._ahead = read_from, self._begun(part, read_from)


def _generated(chunks: Chunks) -> Generator[Chunk]:
    yield from chunks()
