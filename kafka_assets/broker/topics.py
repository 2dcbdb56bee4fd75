"""Topics: made, looked at, deleted, and each answer waits until it is true."""

# pyright: reportPrivateImportUsage=false
# confluent_kafka.admin is where these are documented to be; it only lacks an __all__.
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic, OffsetSpec, TopicDescription

from kafka_assets.broker.admin import TIMEOUT, Admin, admin, topic_error
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import ask, describe, partitions_of, topic_id
from kafka_assets.errors import BrokerRefused, BrokerUnavailable, KafkaAssetsError, TopicMissing


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster has it now; `existed` says whether create_topic found it there already."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    existed: bool = field(default=True, compare=False)


def create_topic(
    connection: Connection,
    name: str,
    *,
    partitions: int,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
    replicas: Sequence[Sequence[int]] | None = None,
    timeout: float = TIMEOUT,
) -> Topic:
    """Create the topic, or find it there with the same number of partitions; another number is an error.

    A topic that existed keeps its own configuration and replication factor: they are not compared.
    `replicas` names each partition's brokers, its first leader first, in place of a replication factor.
    """
    keeping = {"replication_factor": replication_factor} if replicas is None else {"replica_assignment": replicas}
    with admin(connection, timeout=timeout) as asking:
        wanted = NewTopic(name, num_partitions=partitions, config=dict(config or {}), **cast("Any", keeping))
        futures = asking.client.create_topics([wanted], request_timeout=asking.left(), operation_timeout=asking.left())
        answer = asking.answers(cast("dict[str, Future[None]]", futures))[name]
        existed = isinstance(answer, KafkaError) and answer.code() == KafkaError.TOPIC_ALREADY_EXISTS
        if isinstance(answer, KafkaError) and not existed:
            raise topic_error(connection, name, answer)
        topic = _wait_until_there(asking, name, existed=existed)
    if topic.partitions != partitions:
        raise BrokerRefused(
            f"the topic {name!r} exists with {topic.partitions} partitions, not {partitions}",
            why="it was created before; the number of partitions is never changed silently, since keys would move",
            cure="ask for the number that it has, or use another name",
        )
    return topic


def describe_topic(connection: Connection, name: str, *, leaderless: bool = False, timeout: float = TIMEOUT) -> Topic:
    """The topic as it is now, or TopicMissing. A partition without a leader is BrokerUnavailable, or `leaderless`."""
    with admin(connection, timeout=timeout) as asking:
        return _topic(name, describe(asking, [name], leaderless=leaderless)[name])


def topic_names(connection: Connection, *, timeout: float = TIMEOUT) -> list[str]:
    """The names of all topics that the user may see, without Kafka's own."""
    with admin(connection, timeout=timeout) as asking:
        return sorted(name for name in asking.metadata().topics if not name.startswith("__"))


def delete_topic(connection: Connection, name: str, *, timeout: float = TIMEOUT) -> None:
    """Delete the topic and wait until the cluster no longer knows it, or raise TopicMissing."""
    with admin(connection, timeout=timeout) as asking:
        futures = asking.client.delete_topics([name], request_timeout=asking.left(), operation_timeout=asking.left())
        answer = asking.answers(cast("dict[str, Future[None]]", futures))[name]
        if isinstance(answer, KafkaError):
            raise topic_error(connection, name, answer)
        while not isinstance(describe(asking, [name])[name], TopicMissing):
            _pause(asking, f"the topic {name!r} was deleted, and is still there")


def _wait_until_there(asking: Admin, name: str, *, existed: bool) -> Topic:
    """A new topic is known first, and answers for its partitions a moment later."""
    while True:
        found = describe(asking, [name])[name]
        if isinstance(found, TopicDescription):
            answers = ask(asking, partitions_of({name: found}), OffsetSpec.earliest())
            if not any(isinstance(answer, KafkaError) for answer in answers.values()):
                return _topic(name, found, existed=existed)
        elif not isinstance(found, TopicMissing | BrokerUnavailable):
            raise found
        _pause(asking, f"the topic {name!r} was created, and cannot be used yet")


def _pause(asking: Admin, what: str) -> None:
    if time.monotonic() > asking.deadline:
        raise BrokerUnavailable(what, why="the cluster takes longer than we wait", cure="look again in a moment")
    time.sleep(0.02)


def _topic(name: str, found: TopicDescription | KafkaAssetsError, *, existed: bool = True) -> Topic:
    if isinstance(found, KafkaAssetsError):
        raise found
    return Topic(
        name=name,
        topic_id=topic_id(found),
        partitions=len(found.partitions),
        replication_factor=len(found.partitions[0].replicas),
        existed=existed,
    )
