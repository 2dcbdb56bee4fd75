"""The batches of a member: one that the worker commits, while the next one is gathered."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass

from kafka_assets.broker.rebalances import shown
from kafka_assets.broker.subscription import Subscription
from kafka_assets.errors import Fenced, Retryable, TopicMissing
from kafka_assets.live.backoff import Backoff
from kafka_assets.live.batch import Place
from kafka_assets.live.figures import Figures
from kafka_assets.live.gathering import Gathering, Part
from kafka_assets.live.landing import Landing
from kafka_assets.live.limits import Limits
from kafka_assets.sinks.live import Committed

_log = logging.getLogger(__name__)

_LOOK = 0.1
"""Seconds, at least, between two looks for control records alone."""


@dataclass
class Flight:
    """A batch that the worker commits."""

    parts: Sequence[Part]
    done: Future[list[Committed]]


@dataclass
class Committing:
    """Of one thread; the worker lands."""

    landing: Landing
    gathering: Gathering
    limits: Limits
    figures: Figures
    worker: Executor
    backoff: Backoff
    through: dict[Place, int]
    """Up to where each partition is committed."""
    flight: Flight | None = None
    uncommitted: Sequence[Place] = ()
    """The partitions of a batch that failed: they are to be begun with again."""

    def __post_init__(self) -> None:
        self._looked_at = 0.0

    @property
    def full(self) -> bool:
        return self.gathering.records >= self.limits.records or self.gathering.bytes >= self.limits.bytes

    @property
    def landed(self) -> bool:
        """Whether the worker is done with a batch, for better or worse."""
        return self.flight is not None and self.flight.done.done()

    def wait(self, seconds: float) -> bool:
        """Wait so long for the batch that is being committed; whether the worker is done with it."""
        if self.flight is not None:
            wait([self.flight.done], timeout=seconds)
        return self.landed

    def launch(self, group: Subscription, *, now: bool = False) -> Sequence[Place]:
        """Give the worker what was gathered, when it is due and the worker has no batch.

        Partitions that delivered other offsets than asked for are left out, and returned.
        """
        if self.flight is not None or not (now or self._due()):
            return ()
        self._looked_at = time.monotonic()
        # Where only control records came, the position alone has moved.
        parts = self.gathering.take(group.positions(self.gathering.places()))
        torn = [part.place for part in parts if part.torn]
        if whole := [part for part in parts if part.place not in torn]:
            self.flight = Flight(whole, self.worker.submit(self.landing.land, whole))
            self.figures.committing = sum(len(part.batch) for part in whole)
        return torn

    def finish(self, places: Collection[Place], *, within: float) -> None:
        """Wait so long for a batch that has some of these, and take it."""
        if self.flight is not None and any(part.place in places for part in self.flight.parts) and self.wait(within):
            self.land()

    def land(self) -> bool:
        """What became of the batch; what is permanent is raised."""
        assert self.flight is not None
        flight, self.flight = self.flight, None
        self.figures.committing = 0
        try:
            committed = flight.done.result()
        except (Retryable, Fenced, TopicMissing) as error:
            self.backoff.failed()
            self.figures.retries += 1
            _log.warning("a batch of %s was not committed: %s", shown(part.place for part in flight.parts), error)
            self.uncommitted = [part.place for part in flight.parts]
            return False
        self.backoff.worked()
        self.through.update((part.place, part.end) for part in flight.parts if part.place in self.through)
        self.figures.commits += 1
        for one in committed:
            self.figures.records += one.outcome.records_read
            self.figures.rows += one.outcome.rows_written
            self.figures.quarantined += one.outcome.quarantined
            self.figures.bytes += one.outcome.bytes_read
        return True

    def _due(self) -> bool:
        gathered, now = self.gathering, time.monotonic()
        if self.full:
            return True
        if gathered.since is not None:
            return now - gathered.since >= self.limits.delay
        return bool(gathered.held) and now - self._looked_at >= max(self.limits.delay, _LOOK)
