"""Partitions that a consumer takes for itself: no group, no rebalance; it reads from where it is told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from kafka_assets.broker.admin import LOGGER, Watch, create, kafka_error, refused, topic_error
from kafka_assets.broker.client_partitions import ClientPartitions, place_of
from kafka_assets.broker.connection import Connection, consumer_config
from kafka_assets.broker.member_errors import NotThere
from kafka_assets.broker.rebalances import Place
from kafka_assets.errors import KafkaAssetsError, UsageError

_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}


class Assignment(ClientPartitions):
    """The same calls as a Subscription's, for partitions that nobody takes away. Use it from one thread."""

    joining = False

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self._watch = Watch(connection)
        config: dict[str, Any] = {**consumer_config(connection), "error_cb": self._watch.hear}
        self.client: Consumer = create(lambda: Consumer(config, logger=LOGGER))
        self._errors: dict[Place, KafkaAssetsError] = {}
        """Of each partition the first that nobody was told of yet."""

    def consume(self, max_records: int, timeout: float) -> list[Message]:
        """Up to so many records, each partition's in order; [] after `timeout` seconds without any.

        An error is raised by the next call where there are records to give first: they would be nobody's.
        """
        self._raise_what_waits()
        self._drop_parked()
        records: list[Message] = []
        for message in self._ask(lambda: self.client.consume(max_records, timeout=timeout)):
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends[place_of(message)] = cast(int, message.offset())
            else:
                self._meet(message, error)
        records = self._above(records)
        if not records:
            self._raise_what_waits()
        return records

    def start(self, offsets: Mapping[Place, int]) -> None:
        """Take these partitions, too, and begin there; or go on there, where they were taken before."""
        self._add([place for place in offsets if place not in self._places], {})
        super().start(offsets)
        for place in offsets:
            self._errors.pop(place, None)

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

    def _error(self, error: KafkaError, place: Place | None = None) -> KafkaAssetsError:
        return refused(self.connection, error) if place is None else topic_error(self.connection, place[0], error)

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KafkaException as raised:
            raise self._error(kafka_error(raised)) from raised
        except RuntimeError as raised:
            raise UsageError("the consumer is closed", why=str(raised), cure="make a new one") from raised
