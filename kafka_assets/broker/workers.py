"""One consumer, many workers: each partition's records in order, and no commit passes a record that is not done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from kafka_assets.broker.commit_modes import check, keeper_of
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.idleness import Idleness
from kafka_assets.broker.keepers import Keeper
from kafka_assets.broker.lanes import LOGGER, Lanes
from kafka_assets.broker.leaving import Leaving
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.reader import Reader, Wanted
from kafka_assets.broker.starts import Start
from kafka_assets.broker.units import Unit, Where, without
from kafka_assets.errors import CommitFailed, KafkaAssetsError, UsageError

_POLL, _POLL_PAUSED = 0.1, 0.02
"""Seconds of one look for records; shorter while a full queue keeps partitions paused."""
_HEARD_EVERY = 1.0
"""Seconds after which the group is to hear of this member that wants no records now, and gets one with it."""
_LONG_FULL = 10.0
"""Seconds after which partitions that are all full are paused: so long that the second until they go on is little."""
_COMMITS = ("none", "sync", "async")


class Workers(Leaving):
    """Reads as a Consumer does, and has `workers` threads do the records: of one partition never two at a time.

    At most about `queue` records of a partition wait; then it is paused until half of them are done, while others
    are read on. Going on takes up to a second where its broker has no other: a queue of two seconds' work never runs
    empty. What is done is committed every `commit_every` seconds, on revoke and at the end.
    """

    what = "consumer"

    def __init__(  # noqa: PLR0913 - each is one word of configuration, by name
        self,
        connection: Connection,
        topics: str | Sequence[str],
        *,
        group: str | Membership | None = None,
        partitions: Collection[int] | None = None,
        start: Start = "earliest",
        commit: Literal["none", "sync", "async"] | None = None,
        workers: int = 4,
        queue: int = 1000,
        commit_every: float = 1.0,
        max_records: int = 500,
        stop: threading.Event | None = None,
    ) -> None:
        if workers < 1 or queue < 1:
            raise UsageError("there is no work without a worker and a queue", cure="give workers and queue from 1 on")
        if commit is not None and commit not in _COMMITS:
            raise UsageError(
                f"commit={commit!r} is not for workers",
                why="it would pass records that are not done, or needs them one after the other",
                cure=f"choose among {', '.join(_COMMITS)}, or one consumer for each thread (run_in_threads)",
            )
        member = Membership(group) if isinstance(group, str) else group
        self._keeper: Keeper = keeper_of(commit, group=member, auto_interval=0)
        check(self._keeper, commit, group=member, each="batch", offset_first=False, partitions=partitions)
        self._count, self._queue = workers, queue
        self._commit_every, self._max_records = commit_every, max_records
        self._patience = member.poll_interval(connection) / 2 if member else 60.0
        self._lanes = Lanes()
        self._ahead: list[StoredRecord] = []
        """Polled, and given to no worker of this run."""
        self._paused: set[Where] = set()
        self._full_since: float | None = None
        self._kept_at = time.monotonic()
        self._stopping = stop or threading.Event()
        self._closed = False
        wanted = Wanted(topics, member, partitions, start)
        self._reader = Reader(connection, wanted, self._keeper, on_revoke=self._revoked, on_lost=self._lost)

    def run(self, handle: Callable[[StoredRecord], object], *, idle: float | None = None) -> None:
        """Do every record, until `stop`; with `idle`, as a Consumer's, until all is read and done for so many seconds.

        What `handle` raises is raised here, after the other workers have finished what they had in hand. The record
        is not done, and nothing after it in its partition was begun or is committed. Called again, it goes on there.
        """
        self._lanes = Lanes()
        self._lanes.add(self._ahead)
        self._ahead = []
        threads = [
            threading.Thread(target=_work, args=(self._lanes, handle), name=f"worker-{number}", daemon=True)
            for number in range(self._count)
        ]
        for thread in threads:
            thread.start()
        raised: BaseException | None = None
        try:
            self._read(idle)
            self._drain()
        except BaseException as error:  # noqa: BLE001 raised below, when the workers have ended
            raised = error
        self._lanes.end()
        for thread in threads:
            thread.join()
        if (failure := self._lanes.failure) is not None:
            at = failure.record
            failure.error.add_note(
                f"at {at.topic}:{at.partition}:{at.offset}, which is not done; nothing after it is committed"
            )
            raised = failure.error
        # What was taken and not done comes again; Kafka is past it.
        self._ahead = [*self._lanes.take_left(), *self._ahead]
        self._end(raised)

    def _end(self, raised: BaseException | None) -> None:
        """Commit what was done, whatever else has happened."""
        try:
            self._keep(now=True)
        except KafkaAssetsError as late:
            if raised is None:
                raise
            raised.add_note(f"and committing what was done: {late}")
        if raised is not None:
            raise raised

    def stop(self) -> None:
        """Take no more records, do those that were taken, and end `run`. From any thread, or a signal's handler."""
        self._stopping.set()

    @property
    def assigned(self) -> frozenset[Where]:
        """The partitions that it reads now."""
        return self._reader.assigned

    def close(self) -> None:
        """Leave the group."""
        if self._closed:
            return
        self._closed = True
        try:
            self._keeper.close()
        finally:
            self._reader.close()

    def _read(self, idle: float | None) -> None:
        idleness = Idleness(self._reader, idle)
        while not self._stopping.is_set() and self._lanes.failure is None:
            if not self._held_back():
                records = self._reader.poll(self._max_records, _POLL_PAUSED if self._paused else _POLL)
                self._lanes.add(records)
            self._press_back()
            self._keep()
            if not self._lanes.settle(timeout=0):
                idleness.broken()
            elif idleness.over():
                return

    def _held_back(self) -> bool:
        """Wait a little where a queue is full and none half empty: not to poll is enough, where it is not for long."""
        waiting = self._lanes.waiting()
        queues = {place: waiting.get(place, 0) for place in self._reader.assigned.difference(self._paused)}
        if all(count < self._queue for count in queues.values()) or self._hungry(queues):
            self._full_since = None
            return False
        now = time.monotonic()
        self._full_since = self._full_since or now
        if now - self._full_since > _LONG_FULL:
            self._pause(queues)
        elif now - self._reader.polled_at > _HEARD_EVERY:
            self._lanes.add(self._reader.poll(1, 0))
        self._stopping.wait(_POLL_PAUSED)
        return True

    def _press_back(self) -> None:
        """Pause what has a full queue beside others that are half empty, resume what is."""
        waiting = self._lanes.waiting()
        again = self._hungry({place: waiting.get(place, 0) for place in self._paused})
        self._paused.difference_update(again)
        self._reader.resume(again)
        queues = {place: waiting.get(place, 0) for place in self._reader.assigned.difference(self._paused)}
        if self._hungry(queues):
            self._pause([place for place, count in queues.items() if count >= self._queue])

    def _hungry(self, queues: Mapping[Where, int]) -> list[Where]:
        return [place for place, count in queues.items() if count <= self._queue // 2]

    def _pause(self, places: Collection[Where]) -> None:
        self._paused.update(places)
        self._reader.pause(places)

    def _drain(self) -> None:
        """Do what was taken, and stay in the group meanwhile: a rebalance may take partitions even now."""
        while self._lanes.failure is None and not self._lanes.settle(timeout=_POLL):
            if time.monotonic() - self._reader.polled_at > _HEARD_EVERY:
                polled = self._reader.poll(1, 0)
                self._ahead = [*self._ahead, *polled]
            self._keep()

    def _keep(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._kept_at >= self._commit_every:
            self._kept_at = time.monotonic()
            done = Unit(())
            done.done = self._lanes.take_done()
            if done.done:
                try:
                    self._keeper.done(done)
                except CommitFailed as error:
                    if not error.moved_on:
                        raise
                    # The next poll says so, too: another member does these again.
                    LOGGER.warning("%s", error)

    def _revoked(self, places: Sequence[Where]) -> None:
        """What a worker has in hand is finished in time, and committed; what none has begun comes to another member."""
        self._ahead = without(self._ahead, places)
        self._lanes.drop_waiting(places)
        self._lanes.settle(places, timeout=self._patience)
        try:
            self._keep(now=True)
        finally:
            self._lanes.close(places)
            self._paused.difference_update(places)
            self._keeper.released(places)

    def _lost(self, places: Sequence[Where]) -> None:
        self._ahead = without(self._ahead, places)
        self._lanes.close(places)
        self._paused.difference_update(places)
        self._keeper.lost(places)


def _work(lanes: Lanes, handle: Callable[[StoredRecord], object]) -> None:
    while (taken := lanes.take()) is not None:
        lane, record = taken
        try:
            handle(record)
        except BaseException as error:  # noqa: BLE001 raised by run, in the caller's thread
            lanes.failed(lane, record, error)
        else:
            lanes.done(lane, record)
