"""What goes wrong in a member's calls and callbacks: kept until somebody asks, and said in this package's words."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message

from kafka_assets.broker.admin import kafka_error
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.long_watch import LongWatch
from kafka_assets.broker.member_errors import NotThere, is_expected, member_error
from kafka_assets.broker.membership import LOGGER, Membership
from kafka_assets.broker.rebalances import Place
from kafka_assets.errors import KafkaAssetsError, UsageError


class Hearing:
    """Of one member. Whatever it hears inside librdkafka's callbacks is raised outside of them."""

    def __init__(self, connection: Connection, membership: Membership, *, stopped: Collection[Place]) -> None:
        """`stopped` are the partitions that are not read any more, because an offset was not there."""
        self._connection, self._membership, self._stopped = connection, membership, stopped
        self._watch = LongWatch(connection)
        self._raised: BaseException | None = None
        self._error: KafkaAssetsError | None = None
        self._not_there: list[NotThere] = []

    def hear(self, error: KafkaError) -> None:
        """librdkafka's error_cb."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._error = self.typed(error)
        else:
            self._watch.hear(error)

    def keep(self, raised: BaseException) -> None:
        """What a callback of the caller's raised: librdkafka waits for an answer first."""
        self._raised = self._raised or raised

    def meet(self, message: Message, causes: list[str]) -> KafkaAssetsError | None:
        """A message that is an error, to be raised; one that passes by itself may be why members come and go."""
        error = cast(KafkaError, message.error())
        if is_expected(error):
            LOGGER.warning("group %s: %s (%s)", self._membership.group, error.str(), error.name())
            causes.append(error.str())
            return None
        typed = self.typed(error, topic=message.topic(), partition=message.partition())
        if isinstance(typed, NotThere):
            typed.offset = cast(int, message.offset())
            self._not_there.append(typed)  # each of them: what nobody is told of is never read again
        else:
            self._error = self._error or typed
        return typed

    def check(self, client: Any) -> None:
        """Raise what waits, and where waiting has become pointless."""
        self.raise_what_waits()
        self._watch.check(client)

    def raise_what_waits(self, *, of_records: bool = True) -> None:
        """Without `of_records` only what callbacks raised: for who leaves, and wants no more records."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        if not of_records:
            return
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        while self._not_there:
            if (gone := self._not_there.pop(0)).place in self._stopped:
                raise gone

    def ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KafkaException as raised:
            raise self.typed(kafka_error(raised)) from raised
        except RuntimeError as raised:
            raise UsageError("the subscription is closed", why=str(raised), cure="make a new one") from raised

    def typed(self, error: KafkaError, *, topic: str | None = None, partition: int | None = None) -> KafkaAssetsError:
        return member_error(self._connection, self._membership, error, topic=topic, partition=partition)
