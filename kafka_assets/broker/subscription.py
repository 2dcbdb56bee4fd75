"""A member of a consumer group: what it is given and what is taken from it, told as it happens; it commits nothing.

`consume` is where everything happens: records, rebalances (the callbacks run inside it, in the caller's
thread) and errors. What it does NOT promise: that a record is seen once. A partition begins where `on_assign`
or `start` says; who keeps the offsets decides what that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_assets.broker.admin import LOGGER as LIBRDKAFKA
from kafka_assets.broker.admin import create, kafka_error
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.hearing import Hearing
from kafka_assets.broker.matching import Matching
from kafka_assets.broker.member_errors import NotThere
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.owned import Owned, at, place_of
from kafka_assets.broker.rebalances import Kind, Place, Rebalance, Rebalances
from kafka_assets.broker.waking import Waking

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
        self._owned = Owned()
        self._waking = Waking()
        self._hearing = Hearing(connection, membership, stopped=self._owned.stopped)
        self._causes: list[str] = []
        self._leaving = self._closed = False
        config: dict[str, Any] = {
            **membership.config(connection),
            **(properties or {}),
            "error_cb": self._hearing.hear,
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
        return frozenset(self._owned.places)

    @property
    def topics(self) -> Sequence[str]:
        """What it is subscribed to now; of a pattern, what matches."""
        return tuple(self._matching.topics)

    def consume(self, max_records: int, timeout: float) -> list[Message]:
        """Up to so many records, each partition's in order; [] after `timeout` seconds without any.

        An error is raised by the next call where there are records to give first; so is what a callback raised.
        """
        self._hearing.check(self.client)
        self._look()
        self._waking.wake(self.client)
        before = self.rebalances.count
        messages = self._hearing.ask(lambda: self.client.consume(max_records, timeout=timeout))
        records = [message for message in messages if message.error() is None]
        if len(records) < len(messages):
            for message in messages:
                if message.error() is not None:
                    self._meet(message)
        if self.rebalances.count != before:
            records = [one for one in records if place_of(one) in self._owned.places]
            self._explain()
        records = self._owned.above(records)
        if not records:
            self._hearing.raise_what_waits()
        return records

    def start(self, place: Place, offset: int) -> None:
        """Begin to read a parked partition there."""
        self.seek(place, offset)
        self._owned.parked.discard(place)
        if place not in self._owned.paused:
            self.client.resume(at([place]))

    def park(self, place: Place) -> None:
        """Read no more of it until `start` says where."""
        if place in self._owned.places and place not in self._owned.parked:
            self._owned.parked.add(place)
            self.client.pause(at([place]))

    def seek(self, place: Place, offset: int) -> None:
        """Go on there; what was fetched and not consumed is dropped."""
        self._owned.require(place)
        self._owned.ends.pop(place, None)
        if place in self._owned.stopped or not self._sought(TopicPartition(*place, offset)):
            self._assign_anew(place, offset)
        self._owned.floors[place] = offset
        self._waking.add([place])

    def _sought(self, target: TopicPartition) -> bool:
        deadline = time.monotonic() + _SEEK_TIMEOUT
        while True:
            try:
                self.client.seek(target)
                return True
            except KafkaException as raised:
                error = kafka_error(raised)
                if error.code() not in {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS}:
                    raise self._hearing.typed(error) from raised
                # An assignment takes effect a moment after it was made.
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)

    def _assign_anew(self, place: Place, offset: int) -> None:
        """A partition whose offset was not there is not read any more, and cannot be sought in."""
        self._owned.stopped.discard(place)
        if self.membership.cooperative:
            self._hearing.ask(lambda: self.client.incremental_unassign(at([place])))
            self._hearing.ask(lambda: self.client.incremental_assign([TopicPartition(*place, offset)]))
        else:
            begins = {**self.positions(self._owned.places), place: offset}
            given = [TopicPartition(*one, begins.get(one, OFFSET_BEGINNING)) for one in self._owned.places]
            self._hearing.ask(lambda: self.client.assign(given))
            self._owned.floors.update(begins)
        self.client.pause(at(self._owned.halted))

    def pause(self, places: Iterable[Place]) -> None:
        """Fetch no more of these; what was fetched and not consumed is dropped, and comes again."""
        new = [place for place in places if place in self._owned.places]
        self._owned.paused.update(new)
        self.client.pause(at(new))

    def resume(self, places: Iterable[Place]) -> None:
        """Go on where `consume` had come to; a parked partition stays parked."""
        known = [place for place in places if place in self._owned.paused]
        self._owned.paused.difference_update(known)
        again = self._owned.readable(known)
        self.client.resume(at(again))
        self._waking.add(again)

    def positions(self, places: Iterable[Place]) -> dict[Place, int]:
        """The next offset of each, past control records and holes; absent where nothing was consumed yet."""
        wanted = self._owned.readable(places)
        if not wanted:
            return {}
        found = self._hearing.ask(lambda: self.client.position(at(wanted)))
        come_to = {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}
        return self._owned.positions({place: come_to.get(place) for place in wanted})

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The end of each, as the broker said with the last records; absent where none came yet."""
        found: dict[Place, int] = {}
        for place in places:
            if place in self._owned.places:
                one = TopicPartition(*place)
                known = self._hearing.ask(lambda one=one: self.client.get_watermark_offsets(one, cached=True))
                if known is not None and known[1] >= 0:
                    found[place] = known[1]
        return found

    def commit(self, offsets: Mapping[Place, int], *, wait: bool = True) -> None:
        """Tell Kafka these next offsets of the group. Only of partitions that are this member's still."""
        places = [TopicPartition(*place, offset) for place, offset in offsets.items() if place in self._owned.places]
        if not places:
            return
        if not wait:
            self._hearing.ask(lambda: self.client.commit(offsets=places, asynchronous=True))
            return
        answer = self._hearing.ask(lambda: self.client.commit(offsets=places, asynchronous=False))
        for one in answer or ():
            if one.error is not None:
                raise self._hearing.typed(one.error)

    def close(self) -> None:
        """Leave the group (a static member keeps its place); `on_revoke` is called for what it still has."""
        if self._closed:
            return
        self._causes.append("this member leaves")
        self._leaving = True
        self._hearing.ask(self.client.close)
        self._closed = True
        if self._owned.places:
            self._gone("revoked", sorted(self._owned.places), self._on_revoke)
        # What was wrong with records that nobody wants any more is no reason to fail.
        self._hearing.raise_what_waits(of_records=False)

    # -- rebalances: called by librdkafka inside consume() and close(), in the caller's thread

    def _subscribe(self) -> None:
        topics = self._matching.topics
        self._hearing.ask(
            lambda: self.client.subscribe(
                topics,
                on_assign=lambda _, given: self._assign([(one.topic, one.partition) for one in given]),
                on_revoke=lambda _, taken: self._take("revoked", taken, self._on_revoke),
                on_lost=lambda _, taken: self._take("lost", taken, self._on_lost),
            )
        )

    def _assign(self, places: Sequence[Place]) -> None:
        if self._leaving:
            # librdkafka wants an answer all the same, and gives them back at once. Where they begin nobody wants to
            # know any more; the group would not say either, and be waited for.
            self._answer([])
            return
        begun = time.monotonic()
        begins: Mapping[Place, int] = {}
        try:
            begins = self._on_assign(places) if places else {}
        except BaseException as raised:  # noqa: BLE001 librdkafka must hear of the assignment first; raised by consume
            self._hearing.keep(raised)
        given = [TopicPartition(*place, begins.get(place, OFFSET_BEGINNING)) for place in places]
        self._answer(given)
        if not self.membership.cooperative:
            self._owned.forget(self._owned.places)
        if parked := [place for place in places if place not in begins]:
            self.client.pause(at(parked))
        self._owned.add(places, begins)
        self.rebalances.add(Rebalance("assigned", tuple(places), seconds=time.monotonic() - begun))

    def _answer(self, given: list[TopicPartition]) -> None:
        """Take what the group gives, as its protocol wants it."""
        (self.client.incremental_assign if self.membership.cooperative else self.client.assign)(given)

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
            self._hearing.keep(raised)
        self._owned.forget(places)
        self.rebalances.add(Rebalance(kind, tuple(places), seconds=time.monotonic() - begun))

    def _explain(self) -> None:
        """Log the rebalances of this call with what may have caused them; looked up only afterwards."""
        self._look(now=True)
        causes, self._causes = self._causes, []
        self.rebalances.log(self.membership.group, causes, owned=len(self._owned.places))

    def _look(self, *, now: bool = False) -> None:
        if self._matching.look(self.client, self._causes, now=now):
            if self._matching.topics:
                self._subscribe()
            else:
                self._hearing.ask(self.client.unsubscribe)

    def _meet(self, message: Message) -> None:
        if cast(KafkaError, message.error()).code() == KafkaError._PARTITION_EOF:
            self._owned.ends[place_of(message)] = cast(int, message.offset())
        elif isinstance(error := self._hearing.meet(message, self._causes), NotThere):
            self._owned.stopped.add(error.place)


def _nothing(places: Sequence[Place]) -> None:
    """What there is to do for a caller that keeps nothing of the partitions."""
