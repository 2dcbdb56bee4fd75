"""Partitions that a consumer takes for itself: no group, no rebalance; it reads from where it is told to."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_assets.broker.admin import LOGGER, Watch, create, kafka_error, topic_error
from kafka_assets.broker.connection import Connection, consumer_config
from kafka_assets.broker.member_errors import NotThere
from kafka_assets.broker.subscription import place_of
from kafka_assets.broker.units import Where
from kafka_assets.broker.waking import Waking
from kafka_assets.errors import KafkaAssetsError

_SEEK_TIMEOUT = 2.0
_PASSING = {KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}


class Assignment:
    """The same calls as a Subscription's, for partitions that nobody takes away. Use it from one thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._watch = Watch(connection)
        config: dict[str, Any] = {**consumer_config(connection), "error_cb": self._watch.hear}
        self.client: Consumer = create(lambda: Consumer(config, logger=LOGGER))
        self.assigned: frozenset[Where] = frozenset()
        self._floors: dict[Where, int] = {}
        self._waking = Waking()
        self._paused: set[Where] = set()
        self._stopped: set[Where] = set()
        self._errors: dict[Where, KafkaAssetsError] = {}
        """Of each partition the first that nobody was told of yet."""

    def consume(self, max_records: int, timeout: float) -> list[Message]:
        """Up to so many records, each partition's in order; [] after `timeout` seconds without any.

        An error is raised by the next call where there are records to give first: they would be nobody's.
        """
        self._raise_what_waits()
        self._waking.wake(self.client)
        records: list[Message] = []
        for message in self.client.consume(max_records, timeout=timeout):
            error = message.error()
            if error is not None:
                self._meet(message, error)
            elif cast(int, message.offset()) >= self._floors.get(place_of(message), 0):
                records.append(message)
        for message in records:
            self._floors.pop(place_of(message), None)
        if not records:
            self._raise_what_waits()
        return records

    def seek(self, place: Where, offset: int) -> None:
        """Go on there; what was fetched and not consumed is dropped."""
        if place in self._stopped or not self._sought(place, offset):
            self._assign_anew(place, offset)
        self._errors.pop(place, None)
        self._floors[place] = offset
        self._waking.add([place])

    def _sought(self, place: Where, offset: int) -> bool:
        deadline = time.monotonic() + _SEEK_TIMEOUT
        while True:
            try:
                self.client.seek(TopicPartition(*place, offset))
                return True
            except KafkaException as raised:
                error = kafka_error(raised)
                if error.code() not in {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS}:
                    raise topic_error(self.connection, place[0], error) from raised
                # An assignment takes effect a moment after it was made.
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)

    def _assign_anew(self, place: Where, offset: int) -> None:
        """A partition whose offset was not there is not read any more, and cannot be sought in."""
        self.client.incremental_unassign([TopicPartition(*place)])
        self.client.incremental_assign([TopicPartition(*place, offset)])
        self._stopped.discard(place)
        if place in self._paused:
            self.client.pause([TopicPartition(*place)])

    def start(self, place: Where, offset: int) -> None:
        """Take this partition, too, and begin there; or go on there, where it was taken before."""
        if place in self.assigned:
            return self.seek(place, offset)
        self.client.incremental_assign([TopicPartition(*place, offset)])
        self.assigned |= {place}
        self._floors[place] = offset
        self._waking.add([place])
        return None

    def pause(self, places: Iterable[Where]) -> None:
        """Fetch no more of these; what was fetched and not consumed is dropped, and comes again."""
        new = list(places)
        self._paused.update(new)
        self.client.pause([TopicPartition(*place) for place in new])

    def resume(self, places: Iterable[Where]) -> None:
        known = list(places)
        self._paused.difference_update(known)
        self.client.resume([TopicPartition(*place) for place in known])
        self._waking.add(known)

    def close(self) -> None:
        self.client.close()

    def _meet(self, message: Message, error: KafkaError) -> None:
        if error.code() in _PASSING:
            return
        place = place_of(message)
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            self._stopped.add(place)
            self._errors[place] = NotThere(*place, why=error.str(), offset=cast(int, message.offset()))
        else:
            self._errors.setdefault(place, topic_error(self.connection, str(message.topic()), error))

    def _raise_what_waits(self) -> None:
        self._watch.check(self.client)
        if self._errors:
            raise self._errors.pop(next(iter(self._errors)))
