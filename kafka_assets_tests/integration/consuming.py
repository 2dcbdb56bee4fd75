"""What the tests of consumers share: topics of their own, numbered records, and what a group has committed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator

from confluent_kafka import TopicPartition

from kafka_assets.broker.admin import admin
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.consumer import Consumer
from kafka_assets.broker.groups import describe_group
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.read import StoredRecord, read_range
from kafka_assets.broker.topics import create_topic
from kafka_assets.errors import GroupMissing
from kafka_assets_tests.integration.settling import settled

QUICK = {"heartbeat.interval.ms": "300", "session.timeout.ms": "6000"}
"""Rebalances are heard of with a heartbeat: the default's three seconds would be most of a test's time."""

STEP_BY_STEP = {**QUICK, "queued.min.messages": "1", "fetch.message.max.bytes": "64", "fetch.queue.backoff.ms": "10"}
"""A consumer that fetches hardly more than it hands over, where each record was produced alone."""

_numbers = itertools.count(1)


def new_topic(connection: Connection, *, partitions: int = 2, records: int = 0, **config: str) -> str:
    """A topic, with so many numbered records in each partition."""
    name = f"consumed-{os.getpid()}-{next(_numbers)}"
    create_topic(connection, name, partitions=partitions, config=config)
    fill(connection, name, range(records), partitions=partitions)
    return name


def fill(connection: Connection, topic: str, numbers: Iterable[int], *, partitions: int = 2) -> None:
    """Each number goes into each partition."""
    found = list(numbers)
    produce(
        connection,
        topic,
        (Record(value=b"%d" % number, partition=part) for part in range(partitions) for number in found),
    )


def read(consumer: Consumer, count: int) -> list[StoredRecord]:
    """The next so many records, all done; what comes twice comes in the place of another."""
    found: list[StoredRecord] = []
    for record in consumer.records(idle=30):
        found.append(record)
        if len(found) == count:
            consumer.done()
            break
    return found


def number(record: StoredRecord) -> tuple[int, int]:
    return record.partition, int(record.value or b"-1")


def expected(records: int, *, partitions: int = 2) -> list[tuple[int, int]]:
    return [(part, count) for part in range(partitions) for count in range(records)]


def committed(connection: Connection, group: str, topic: str) -> dict[int, int]:
    """The next offset of each partition, as the group has it."""
    try:
        offsets = describe_group(connection, group).offsets
    except GroupMissing:
        return {}
    return {partition: offset for (name, partition), offset in offsets.items() if name == topic}


def stored(connection: Connection, topic: str) -> Iterator[StoredRecord]:
    """What a committed reader sees of it, by an independent read."""
    for partition, ends in sorted(settled(connection, topic, patience=5).items()):
        yield from read_range(connection, topic, partition, ends.log_start, ends.last_stable)


def delete_records(connection: Connection, topic: str, before: int) -> None:
    """What retention does to the first partition."""
    with admin(connection) as asking:
        asking.answers(asking.client.delete_records([TopicPartition(topic, 0, before)]))
