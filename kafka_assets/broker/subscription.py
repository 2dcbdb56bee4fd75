"""A member of a consumer group: what it is given and what is taken from it, told as it happens; it commits nothing.

`consume` is where everything happens: records, rebalances (the callbacks run inside it, in the caller's
thread) and errors. What it does NOT promise: that a record is seen once. A partition begins where `on_assign`
or `start` says; who keeps the offsets decides what that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_assets.broker.admin import LOGGER as LIBRDKAFKA
from kafka_assets.broker.admin import Watch, create, kafka_error
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.matching import Matching
from kafka_assets.broker.member_errors import NotThere, is_expected, member_error
from kafka_assets.broker.membership import LOGGER, Membership
from kafka_assets.broker.rebalances import Kind, Place, Rebalance, Rebalances, shown
from kafka_assets.errors import BrokerUnavailable, KafkaAssetsError, UsageError

OnAssign = Callable[[Sequence[Place]], Mapping[Place, int]]
"""Says where to begin; a partition that it leaves out is parked, paused, until `start`."""
OnGone = Callable[[Sequence[Place]], None]

_SEEK_TIMEOUT = 2.0


class Subscription:
    """One consumer in a group. Use it from one thread; `with` leaves the group at the end."""

    def __init__(
        self,
        connection: Connection,
        topics: Sequence[str] | str,
        membership: Membership,
        *,
        on_assign: OnAssign,
        on_revoke: OnGone,
        on_lost: OnGone | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`topics` is a list, or a pattern `^…` of Python's `re` for the whole name, as a stream's `topics` is.

        `on_lost` is for partitions that others may have already: nothing of them may be committed any more.
        """
        self.connection = connection
        self.membership = membership
        self.rebalances = Rebalances()
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost or _nothing
        self._matching = Matching(topics)
        self._owned: set[Place] = set()
        self._parked: set[Place] = set()
        self._paused: set[Place] = set()
        self._stopped: set[Place] = set()
        self._floors: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._raised: BaseException | None = None
        self._error: KafkaAssetsError | None = None
        self._not_there: list[NotThere] = []
        self._causes: list[str] = []
        self._closed = False
        self._watch = Watch(connection)
        config: dict[str, Any] = {
            **membership.config(connection),
            **(properties or {}),
            "error_cb": self._hear,
        }
        self.client: Consumer = create(lambda: Consumer(config, logger=LIBRDKAFKA))
        if self._matching.topics:
            self._subscribe()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def assigned(self) -> frozenset[Place]:
        """The partitions that are this member's now."""
        return frozenset(self._owned)

    @property
    def topics(self) -> Sequence[str]:
        """What it is subscribed to now; of a pattern, what matches."""
        return tuple(self._matching.topics)

    def consume(self, max_records: int, timeout: float) -> list[Message]:
        """Up to so many records, each partition's in order; [] after `timeout` seconds without any.

        An error is raised by the next call where there are records to give first; so is what a callback raised.
        """
        self._raise_what_waits()
        self._watch.check(self.client)
        self._look()
        before = self.rebalances.count
        messages = self._ask(lambda: self.client.consume(max_records, timeout=timeout))
        records = [message for message in messages if message.error() is None]
        if len(records) < len(messages):
            for message in messages:
                if message.error() is not None:
                    self._meet(message)
        if self.rebalances.count != before:
            records = [one for one in records if place_of(one) in self._owned]
            self._explain()
        if self._floors and records:
            records = self._above(records)
        if not records:
            self._raise_what_waits()
        return records

    def start(self, place: Place, offset: int) -> None:
        """Begin to read a parked partition there."""
        self._require(place)
        self.seek(place, offset)
        self._parked.discard(place)
        if place not in self._paused:
            self.client.resume([TopicPartition(*place)])

    def park(self, place: Place) -> None:
        """Read no more of it until `start` says where."""
        if place in self._owned and place not in self._parked:
            self._parked.add(place)
            self.client.pause([TopicPartition(*place)])

    def seek(self, place: Place, offset: int) -> None:
        """Go on there; what was fetched and not consumed is dropped."""
        self._require(place)
        self._ends.pop(place, None)
        if place in self._stopped or not self._sought(TopicPartition(*place, offset)):
            self._assign_anew(place, offset)
        self._floors[place] = offset

    def _sought(self, target: TopicPartition) -> bool:
        deadline = time.monotonic() + _SEEK_TIMEOUT
        while True:
            try:
                self.client.seek(target)
                return True
            except KafkaException as raised:
                error = kafka_error(raised)
                if error.code() not in {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS}:
                    raise self._typed(error) from raised
                # An assignment takes effect a moment after it was made.
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)

    def _assign_anew(self, place: Place, offset: int) -> None:
        """A partition whose offset was not there is not read any more, and cannot be sought in."""
        self._stopped.discard(place)
        if self.membership.cooperative:
            self._ask(lambda: self.client.incremental_unassign([TopicPartition(*place)]))
            self._ask(lambda: self.client.incremental_assign([TopicPartition(*place, offset)]))
        else:
            at = {**self.positions(self._owned), place: offset}
            begins = [TopicPartition(*one, at.get(one, OFFSET_BEGINNING)) for one in self._owned]
            self._ask(lambda: self.client.assign(begins))
            self._floors.update(at)
        halted = [one for one in self._owned if one in self._parked | self._paused]
        self.client.pause([TopicPartition(*one) for one in halted])

    def pause(self, places: Iterable[Place]) -> None:
        """Fetch no more of these; what was fetched and not consumed is dropped, and comes again."""
        new = [place for place in places if place in self._owned]
        self._paused.update(new)
        self.client.pause([TopicPartition(*place) for place in new])

    def resume(self, places: Iterable[Place]) -> None:
        """Go on where `consume` had come to; a parked partition stays parked."""
        known = [place for place in places if place in self._paused]
        self._paused.difference_update(known)
        self.client.resume([TopicPartition(*place) for place in known if place not in self._parked])

    def positions(self, places: Iterable[Place]) -> dict[Place, int]:
        """The next offset of each, past control records and holes; absent where nothing was consumed yet."""
        wanted = [TopicPartition(*place) for place in places if place in self._owned and place not in self._parked]
        if not wanted:
            return {}
        found = self._ask(lambda: self.client.position(wanted))
        positions = {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}
        for one in wanted:
            place = (one.topic, one.partition)
            # Nothing was consumed since the seek, and librdkafka's position is the one before it.
            known = self._floors[place] if place in self._floors else positions.get(place, -1)
            # An end that was met stands for what was compacted away before it, too.
            if (at := max(known, self._ends.get(place, -1))) >= 0:
                positions[place] = at
        return positions

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The end of each, as the broker said with the last records; absent where none came yet."""
        found: dict[Place, int] = {}
        for place in places:
            if place in self._owned:
                at = self._ask(lambda one=place: self.client.get_watermark_offsets(TopicPartition(*one), cached=True))
                if at is not None and at[1] >= 0:
                    found[place] = at[1]
        return found

    def commit(self, offsets: Mapping[Place, int], *, wait: bool = True) -> None:
        """Tell Kafka these next offsets of the group. Only of partitions that are this member's still."""
        places = [TopicPartition(*place, offset) for place, offset in offsets.items() if place in self._owned]
        if not places:
            return
        if not wait:
            self._ask(lambda: self.client.commit(offsets=places, asynchronous=True))
            return
        answer = self._ask(lambda: self.client.commit(offsets=places, asynchronous=False))
        for one in answer or ():
            if one.error is not None:
                raise self._typed(one.error)

    def close(self) -> None:
        """Leave the group (a static member keeps its place); `on_revoke` is called for what it still has."""
        if self._closed:
            return
        self._causes.append("this member leaves")
        self._ask(self.client.close)
        self._closed = True
        if self._owned:
            self._gone("revoked", sorted(self._owned), self._on_revoke)
        self._raise_what_waits()

    # -- rebalances: called by librdkafka inside consume() and close(), in the caller's thread

    def _subscribe(self) -> None:
        topics = self._matching.topics
        self._ask(
            lambda: self.client.subscribe(
                topics,
                on_assign=lambda _, given: self._assign([(one.topic, one.partition) for one in given]),
                on_revoke=lambda _, taken: self._take("revoked", taken, self._on_revoke),
                on_lost=lambda _, taken: self._take("lost", taken, self._on_lost),
            )
        )

    def _assign(self, places: Sequence[Place]) -> None:
        begun = time.monotonic()
        begins: Mapping[Place, int] = {}
        try:
            begins = self._on_assign(places) if places else {}
        except BaseException as raised:  # noqa: BLE001 librdkafka must hear of the assignment first; raised by consume
            self._raised = self._raised or raised
        parked = [place for place in places if place not in begins]
        given = [TopicPartition(*place, begins.get(place, OFFSET_BEGINNING)) for place in places]
        if self.membership.cooperative:
            self.client.incremental_assign(given)
        else:
            self.client.assign(given)
            self._forget(self._owned)
        if parked:
            self.client.pause([TopicPartition(*place) for place in parked])
        self._owned.update(places)
        self._parked.update(parked)
        self._floors.update(begins)
        self.rebalances.add(Rebalance("assigned", tuple(places), seconds=time.monotonic() - begun))

    def _take(self, kind: Kind, taken: Sequence[TopicPartition], tell: OnGone) -> None:
        self._gone(kind, [(one.topic, one.partition) for one in taken], tell)
        if self.membership.cooperative:
            self.client.incremental_unassign([TopicPartition(one.topic, one.partition) for one in taken])
        else:
            self.client.unassign()

    def _gone(self, kind: Kind, places: Sequence[Place], tell: OnGone) -> None:
        begun = time.monotonic()
        try:
            if places:
                tell(places)
        except BaseException as raised:  # noqa: BLE001 librdkafka waits for the partitions; raised by consume
            self._raised = self._raised or raised
        self._forget(places)
        self.rebalances.add(Rebalance(kind, tuple(places), seconds=time.monotonic() - begun))

    def _forget(self, places: Collection[Place]) -> None:
        for place in list(places):
            self._owned.discard(place)
            self._parked.discard(place)
            self._paused.discard(place)
            self._stopped.discard(place)
            self._floors.pop(place, None)
            self._ends.pop(place, None)

    def _explain(self) -> None:
        """Log the rebalances of this call with what may have caused them; looked up only afterwards."""
        self._look(now=True)
        causes, self._causes = self._causes, []
        self.rebalances.log(self.membership.group, causes, owned=len(self._owned))

    def _look(self, *, now: bool = False) -> None:
        if self._matching.look(self.client, self._causes, now=now):
            if self._matching.topics:
                self._subscribe()
            else:
                self._ask(self.client.unsubscribe)

    # -- errors

    def _hear(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._error = self._typed(error)
        else:
            self._watch.hear(error)

    def _meet(self, message: Message) -> None:
        error = cast(KafkaError, message.error())
        if error.code() == KafkaError._PARTITION_EOF:
            self._ends[place_of(message)] = cast(int, message.offset())
        elif is_expected(error):
            LOGGER.warning("group %s: %s (%s)", self.membership.group, error.str(), error.name())
            self._causes.append(error.str())
        else:
            typed = self._typed(error, topic=message.topic(), partition=message.partition())
            if isinstance(typed, NotThere):
                self._stopped.add(typed.place)
                typed.offset = cast(int, message.offset())
                self._not_there.append(typed)  # each of them: what nobody is told of is never read again
            else:
                self._error = self._error or typed

    def _typed(self, error: KafkaError, *, topic: str | None = None, partition: int | None = None) -> KafkaAssetsError:
        return member_error(self.connection, self.membership, error, topic=topic, partition=partition)

    def _above(self, records: list[Message]) -> list[Message]:
        """Leave out what was fetched before a seek took effect."""
        kept: list[Message] = []
        for record in records:
            place = place_of(record)
            floor = self._floors.get(place)
            if floor is not None:
                if cast(int, record.offset()) < floor:
                    continue
                del self._floors[place]
            kept.append(record)
        return kept

    def _raise_what_waits(self) -> None:
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        while self._not_there:
            if (gone := self._not_there.pop(0)).place in self._stopped:
                raise gone

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KafkaException as raised:
            raise self._typed(kafka_error(raised)) from raised
        except RuntimeError as raised:
            raise UsageError("the subscription is closed", why=str(raised), cure="make a new one") from raised

    def _require(self, place: Place) -> None:
        if place not in self._owned:
            raise BrokerUnavailable(
                f"{shown([place])} is not this member's",
                why="the group took it away, or never gave it",
                cure="begin with it when on_assign gives it",
            )


def _nothing(places: Sequence[Place]) -> None:
    """What there is to do for a caller that keeps nothing of the partitions."""


def place_of(message: Message) -> Place:
    return cast(str, message.topic()), cast(int, message.partition())
