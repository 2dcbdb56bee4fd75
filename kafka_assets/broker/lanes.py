"""Lanes: the records of each partition in a queue of their own, from which one worker at a time takes the next."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.units import Where, place_of

LOGGER = logging.getLogger("kafka_assets.workers")


@dataclass(eq=False)
class Lane:
    """One partition, while it is this consumer's."""

    place: Where
    queue: deque[StoredRecord] = field(default_factory=deque[StoredRecord])
    scheduled: bool = False
    closed: bool = False
    """It is another member's by now, and what is done of it counts no more."""


@dataclass(frozen=True)
class Failure:
    """The record that a worker could not do, and why."""

    record: StoredRecord
    error: BaseException


class Lanes:
    """Between one thread that adds and keeps, and many that take. Order holds in a partition, and nowhere else."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._lanes: dict[Where, Lane] = {}
        self._ready: deque[Lane] = deque()
        self._busy: set[Where] = set()
        self._done: dict[Where, StoredRecord] = {}
        self._ended = False
        self.failure: Failure | None = None

    # -- for workers

    def take(self) -> tuple[Lane, StoredRecord] | None:
        """The next record of a partition that no other worker has in hand; None when there will be no more."""
        with self._change:
            while True:
                self._change.wait_for(lambda: bool(self._ready) or self._ended or self.failure is not None)
                if self._ended or self.failure is not None:
                    return None
                lane = self._ready.popleft()
                lane.scheduled = False
                if lane.queue and not lane.closed:
                    self._busy.add(lane.place)
                    return lane, lane.queue.popleft()

    def done(self, lane: Lane, record: StoredRecord) -> None:
        with self._change:
            if not lane.closed:
                self._done[lane.place] = record
            self._let_go(lane)

    def failed(self, lane: Lane, record: StoredRecord, error: BaseException) -> None:
        """No record is begun any more; those in other workers' hands are finished."""
        with self._change:
            if lane.closed:
                LOGGER.warning("%s at %s:%d, which is another member's by now", error, lane.place, record.offset)
            else:
                lane.queue.appendleft(record)
                self.failure = self.failure or Failure(record, error)
            self._let_go(lane)

    def _let_go(self, lane: Lane) -> None:
        self._busy.discard(lane.place)
        successor = self._lanes.get(lane.place)
        if successor is not None:
            self._schedule(successor)
        self._change.notify_all()

    def _schedule(self, lane: Lane) -> None:
        if lane.queue and not lane.scheduled and lane.place not in self._busy:
            lane.scheduled = True
            self._ready.append(lane)

    # -- for the consumer

    def add(self, records: Iterable[StoredRecord]) -> None:
        with self._change:
            for record in records:
                place = place_of(record)
                lane = self._lanes.get(place)
                if lane is None:
                    lane = self._lanes[place] = Lane(place)
                lane.queue.append(record)
                self._schedule(lane)
            self._change.notify_all()

    def waiting(self) -> dict[Where, int]:
        """How many records of each partition wait for a worker."""
        with self._change:
            return {place: len(lane.queue) for place, lane in self._lanes.items()}

    def take_done(self) -> list[StoredRecord]:
        """The newest record that is done of each partition that has moved since the last call."""
        with self._change:
            done, self._done = self._done, {}
            return list(done.values())

    def take_left(self) -> list[StoredRecord]:
        """What is not done, when the workers have ended, in each partition's order: with the record that failed."""
        with self._change:
            left = [record for lane in self._lanes.values() for record in lane.queue]
            for lane in self._lanes.values():
                lane.queue.clear()
            return left

    def drop_waiting(self, places: Collection[Where] | None = None) -> None:
        """Forget what no worker has begun, of these or of all."""
        with self._change:
            for place in self._lanes if places is None else places:
                if place in self._lanes:
                    self._lanes[place].queue.clear()

    def close(self, places: Collection[Where]) -> None:
        """They are another member's: what a worker still has in hand of them counts no more."""
        with self._change:
            for place in places:
                lane = self._lanes.pop(place, None)
                if lane is not None:
                    lane.closed = True
                self._done.pop(place, None)

    def settle(self, places: Collection[Where] | None = None, *, timeout: float) -> bool:
        """Wait until nothing of these, or of all, is queued or in hand; False where it takes longer, or one fails."""
        with self._change:
            self._change.wait_for(
                lambda: self._idle(places) or (self.failure is not None and not self._in_hand(places)), timeout=timeout
            )
            return self._idle(places)

    def end(self) -> None:
        """Let the workers go, once they have finished what is in hand."""
        with self._change:
            self._ended = True
            self._change.notify_all()

    def _in_hand(self, places: Collection[Where] | None) -> bool:
        return bool(self._busy if places is None else self._busy.intersection(places))

    def _idle(self, places: Collection[Where] | None) -> bool:
        lanes = self._lanes.values() if places is None else [self._lanes[p] for p in places if p in self._lanes]
        return not self._in_hand(places) and not any(lane.queue for lane in lanes)
