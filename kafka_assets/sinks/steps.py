"""Where a run's time goes: seconds by step, each moment of it in one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from types import MappingProxyType

from kafka_assets.records import Chunk

STEPS: Mapping[str, str] = MappingProxyType(
    {
        "spark": "Spark's session, and its answer which columns the function gives",
        "claim": "finding the slices in the ledger, and claiming them",
        "offsets": "asking Kafka before the first record and after the last",
        "table": "looking at the target table, or making it",
        "first_chunk": "until the first records are there, read and decoded",
        "read": "waiting for the others",
        "lock": "waiting for the publications' locks; a replay's old rows are deleted",
        "insert": "rows and quarantine",
        "merge": "mode upsert: from the temporary table into the target",
        "commit": "attempts, counts, committed_through and COMMIT",
    }
)
"""In the order of a run."""


class Steps:
    """A stopwatch: the time from one step to the next is the former's.

    A transaction that is tried again goes back to what was marked before it: its steps are those of the last try.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: dict[str, float] = {}
        self._marked: dict[str, float] = {}
        self._step: str | None = None
        self._since = 0.0

    def now(self, step: str | None) -> str | None:
        """From here on the time is this step's, or none's; returns whose it was."""
        former, at = self._step, self._clock()
        if former is not None:
            self._spent[former] = self._spent.get(former, 0.0) + at - self._since
        self._step, self._since = step, at
        return former

    def mark(self) -> None:
        self.now(None)
        self._marked = dict(self._spent)

    def back(self) -> None:
        """Forget what was spent since the mark."""
        self.now(None)
        self._spent = dict(self._marked)

    def waiting(self, chunks: Iterable[Chunk]) -> Generator[Chunk]:
        """The same chunks; the time until each is there is no part of the step that asks for it."""
        found, step = iter(chunks), "first_chunk"
        while True:
            asking = self.now(step)
            try:
                chunk = next(found, None)
            finally:
                self.now(asking)
            if chunk is None:
                return
            yield chunk
            step = "read"

    def seconds(self) -> dict[str, float]:
        """What each step took that was begun, in the order of a run."""
        self.now(self._step)
        return {step: self._spent[step] for step in STEPS if step in self._spent}
