"""How many partitions a topic has: asked once, and again after a while, since partitions are added."""

from __future__ import annotations

import re
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from kafka_assets.broker.admin import TIMEOUT, Watch, admin, kafka_error, topic_error
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import BrokerUnavailable, RecordRefused, TopicMissing

QUICK = 2.0
"""Seconds between two looks whether there is anybody to wait for."""
FRESH = 300.0
"""Seconds, as librdkafka's and Java's own metadata age."""
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class PartitionCounts:
    """The numbers of partitions as a client's metadata has them."""

    def __init__(self, connection: Connection, client: Any, watch: Watch) -> None:
        self._connection = connection
        self._client = client
        self._watch = watch
        self._known: dict[str, tuple[int, float]] = {}

    def of(self, topic: str) -> int:
        """The topic's number of partitions; TopicMissing at once, where a record would only time out."""
        count, asked_at = self._known.get(topic, (0, 0.0))
        if count and time.monotonic() - asked_at < FRESH:
            return count
        return self._ask(topic, known=count)

    def check(self, topic: str, partition: int) -> None:
        """Refuse a partition that is not there, also when it is asked for anew."""
        count = self.of(topic)
        if partition >= count:
            count = self._ask(topic, known=0)
        if not 0 <= partition < count:
            raise RecordRefused(
                f"the topic {topic!r} has no partition {partition}",
                why=f"it has {count}, numbered from 0",
                cure="name one of them, or none and let the partitioner decide",
            )

    def _ask(self, topic: str, *, known: int) -> int:
        try:
            self._must_exist(topic, timeout=QUICK if known else TIMEOUT)
        except BrokerUnavailable:
            if known:  # an outage is no reason to refuse what waits in the queue until it is over
                return known
            raise
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                found = self._client.list_topics(topic, timeout=QUICK).topics[topic]
                break
            except KafkaException as raised:
                if known:
                    return known
                self._client.poll(0)
                self._watch.check(self._client)
                if time.monotonic() > deadline:
                    raise self._watch.unavailable(kafka_error(raised)) from raised
        self._pass(topic, found.error)
        self._known[topic] = (len(found.partitions), time.monotonic())
        return len(found.partitions)

    def _must_exist(self, topic: str, *, timeout: float) -> None:
        """An admin's question creates nothing; a producer's would, where the broker creates what it is asked for."""
        if _NAME.fullmatch(topic) is None:
            raise TopicMissing(
                f"there is no topic {topic!r}",
                why="a topic's name has 1 to 249 letters, digits, dots, underscores and hyphens",
                cure="correct the name",
            )
        with admin(self._connection, timeout=timeout) as asking:
            futures = asking.client.describe_topics(TopicCollection([topic]), request_timeout=asking.left())
            answer = asking.answers(futures)[topic]
        self._pass(topic, answer if isinstance(answer, KafkaError) else None)

    def _pass(self, topic: str, error: KafkaError | None) -> None:
        if error is not None and error.code() != KafkaError.LEADER_NOT_AVAILABLE:
            raise topic_error(self._connection, topic, error)
