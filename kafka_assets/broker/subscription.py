"""A member of a consumer group: what it is given and what is taken from it, told as it happens; it commits nothing.

`consume` is where everything happens: records, rebalances (the callbacks run inside it, in the caller's
thread) and errors. What it does NOT promise: that a record is seen once. A partition begins where `on_assign`
or `start` says; who keeps the offsets decides what that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from kafka_assets.broker.admin import LOGGER as LIBRDKAFKA
from kafka_assets.broker.admin import Beside, create
from kafka_assets.broker.client_partitions import ClientPartitions, at, place_of
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.hearing import Hearing
from kafka_assets.broker.matching import Matching
from kafka_assets.broker.member_errors import NotThere
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.rebalances import Kind, Place, Rebalance, Rebalances
from kafka_assets.errors import KafkaAssetsError

OnAssign = Callable[[Sequence[Place]], Mapping[Place, int]]
"""Says where to begin; a partition that it leaves out is parked until `start`."""
OnGone = Callable[[Sequence[Place]], None]


class Subscription(ClientPartitions):
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
        super().__init__()
        self.connection = connection
        self.membership = membership
        self.incremental = membership.cooperative
        self.rebalances = Rebalances()
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost or _nothing
        self._matching = Matching(topics)
        self._beside = Beside(connection)
        self._hearing = Hearing(connection, membership, stopped=self._stopped)
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
    def joining(self) -> bool:
        """Whether the group has not said yet what this member gets, or is saying it anew."""
        return bool(self._matching.topics) and not self.rebalances.settled

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
        self._drop_parked()
        before = self.rebalances.count
        messages = self._hearing.ask(lambda: self.client.consume(max_records, timeout=timeout))
        records = [message for message in messages if message.error() is None]
        if len(records) < len(messages):
            for message in messages:
                if message.error() is not None:
                    self._meet(message)
        if self.rebalances.count != before:
            records = [one for one in records if self._reads(place_of(one))]
            self._explain()
        records = self._above(records)
        if not records:
            self._hearing.raise_what_waits()
        return records

    def commit(self, offsets: Mapping[Place, int], *, wait: bool = True) -> None:
        """Tell Kafka these next offsets of the group. Only of partitions that are this member's still."""
        places = [TopicPartition(*place, offset) for place, offset in offsets.items() if place in self._places]
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
        if self._places:
            self._gone("revoked", sorted(self._places), self._on_revoke)
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
            self._answer({})
            return
        begun = time.monotonic()
        begins: Mapping[Place, int] = {}
        try:
            begins = self._on_assign(places) if places else {}
        except BaseException as raised:  # noqa: BLE001 librdkafka must hear of the assignment first; raised by consume
            self._hearing.keep(raised)
        begins = {place: begins[place] for place in places if place in begins}
        self._answer(begins)
        if not self.incremental:
            self._forget(self._places)
        self._add(places, begins)
        self.rebalances.add(Rebalance("assigned", tuple(places), seconds=time.monotonic() - begun))

    def _answer(self, begins: Mapping[Place, int]) -> None:
        """Take what the group gives, as its protocol wants it; librdkafka need not have what is parked."""
        given = [TopicPartition(*place, offset) for place, offset in begins.items()]
        (self.client.incremental_assign if self.incremental else self.client.assign)(given)

    def _take(self, kind: Kind, taken: Sequence[TopicPartition], tell: OnGone) -> None:
        places = [(one.topic, one.partition) for one in taken]
        given = self._given.intersection(places)
        self._gone(kind, places, tell)
        if self.incremental:
            self.client.incremental_unassign(at(given))
        else:
            self.client.unassign()

    def _gone(self, kind: Kind, places: Sequence[Place], tell: OnGone) -> None:
        begun = time.monotonic()
        try:
            if places:
                tell(places)
        except BaseException as raised:  # noqa: BLE001 librdkafka waits for the partitions; raised by consume
            self._hearing.keep(raised)
        self._forget(places)
        self.rebalances.add(Rebalance(kind, tuple(places), seconds=time.monotonic() - begun))

    def _explain(self) -> None:
        """Log the rebalances of this call with what may have caused them; looked up only afterwards."""
        self._look(now=True)
        causes, self._causes = self._causes, []
        self.rebalances.log(self.membership.group, causes, owned=len(self._places))

    def _look(self, *, now: bool = False) -> None:
        if self._matching.look(self._beside, self._causes, now=now):
            if self._matching.topics:
                self._subscribe()
            else:
                self._hearing.ask(self.client.unsubscribe)

    def _meet(self, message: Message) -> None:
        if cast(KafkaError, message.error()).code() == KafkaError._PARTITION_EOF:
            self._ends[place_of(message)] = cast(int, message.offset())
        elif isinstance(error := self._hearing.meet(message, self._causes), NotThere):
            self._stopped.add(error.place)

    def _error(self, error: KafkaError, place: Place | None = None) -> KafkaAssetsError:
        return self._hearing.typed(error)

    def _ask(self, call: Callable[[], Any]) -> Any:
        return self._hearing.ask(call)


def _nothing(places: Sequence[Place]) -> None:
    """What there is to do for a caller that keeps nothing of the partitions."""
