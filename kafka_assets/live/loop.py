"""One member of the group: what it is given is begun with, gathered, committed in batches, and given back.

Two threads, and one for the leases. This one asks Kafka, decodes what comes (`ahead`) and never waits for long, so that
the group hears of it; the worker asks the ledger: it begins with partitions and commits batches, one thing at a time.
While a batch is committed the next one is gathered; when that is full too, nothing more is consumed.

    assigned ─→ parked, waiting ─→ begun (leased, read from planned_through) ─→ gathered ─→ committed
                     ↑                                                                         │
                     └── fenced, expired, created again, database or broker away ←─────────────┘
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from kafka_assets.broker.member_errors import NotThere
from kafka_assets.broker.rebalances import shown
from kafka_assets.broker.subscription import Subscription
from kafka_assets.errors import KafkaAssetsError, Retryable, TopicMissing
from kafka_assets.live.backoff import Backoff
from kafka_assets.live.batch import Place
from kafka_assets.live.beginning import Beginning
from kafka_assets.live.committing import Committing
from kafka_assets.live.figures import Figures
from kafka_assets.live.gathering import AT_ONCE, Gathering
from kafka_assets.live.keeping import Keeper
from kafka_assets.live.landing import Landing
from kafka_assets.live.limits import Limits
from kafka_assets.live.taking import Taking

_log = logging.getLogger(__name__)

_POLL = 0.1
"""Seconds that one call to Kafka may wait for records."""
_BUSY = 0.02
"""The same while a batch is committed, after which the next one may be due."""
_FULL = 1.0
"""Seconds to wait for the worker before the group is to hear of this member, and gives a record with it."""
_LONG_FULL = 10.0
"""Seconds until the partitions are paused: it drops what was fetched ahead, and going on takes up to a second."""
_COUNTED_EVERY = 1.0
_OVER = 5.0
"""Seconds without an error after which trouble with the broker is over; it is not said with every call."""


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

    def __post_init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="worker")
        self.gathering.begin_ahead = self.landing.begin
        self._through: dict[Place, int] = {}
        self._backoff = Backoff()
        self.beginning = Beginning(
            self.taking, self.keeper, self.gathering, self.figures, self._worker, self._backoff, self._through
        )
        self.committing = Committing(
            self.landing, self.gathering, self.limits, self.figures, self._worker, self._backoff, self._through
        )
        self._held_back = False
        self._full_since: float | None = None
        self._complaint, self._complained_at = "", 0.0
        self._counted_at = 0.0

    # -- what the group says; called inside consume() and close()

    def on_assign(self, places: Sequence[Place]) -> dict[Place, int]:
        """All of them wait, parked: the worker asks the ledger, and the group is not kept waiting."""
        self.beginning.add(places)
        return {}

    def on_revoke(self, places: Sequence[Place]) -> None:
        """Finish what is being committed, drop what was only gathered, and give the partitions back."""
        leases = self.beginning.forget(places)
        deadline = time.monotonic() + self.patience
        try:
            self.committing.finish(places, within=self.patience)
        finally:
            # A lease that cannot be given back in time ends by itself, and whoever comes ends its backend.
            if leases:
                given_back = self._worker.submit(self.keeper.give_back, leases)
                wait([given_back], timeout=max(deadline - time.monotonic(), 0.1))

    def on_lost(self, places: Sequence[Place]) -> None:
        """Others may have them already. What is being committed commits or is fenced: the ledger decides."""
        leases = self.beginning.forget(places)
        self._worker.submit(self.keeper.give_back, leases)

    # -- each turn

    def turn(self, group: Subscription) -> None:
        """Take what the worker has done, give it more, and ask Kafka once."""
        self._settle(group)
        busy = self.committing.flight is not None
        self.beginning.review(group, busy=busy)
        if not busy:
            self.beginning.launch()
        self._launch(group)
        if self.committing.full and self.committing.flight is not None:
            self._full_since = self._full_since or time.monotonic()
            if self.committing.wait(_FULL):
                return
            self._hold_back(group, time.monotonic() - self._full_since > _LONG_FULL)
        elif not self.committing.full:
            self._full_since = None
            self._hold_back(group, False)
        self._consume(group)
        if time.monotonic() - self._counted_at > _COUNTED_EVERY:
            self._count(group)
        self.figures.rebalances = group.rebalances.count
        self.figures.rebalance_seconds = group.rebalances.seconds

    def drain(self, group: Subscription) -> None:
        """Commit what was gathered; what cannot be is dropped, and comes again."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline and (self.committing.flight is not None or self.gathering.records):
            if self.committing.flight is not None:
                self.committing.wait(_POLL)
                self._settle(group)
            else:
                self._launch(group, now=True)
                if self.committing.flight is None:
                    return

    def close(self) -> None:
        """After the group was left: nothing is done any more."""
        self.beginning.close()
        self._worker.submit(self.landing.close)
        self._worker.shutdown(wait=True)

    def _settle(self, group: Subscription) -> None:
        if lost := self.keeper.lost():
            _log.warning("%d leases were taken over", len(lost))
            self.beginning.again(group, [place for place, held in self.gathering.held.items() if held.lease in lost])
        if self.beginning.settle(group):
            self._count(group)
        if self.committing.landed:
            if self.committing.land() and self.tell_kafka:
                self._tell(group)
            self._count(group)
        if self.committing.uncommitted:
            self.beginning.again(group, self.committing.uncommitted, after=self._backoff.seconds())
            self.committing.uncommitted = ()

    def _launch(self, group: Subscription, *, now: bool = False) -> None:
        if torn := self.committing.launch(group, now=now):
            _log.error("%s delivered other offsets than asked for, and is begun with again", shown(torn))
            self.beginning.again(group, torn)

    def _consume(self, group: Subscription) -> None:
        # Also while all are paused: the group is to hear of this member.
        room = 1 if self.committing.full else self.limits.records - self.gathering.records
        try:
            self.gathering.add(group.consume(min(room, AT_ONCE), self._pause()))
        except NotThere as error:
            _log.warning("%s", error)
            self.beginning.again(group, [error.place])
        except (TopicMissing, Retryable) as error:
            # The topic may come back; so may the broker.
            self._complain(error)
            time.sleep(_POLL)
        else:
            if self.gathering.records or time.monotonic() - self._complained_at > _OVER:
                self.figures.troubles.pop("broker", None)
                self._complaint = ""

    def _complain(self, error: KafkaAssetsError) -> None:
        """Say once what comes again with each call to Kafka."""
        self.figures.troubles["broker"] = str(error)
        self._complained_at = time.monotonic()
        if error.what != self._complaint:
            self._complaint = error.what
            _log.warning("%s", error)

    def _tell(self, group: Subscription) -> None:
        """For other tools alone: nothing here ever reads it, and a failure is nobody's loss."""
        try:
            group.commit({place: held.position for place, held in self.gathering.held.items()}, wait=False)
        except KafkaAssetsError as error:
            _log.debug("Kafka was not told the offsets: %s", error)

    def _hold_back(self, group: Subscription, back: bool) -> None:
        if back != self._held_back:
            self._held_back = back
            (group.pause if back else group.resume)(group.assigned)

    def _pause(self) -> float:
        """How long Kafka may be waited for: what is due goes at once, where the worker is not at another batch."""
        if self.gathering.since is None:
            return _POLL
        if self.committing.flight is not None:
            return _BUSY
        return min(_POLL, max(self.gathering.since + self.limits.delay - time.monotonic(), 0.001))

    def _count(self, group: Subscription) -> None:
        self.figures.partitions = len(self.gathering.held)
        waiting = {shown([one]) for one in self.beginning.waiting}
        self.figures.waiting = {name: why for name, why in self.figures.waiting.items() if name in waiting}
        self._counted_at = time.monotonic()
        ends = {**self.beginning.ends, **group.ends(self._through)}
        self.figures.lag = sum(max(0, ends.get(place, at) - at) for place, at in self._through.items())
