"""What a consumer reads: a group's partitions as they come and go, or its own; each begins where its keeper says."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kafka_assets.broker.assignment import Assignment
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.keepers import Attached, First, Keeper
from kafka_assets.broker.listing import topic_offsets
from kafka_assets.broker.member_errors import NotThere
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.read import StoredRecord, record_of
from kafka_assets.broker.starts import Start, begin_at
from kafka_assets.broker.subscription import Subscription
from kafka_assets.broker.units import Where, place_of, without
from kafka_assets.errors import Retryable

LOGGER = logging.getLogger("kafka_assets.commits")

_PARKED_EVERY = 0.5
"""Seconds between two questions for partitions that somebody else still has."""
_ANSWER = 3.0
"""Seconds in which a broker says where partitions end; nobody polls meanwhile."""
_SILENCE = 300.0
"""Without a group, as in one: Kafka's own default."""


@dataclass(frozen=True)
class Wanted:
    """What is to be read, in the caller's words."""

    topics: str | Sequence[str]
    group: Membership | None
    partitions: Collection[int] | None
    start: Start


class Reader:
    """Polls records. Partitions go, by `on_revoke` and `on_lost`, inside a poll and in its thread."""

    def __init__(
        self,
        connection: Connection,
        wanted: Wanted,
        keeper: Keeper,
        *,
        on_revoke: Callable[[Sequence[Where]], None],
        on_lost: Callable[[Sequence[Where]], None],
        on_again: Callable[[Collection[Where]], None] | None = None,
        polled: Callable[[], Collection[Where]] = tuple,
    ) -> None:
        """`on_again` is for partitions that go on elsewhere: what was polled of them is to be forgotten.

        `polled` are those of which records were polled that are not done: where they go on is asked for afterwards.
        """
        self.connection = connection
        self._wanted = wanted
        self._keeper = keeper
        self._on_revoke, self._on_lost, self._on_again, self._polled = on_revoke, on_lost, on_again, polled
        self._again: dict[Where, int] = {}
        self._parked: set[Where] = set()
        self._kept: list[StoredRecord] = []
        """Consumed by a poll that failed afterwards: librdkafka is past them, and the next poll hands them over."""
        self._refused = False
        """The keeper did not take the consumer: what leaving the group still brings is not its concern."""
        self._asked_at = self.polled_at = time.monotonic()
        self._reading = self._subscription(wanted.group) if wanted.group else Assignment(connection)
        try:
            group = wanted.group and wanted.group.group
            silence = wanted.group.poll_interval(connection) if wanted.group else _SILENCE
            keeper.attach(Attached(self._reading.client, connection, group, longest_silence=silence))
            if wanted.group is None:
                self._assign_all()
        except BaseException:
            self._refused = True
            keeper.close()
            self._reading.close()
            raise

    @property
    def assigned(self) -> frozenset[Where]:
        return self._reading.assigned

    @property
    def joining(self) -> bool:
        """Whether the group has not said yet what this member gets."""
        return self._reading.joining

    @property
    def at_end(self) -> bool:
        """Whether every partition was read to its end, as far as was heard, and nothing is to come again."""
        return not (self.joining or self._parked or self._again or self._kept) and self._reading.at_end

    def ends_here(self) -> bool:
        """Whether each still ends where this has come to, by the broker's answer; without one it is not known."""
        at = self._reading.positions(self.assigned)
        try:
            ends = {
                (topic, partition): there.last_stable
                for topic in sorted({topic for topic, _ in self.assigned})
                for partition, there in topic_offsets(self.connection, topic, timeout=_ANSWER).partitions.items()
            }
        except Retryable as error:
            LOGGER.info("not known whether all was read: %s", error)
            return False
        return all(place in ends and at.get(place, -1) >= ends[place] for place in self.assigned)

    def poll(self, count: int, timeout: float) -> list[StoredRecord]:
        """Up to about so many records; [] after `timeout` seconds without any."""
        self._go_back()
        consumed = self._consumed(count, 0 if self._kept else timeout)
        self._kept = [*self._kept, *consumed]
        self.polled_at = time.monotonic()
        if again := self._keeper.idle():
            if self._on_again is not None:
                self._on_again(again)
            self.begin_again(again)
        self._ask_for_parked()
        records, self._kept = self._kept, []
        return records

    def _consumed(self, count: int, timeout: float) -> list[StoredRecord]:
        try:
            with self._keeper.polling():
                messages = self._reading.consume(count, timeout)
            return [record_of(message) for message in messages]
        except NotThere as error:
            # librdkafka reads no more of it: whoever goes on has it read again, or hears of it again.
            if not self._keeper.knows_expired and error.offset >= 0:
                self._again[error.place] = error.offset
            else:
                self._park([error.place])
            if not self._keeper.knows_expired:
                raise
            LOGGER.warning("%s", error)
            return []

    def begin_again(self, places: Collection[Where]) -> None:
        """Where these go on is the keeper's to say; until it does, nothing of them is read."""
        self._kept = without(self._kept, places)
        self._park(places)

    def _park(self, places: Collection[Where]) -> None:
        mine = [place for place in places if place in self.assigned]
        self._parked.update(mine)
        for place in mine:
            self._again.pop(place, None)
        self._reading.park(mine)

    def pause(self, places: Collection[Where]) -> None:
        """Fetch no more of these; what was fetched and not polled comes again after `resume`."""
        self._reading.pause(places)

    def resume(self, places: Collection[Where]) -> None:
        self._reading.resume(places)

    def close(self) -> None:
        self._reading.close()

    def _go_back(self) -> None:
        """Where an offset was not there, librdkafka reads no more: it is asked for again, and refused again."""
        for place, offset in list(self._again.items()):
            if place in self.assigned:
                self._reading.start({place: offset})
            del self._again[place]  # only now: what could not be sought is still to come again

    def _assign_all(self) -> None:
        topics = self._wanted.topics
        begins: dict[Where, int] = {}
        for topic in [topics] if isinstance(topics, str) else topics:
            found = begin_at(self.connection, topic, self._wanted.start, partitions=self._wanted.partitions)
            begins |= {(topic, partition): offset for partition, offset in found.items()}
        self._parked.update(begins)
        self._begin_parked(lambda places: {place: begins[place] for place in places}, begins)

    def _ask_for_parked(self) -> None:
        if self._parked and time.monotonic() - self._asked_at >= _PARKED_EVERY:
            self._asked_at = time.monotonic()
            self._begin_parked(self._first, self._parked.difference(self._polled(), map(place_of, self._kept)))

    def _begin_parked(self, first: First, places: Collection[Where]) -> None:
        if not places:
            return
        begins = self._keeper.begins(sorted(places), first)
        self._reading.start(begins)
        self._parked.difference_update(begins)

    def _begins(self, places: Sequence[Where]) -> Mapping[Where, int]:
        """Where each of these begins; those that cannot be had yet are asked for again."""
        if self._refused:
            return {}
        self._parked.update(places)
        begins = self._keeper.begins(places, self._first)
        self._parked.difference_update(begins)
        return begins

    def _first(self, places: Collection[Where]) -> Mapping[Where, int]:
        begins: dict[Where, int] = {}
        for topic in sorted({topic for topic, _ in places}):
            partitions = [partition for name, partition in places if name == topic]
            found = begin_at(self.connection, topic, self._wanted.start, partitions=partitions, given=True)
            begins |= {(topic, partition): offset for partition, offset in found.items()}
        return begins

    def _gone(self, places: Sequence[Where]) -> None:
        self._kept = without(self._kept, places)
        self._parked.difference_update(places)
        for place in places:
            self._again.pop(place, None)

    def _revoked(self, places: Sequence[Where]) -> None:
        try:
            if not self._refused:
                self._on_revoke(places)
        finally:
            self._gone(places)

    def _lost(self, places: Sequence[Where]) -> None:
        try:
            if not self._refused:
                self._on_lost(places)
        finally:
            self._gone(places)

    def _subscription(self, group: Membership) -> Subscription:
        topics = self._wanted.topics
        return Subscription(
            self.connection,
            [topics] if isinstance(topics, str) and not topics.startswith("^") else topics,
            group,
            on_assign=self._begins,
            on_revoke=self._revoked,
            on_lost=self._lost,
            properties=self._keeper.properties,
        )
