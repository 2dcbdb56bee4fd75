"""The partitions of a member that are not read yet: the worker leases them, and they are read from planned_through.

Whatever goes wrong with one that is read, it comes back here, and begins again from the ledger.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from kafka_assets.broker.rebalances import shown
from kafka_assets.broker.subscription import Subscription
from kafka_assets.errors import Fenced, Retryable
from kafka_assets.ledger.leases import Lease
from kafka_assets.live.backoff import Backoff
from kafka_assets.live.batch import Place
from kafka_assets.live.figures import Figures
from kafka_assets.live.gathering import Gathering
from kafka_assets.live.keeping import Keeper
from kafka_assets.live.taking import Answer, Begun, Taking, Wait

_log = logging.getLogger(__name__)

_REVIEWED_EVERY = 10.0


@dataclass
class Waiting:
    """A partition of this member that is not read yet."""

    due: float
    """On the monotonic clock: when to try."""
    lease: Lease | None = None
    tries: int = 0
    given: bool = False
    """Whether the group has just given it, and this member has not had its lease since."""


@dataclass
class Beginning:
    """Of one thread; what is asked of the ledger, the worker asks."""

    taking: Taking
    keeper: Keeper
    gathering: Gathering
    figures: Figures
    worker: Executor
    backoff: Backoff
    through: dict[Place, int]
    """Up to where each partition is committed."""
    ends: dict[Place, int] = field(default_factory=dict[Place, int])
    """Where each ended when it was begun with: until records come, nobody has said anything newer."""
    waiting: dict[Place, Waiting] = field(default_factory=dict[Place, Waiting])
    under_way: tuple[Collection[Place], Future[dict[Place, Answer]]] | None = None

    def __post_init__(self) -> None:
        self._reviewing: Future[list[Place]] | None = None
        self._reviewed_at = time.monotonic()

    def add(self, places: Iterable[Place]) -> None:
        """These are this member's now."""
        self.waiting.update((place, Waiting(due=0.0, given=True)) for place in places)

    def forget(self, places: Collection[Place]) -> list[Lease]:
        """These are this member's no more, read or not; the leases that it has on them."""
        leases: list[Lease] = []
        for place in places:
            held, waits = self.gathering.held.get(place), self.waiting.pop(place, None)
            lease = held.lease if held is not None else waits.lease if waits is not None else None
            leases += [lease] if lease is not None else []
            self.figures.waiting.pop(shown([place]), None)
            self.figures.troubles.pop(shown([place]), None)
            self.through.pop(place, None)
            self.ends.pop(place, None)
        self.gathering.drop(places)
        return leases

    def again(self, group: Subscription, places: Iterable[Place], *, after: float = 0.0) -> None:
        """Forget where these stand, and begin with them again from the ledger."""
        for place in places:
            if (held := self.gathering.held.get(place)) is not None:
                self.gathering.drop([place])
                group.park([place])
                self.waiting[place] = Waiting(time.monotonic() + after, held.lease)
                self.figures.restarts += 1

    def review(self, group: Subscription, *, busy: bool) -> None:
        """Where the stream says how far behind is too far: see who is, now and then."""
        if not self.taking.jumping.declared:
            return
        if self._reviewing is not None and self._reviewing.done():
            done, self._reviewing = self._reviewing, None
            try:
                self.again(group, done.result())
            except Retryable as error:
                _log.warning("%s", error)
        now = time.monotonic()
        if self._reviewing is None and not busy and now - self._reviewed_at > _REVIEWED_EVERY:
            self._reviewed_at = now
            standing = {place: (held.lease.source, held.position) for place, held in self.gathering.held.items()}
            if standing:
                self._reviewing = self.worker.submit(self.taking.jumping.behind, standing)

    def launch(self) -> None:
        """Have the worker begin with those that are due."""
        now = time.monotonic()
        due = [place for place, one in self.waiting.items() if one.due <= now]
        if due and self.under_way is None:
            given = {place for place in due if self.waiting[place].given}
            self.under_way = due, self.worker.submit(self.taking.begin, due, given=given)

    def settle(self, group: Subscription) -> bool:
        """Take what the worker has begun with; whether there was anything."""
        if self.under_way is None or not self.under_way[1].done():
            return False
        (places, done), self.under_way = self.under_way, None
        try:
            answers = done.result()
        except (Retryable, Fenced) as error:
            self.backoff.failed()
            answers: dict[Place, Answer] = dict.fromkeys(places, Wait(str(error), self.backoff.seconds()))
        orphans: list[Lease] = []
        begun: dict[Place, Begun] = {}
        for place, answer in answers.items():
            waits = self.waiting.get(place)
            if waits is None or place not in group.assigned:  # it went meanwhile
                orphans += [answer.lease] if answer.lease is not None else []
            elif isinstance(answer, Begun):
                self.keeper.hold([answer.lease])
                begun[place] = answer
            else:
                self._wait(place, waits, answer)
        self._read_on(group, begun)
        if orphans:
            self.worker.submit(self.keeper.give_back, orphans)
        return True

    def close(self) -> None:
        """What was begun with while the group was left is nobody's."""
        if self.under_way is not None:
            self.worker.submit(self._give_up, self.under_way[1])

    def _give_up(self, done: Future[dict[Place, Answer]]) -> None:
        if done.done() and done.exception() is None:
            self.keeper.give_back([one.lease for one in done.result().values() if one.lease is not None])

    def _read_on(self, group: Subscription, begun: Mapping[Place, Begun]) -> None:
        try:
            group.start({place: one.offset for place, one in begun.items()})
        except Retryable as error:
            due = time.monotonic() + self.backoff.seconds()
            self.waiting.update((place, Waiting(due, one.lease)) for place, one in begun.items())
            _log.warning("%s", error)
            return
        for place, one in begun.items():
            del self.waiting[place]
            self.figures.troubles.pop(shown([place]), None)
            self.backoff.worked()
            self.through[place], self.ends[place] = one.offset, one.end
            self.gathering.begin(place, one.lease, one.offset)
            _log.info("%s is read from offset %d", shown([place]), one.offset)

    def _wait(self, place: Place, waits: Waiting, answer: Wait) -> None:
        if answer.lease is not None:
            self.keeper.hold([answer.lease])
        if answer.trouble:
            if self.figures.troubles.get(shown([place])) != answer.why:
                _log.error("%s", answer.why)
            self.figures.troubles[shown([place])] = answer.why
        elif waits.tries == 0:
            _log.info("%s waits: %s", shown([place]), answer.why)
        self.figures.waiting[shown([place])] = answer.why
        due, lease = time.monotonic() + answer.seconds, answer.lease or waits.lease
        self.waiting[place] = Waiting(due, lease, waits.tries + 1, given=waits.given and lease is None)
