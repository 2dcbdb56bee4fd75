"""Commits behind the work: the consumer goes on while Kafka answers, and an older one never overwrites a newer one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager

from kafka_assets.broker.group_offsets import GroupOffsets
from kafka_assets.broker.units import Unit, Where
from kafka_assets.errors import CommitFailed

LOGGER = logging.getLogger("kafka_assets.commits")
_PAUSE = 0.1
_TAKE_OFF = 0.05


class InSequence(GroupOffsets):
    """The keeper of `commit="async"`. Each unit's end has a number; one commit is on its way at a time.

    What comes meanwhile waits, and only the newest of it is sent next. One that failed is not repeated: the
    next takes its offsets along where it has none newer. On revoke and at the end it commits in step.
    librdkafka's own asynchronous commits are not used: it repeats what failed by itself, in any order.

    A commit sets out only while the consumer's thread is outside of librdkafka: inside, the client lets no other
    thread in (confluent-kafka 2.16, each call to a consumer), and a revocation that waited there for a commit on
    its way would wait for ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 0
        """Of the newest unit that is done."""
        self.committed = 0
        """Of the newest unit that Kafka has confirmed."""
        self._waiting: dict[Where, int] = {}
        self._flying: dict[Where, int] = {}
        self._lost: set[Where] = set()
        """While a commit was on its way: what of it fails is not for us to repeat."""
        self._failed_since: float | None = None
        self._failure: CommitFailed | None = None
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._in_step = self._polling = self._ended = False

    def owe(self, offsets: Mapping[Where, int]) -> None:
        with self._change:
            self._waiting = {**offsets, **self._waiting}

    def done(self, unit: Unit) -> None:
        with self._change:
            self.sequence += 1
            self._waiting |= unit.ends
            failure, self._failure = self._failure, None
        self._wake()
        if failure is not None:
            raise failure

    @contextmanager
    def polling(self) -> Generator[None]:
        with self._change:
            self._change.wait_for(lambda: not self._flying, timeout=self.patience)
            self._polling = True
        try:
            yield
        finally:
            with self._change:
                self._polling = False
                self._change.notify_all()

    def idle(self) -> Collection[Where]:
        self._wake()
        with self._change:
            # Where one poll follows another, this is a commit's only moment to set out.
            self._change.wait_for(lambda: not self._waiting, timeout=_TAKE_OFF)
        return ()

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._commit_what_waits, name="commits", daemon=True)
            self._thread.start()
        with self._change:
            self._change.notify_all()

    def released(self, places: Collection[Where]) -> None:
        try:
            self._catch_up()
        finally:
            self._forget(places)

    def lost(self, places: Collection[Where]) -> None:
        self._forget(places)

    def _forget(self, places: Collection[Where]) -> None:
        """They are another member's: nothing of them is committed any more, nor asked for again."""
        with self._change:
            for place in places:
                self._waiting.pop(place, None)
            self._lost.update(places)

    def close(self) -> None:
        try:
            self._catch_up()
        finally:
            with self._change:
                self._ended = True
                self._change.notify_all()
            if self._thread is not None:
                self._thread.join(self.patience)

    def _catch_up(self) -> None:
        """Commit the newest in step, after what is on its way has its answer; nothing else sets out meanwhile."""
        with self._change:
            self._in_step = True
        try:
            with self._change:
                if not self._change.wait_for(lambda: not self._flying, timeout=self.patience):
                    raise CommitFailed(
                        "a commit has had no answer",
                        why=f"for {self.patience:g} s",
                        cure="nothing, if the broker comes back: the same records come again",
                    )
                newest, number, self._waiting = self._waiting, self.sequence, {}
            try:
                self.commit(newest)
            except CommitFailed as error:
                if not error.moved_on:
                    with self._change:
                        self._waiting = {**newest, **self._waiting}
                raise
            self.committed = number
        finally:
            with self._change:
                self._in_step = False
                self._change.notify_all()

    @property
    def _may_set_out(self) -> bool:
        return bool(self._waiting) and not self._in_step and not self._polling

    def _commit_what_waits(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._may_set_out or self._ended)
                if self._ended:
                    return
                self._flying, number, self._waiting = self._waiting, self.sequence, {}
                self._lost.clear()
                self._change.notify_all()
            failure: CommitFailed | None = None
            try:
                self.commit(self._flying, patience=0)
            except CommitFailed as error:
                failure = error
            with self._change:
                flown = {place: offset for place, offset in self._flying.items() if place not in self._lost}
                self._flying = {}
                self._note(failure, flown, number)
                self._change.notify_all()
            if failure is not None:
                time.sleep(_PAUSE)

    def _note(self, failure: CommitFailed | None, flown: Mapping[Where, int], number: int) -> None:
        if failure is None:
            self.committed, self._failed_since = number, None
            return
        LOGGER.info("commit %d failed: %s", number, failure)
        if failure.moved_on:
            return
        self._waiting = {**flown, **self._waiting}
        self._failed_since = self._failed_since or time.monotonic()
        if time.monotonic() - self._failed_since > self.patience:
            self._failure = failure
