"""One member of the group: what it is given is begun with, gathered, committed in batches, and given back.

Two threads, and the one for the leases. This one asks Kafka and never waits for long, so that the group hears of
it; the worker asks the ledger: it begins with partitions and commits batches, one thing at a time. While a batch is
committed the next one is gathered; when that is full too, the partitions are paused.

    assigned ─→ parked, waiting ─→ begun (leased, read from planned_through) ─→ gathered ─→ committed
                     ↑                                                                         │
                     └── fenced, expired, created again, database or broker away ←─────────────┘
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from kafka_assets.broker.member_errors import NotThere
from kafka_assets.broker.rebalances import shown
from kafka_assets.broker.subscription import Subscription
from kafka_assets.errors import Fenced, KafkaAssetsError, Retryable, TopicMissing
from kafka_assets.ledger.leases import Lease
from kafka_assets.live.batch import Place
from kafka_assets.live.figures import Figures
from kafka_assets.live.gathering import AT_ONCE, Gathering, Part
from kafka_assets.live.keeping import Keeper
from kafka_assets.live.landing import Landing
from kafka_assets.live.limits import Limits
from kafka_assets.live.taking import Answer, Begun, Taking, Wait
from kafka_assets.sinks.live import Committed

_log = logging.getLogger(__name__)

_POLL = 0.1
"""Seconds that one call to Kafka may wait for records."""
_BUSY = 0.02
"""The same while a batch is committed, after which the next one may be due."""
_FULL = 1.0
"""Seconds to wait for the worker before the partitions are paused, which drops what was fetched ahead."""
_COUNTED_EVERY = 1.0
_OVER = 5.0
"""Seconds without an error after which trouble with the broker is over; it is not said with every call."""
_REVIEWED_EVERY = 10.0
_MOST_BEHIND = 30.0
"""Seconds between two tries, at most."""


@dataclass
class Waiting:
    """A partition of this member that is not read yet."""

    due: float
    """On the monotonic clock: when to try."""
    lease: Lease | None = None
    tries: int = 0


@dataclass
class Flight:
    """A batch that the worker commits."""

    parts: Sequence[Part]
    done: Future[list[Committed]]


@dataclass
class Loop:
    """Of one thread."""

    taking: Taking
    landing: Landing
    keeper: Keeper
    limits: Limits
    figures: Figures
    patience: float
    """Seconds that the group gives for a revocation."""
    tell_kafka: bool = False
    gathering: Gathering = field(default_factory=Gathering)
    waiting: dict[Place, Waiting] = field(default_factory=dict[Place, Waiting])
    flight: Flight | None = None
    beginning: tuple[Collection[Place], Future[dict[Place, Answer]]] | None = None

    def __post_init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="worker")
        self._held_back = False
        self._failures = 0
        self._complaint, self._complained_at = "", 0.0
        self._looked_at = 0.0
        self._uncommitted: Sequence[Place] = ()
        self._through: dict[Place, int] = {}
        self._counted_at = 0.0
        self._reviewing: Future[list[Place]] | None = None
        self._reviewed_at = time.monotonic()

    # -- what the group says; called inside consume() and close()

    def on_assign(self, places: Sequence[Place]) -> dict[Place, int]:
        """All of them wait, parked: the worker asks the ledger, and the group is not kept waiting."""
        self.waiting.update((place, Waiting(due=0.0)) for place in places)
        return {}

    def on_revoke(self, places: Sequence[Place]) -> None:
        """Finish what is being committed, drop what was only gathered, and give the partitions back."""
        leases = self._forget(places)
        deadline = time.monotonic() + self.patience
        try:
            if (flight := self.flight) is not None and any(part.place in places for part in flight.parts):
                wait([flight.done], timeout=self.patience)
                if flight.done.done():
                    self._land(flight)
        finally:
            # A lease that cannot be given back in time ends by itself, and whoever comes ends its backend.
            if leases:
                given_back = self._worker.submit(self.keeper.give_back, leases)
                wait([given_back], timeout=max(deadline - time.monotonic(), 0.1))

    def on_lost(self, places: Sequence[Place]) -> None:
        """Others may have them already. What is being committed commits or is fenced: the ledger decides."""
        leases = self._forget(places)
        self._worker.submit(self.keeper.give_back, leases)

    # -- each turn

    def turn(self, group: Subscription) -> None:
        """Take what the worker has done, give it more, and ask Kafka once."""
        self._settle(group)
        self._review(group)
        self._begin()
        self._launch(group)
        room = self.limits.records - self.gathering.records
        full = room <= 0 or self.gathering.bytes >= self.limits.bytes
        if full and self.flight is not None:
            wait([self.flight.done], timeout=_FULL)
            if self.flight.done.done():
                return
            self._hold_back(group, True)
        elif not full:
            self._hold_back(group, False)
        try:
            self.gathering.add(group.consume(min(max(room, 1), AT_ONCE), self._pause()))
        except NotThere as error:
            _log.warning("%s", error)
            self._restart(group, [error.place])
        except (TopicMissing, Retryable) as error:
            # The topic may come back; so may the broker.
            self._complain(error)
            time.sleep(_POLL)
        else:
            if self.gathering.records or time.monotonic() - self._complained_at > _OVER:
                self.figures.troubles.pop("broker", None)
                self._complaint = ""
        if time.monotonic() - self._counted_at > _COUNTED_EVERY:
            self._count(group)
        self.figures.rebalances = group.rebalances.count
        self.figures.rebalance_seconds = group.rebalances.seconds

    def drain(self, group: Subscription) -> None:
        """Commit what was gathered; what cannot be is dropped, and comes again."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline and (self.flight is not None or self.gathering.records):
            if self.flight is not None:
                wait([self.flight.done], timeout=_POLL)
                self._settle(group)
            else:
                self._launch(group, now=True)
                if self.flight is None:
                    return

    def close(self) -> None:
        """After the group was left: nothing is done any more."""
        if self.beginning is not None:
            self._worker.submit(self._give_up, self.beginning[1])
        self._worker.submit(self.landing.close)
        self._worker.shutdown(wait=True)

    # -- beginning with partitions

    def _review(self, group: Subscription) -> None:
        """Where the stream says how far behind is too far: see who is, now and then."""
        if not self.taking.jumping.declared:
            return
        if self._reviewing is not None and self._reviewing.done():
            done, self._reviewing = self._reviewing, None
            try:
                self._restart(group, done.result())
            except Retryable as error:
                _log.warning("%s", error)
        now = time.monotonic()
        if self._reviewing is None and self.flight is None and now - self._reviewed_at > _REVIEWED_EVERY:
            self._reviewed_at = now
            standing = {place: (held.lease.source, held.position) for place, held in self.gathering.held.items()}
            if standing:
                self._reviewing = self._worker.submit(self.taking.jumping.behind, standing)

    def _begin(self) -> None:
        now = time.monotonic()
        due = [place for place, one in self.waiting.items() if one.due <= now]
        if due and self.beginning is None and self.flight is None:
            self.beginning = due, self._worker.submit(self.taking.begin, due)

    def _begun(self, group: Subscription, places: Collection[Place], done: Future[dict[Place, Answer]]) -> None:
        try:
            answers = done.result()
        except (Retryable, Fenced) as error:
            self._failures += 1
            answers: dict[Place, Answer] = dict.fromkeys(places, Wait(str(error), self._backoff()))
        orphans: list[Lease] = []
        for place, answer in answers.items():
            waits = self.waiting.get(place)
            if waits is None or place not in group.assigned:  # it went meanwhile
                orphans += [answer.lease] if answer.lease is not None else []
            elif isinstance(answer, Begun):
                self.keeper.hold([answer.lease])
                self._read_on(group, place, answer)
            else:
                self._wait(place, waits, answer)
        if orphans:
            self._worker.submit(self.keeper.give_back, orphans)
        self._count(group)

    def _read_on(self, group: Subscription, place: Place, begun: Begun) -> None:
        try:
            group.start(place, begun.offset)
        except Retryable as error:
            self.waiting[place] = Waiting(time.monotonic() + self._backoff(), begun.lease)
            _log.warning("%s", error)
            return
        del self.waiting[place]
        self.figures.troubles.pop(shown([place]), None)
        self._failures = 0
        self._through[place] = begun.offset
        self.gathering.begin(place, begun.lease, begun.offset)
        _log.info("%s is read from offset %d", shown([place]), begun.offset)

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
        self.waiting[place] = Waiting(time.monotonic() + answer.seconds, answer.lease or waits.lease, waits.tries + 1)

    def _restart(self, group: Subscription, places: Iterable[Place], *, after: float = 0.0) -> None:
        """Forget where these stand, and begin with them again from the ledger."""
        for place in places:
            if (held := self.gathering.held.get(place)) is not None:
                self.gathering.drop([place])
                group.park(place)
                self.waiting[place] = Waiting(time.monotonic() + after, held.lease)
                self.figures.restarts += 1

    def _forget(self, places: Iterable[Place]) -> list[Lease]:
        leases: list[Lease] = []
        for place in places:
            held, waits = self.gathering.held.get(place), self.waiting.pop(place, None)
            lease = held.lease if held is not None else waits.lease if waits is not None else None
            leases += [lease] if lease is not None else []
            self.figures.waiting.pop(shown([place]), None)
            self.figures.troubles.pop(shown([place]), None)
            self._through.pop(place, None)
        self.gathering.drop(places)
        return leases

    def _give_up(self, done: Future[dict[Place, Answer]]) -> None:
        """What was begun with while the group was left is nobody's."""
        if done.done() and done.exception() is None:
            self.keeper.give_back([one.lease for one in done.result().values() if one.lease is not None])

    # -- committing batches

    def _launch(self, group: Subscription, *, now: bool = False) -> None:
        """Give the worker what was gathered, when it is due and the worker has no batch."""
        if self.flight is not None or not (now or self._due()):
            return
        self._looked_at = time.monotonic()
        # Where only control records came, the position alone has moved.
        parts = self.gathering.take(group.positions(self.gathering.places()))
        torn = [part.place for part in parts if part.torn]
        if torn:
            _log.error("%s delivered other offsets than asked for, and is begun with again", shown(torn))
            self._restart(group, torn)
            parts = [part for part in parts if part.place not in torn]
        if parts:
            self.flight = Flight(parts, self._worker.submit(self.landing.land, parts))

    def _due(self) -> bool:
        gathered, now = self.gathering, time.monotonic()
        if gathered.records >= self.limits.records or gathered.bytes >= self.limits.bytes:
            return True
        if gathered.since is not None:
            return now - gathered.since >= self.limits.delay
        return bool(gathered.held) and now - self._looked_at >= max(self.limits.delay, _POLL)

    def _settle(self, group: Subscription) -> None:
        if lost := self.keeper.lost():
            _log.warning("%d leases were taken over", len(lost))
            self._restart(group, [place for place, held in self.gathering.held.items() if held.lease in lost])
        if self.beginning is not None and self.beginning[1].done():
            (places, done), self.beginning = self.beginning, None
            self._begun(group, places, done)
        if self.flight is not None and self.flight.done.done():
            if self._land(self.flight) and self.tell_kafka:
                self._tell(group)
            self._count(group)
        if self._uncommitted:
            self._restart(group, self._uncommitted, after=self._backoff())
            self._uncommitted = ()

    def _land(self, flight: Flight) -> bool:
        """What became of a batch; what is permanent is raised. Also called while the group takes partitions away."""
        self.flight = None
        try:
            committed = flight.done.result()
        except (Retryable, Fenced, TopicMissing) as error:
            self._failures += 1
            self.figures.retries += 1
            _log.warning("a batch of %s was not committed: %s", shown(part.place for part in flight.parts), error)
            self._uncommitted = [part.place for part in flight.parts]
            return False
        self._failures = 0
        self._through.update((part.place, part.end) for part in flight.parts if part.place in self._through)
        self.figures.commits += 1
        for one in committed:
            self.figures.records += one.outcome.records_read
            self.figures.rows += one.outcome.rows_written
            self.figures.quarantined += one.outcome.quarantined
            self.figures.bytes += one.outcome.bytes_read
        return True

    def _tell(self, group: Subscription) -> None:
        """For other tools alone: nothing here ever reads it, and a failure is nobody's loss."""
        try:
            group.commit({place: held.position for place, held in self.gathering.held.items()}, wait=False)
        except KafkaAssetsError as error:
            _log.debug("Kafka was not told the offsets: %s", error)

    def _complain(self, error: KafkaAssetsError) -> None:
        """Say once what comes again with each call to Kafka."""
        self.figures.troubles["broker"] = str(error)
        self._complained_at = time.monotonic()
        if error.what != self._complaint:
            self._complaint = error.what
            _log.warning("%s", error)

    def _hold_back(self, group: Subscription, back: bool) -> None:
        if back != self._held_back:
            self._held_back = back
            (group.pause if back else group.resume)(group.assigned)

    def _pause(self) -> float:
        """How long Kafka may be waited for: what is due goes at once, where the worker is not at another batch."""
        if self.gathering.since is None:
            return _POLL
        if self.flight is not None:
            return _BUSY
        return min(_POLL, max(self.gathering.since + self.limits.delay - time.monotonic(), 0.001))

    def _backoff(self) -> float:
        # Bounded before it is a float: 2**1024 is none, and an outage may be as long.
        return random.uniform(0.5, 1.0) * min(0.2 * 2 ** min(self._failures, 10), _MOST_BEHIND)

    def _count(self, group: Subscription) -> None:
        self.figures.partitions = len(self.gathering.held)
        self.figures.waiting = {
            name: why for name, why in self.figures.waiting.items() if name in {shown([one]) for one in self.waiting}
        }
        self._counted_at = time.monotonic()
        self.figures.lag = sum(max(0, end - self._through[place]) for place, end in group.ends(self._through).items())
