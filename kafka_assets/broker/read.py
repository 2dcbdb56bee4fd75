"""A plain reader, independent of Spark: what is in a range of offsets, as any committed reader sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_assets.broker.admin import LOGGER, TIMEOUT, Watch, create, kafka_error, refused, topic_error
from kafka_assets.broker.connection import Connection, consumer_config
from kafka_assets.broker.headers import UNREADABLE, headers_of, told
from kafka_assets.broker.topics import describe_topic
from kafka_assets.decode.passage import LEFT_OUT
from kafka_assets.errors import BrokerUnavailable, OffsetsExpired
from kafka_assets.records import BadRecord

NO_TIMESTAMP = -1
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as Kafka has it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    """Negative where it has none, as records of before Kafka 0.10."""
    headers: tuple[tuple[str, bytes | None], ...]
    """HeadersUnreadable is raised by who looks at them where a name is not UTF-8."""
    timestamp_type: int = 0
    """In Kafka's numbers: -1 for none, 0 for the producer's, 1 for the broker's (LogAppendTime)."""


def read_range(
    connection: Connection, topic: str, partition: int, start: int, end: int, *, timeout: float = TIMEOUT
) -> Iterator[StoredRecord]:
    """The committed records with ``start <= offset < end``, in order; holes are simply not there.

    `timeout` is how long it waits without any progress. A range that is not there (below the log
    start, or past the end of the log) raises, it is never cut short.
    """
    if start >= end:
        return
    describe_topic(connection, topic, timeout=timeout)  # a missing topic is known now, not after a long silence
    watch = Watch(connection)
    config: dict[str, Any] = {**consumer_config(connection), "error_cb": watch.hear}
    consumer = create(lambda: Consumer(config, logger=LOGGER))
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        position = log_end = start
        heard_at = time.monotonic()
        while position < end:
            messages = consumer.consume(_BATCH, timeout=0.1)
            watch.check(consumer)
            for message in messages:
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        log_end = max(log_end, cast(int, message.offset()))
                    # No group is used, so whoever may use none reads.
                    elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                        raise_error(connection, message, error, at=position)
                    continue
                offset = cast(int, message.offset())
                if offset >= end:
                    return
                yield record_of(message)
            # Past holes and control records no message comes, and the position tells; of holes at the log's end alone
            # it does not, but what says that it ends there says where.
            now = max(_position(connection, consumer, topic, partition), log_end)
            if messages or now > position:
                heard_at = time.monotonic()
            position = max(position, now)
            if position < end and time.monotonic() - heard_at > timeout:
                raise watch.unavailable() if watch.last else _not_there(topic, partition, position, end)
    finally:
        consumer.close()


def raise_error(connection: Connection, message: Message, error: KafkaError, *, at: int) -> None:
    """What came instead of a record at this offset; nothing, where it is only the partition's end."""
    if error.code() == KafkaError._PARTITION_EOF:
        return
    if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
        raise OffsetsExpired(
            f"offset {at} of partition {message.partition()} of the topic {message.topic()!r} is not there",
            why=error.str(),
            cure="ask for offsets between the log start and the end",
        )
    raise topic_error(connection, str(message.topic()), error)


def _position(connection: Connection, consumer: Consumer, topic: str, partition: int) -> int:
    try:
        place = consumer.position([TopicPartition(topic, partition)])[0]
    except KafkaException as raised:
        raise refused(connection, kafka_error(raised)) from raised
    return place.offset


def _not_there(topic: str, partition: int, position: int, end: int) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"partition {partition} of the topic {topic!r} could be read to {position}, not to {end}",
        why="the log ends there, or an open transaction holds the rest back",
        cure="ask only for offsets below the last stable offset",
    )


def record_of(message: Message) -> StoredRecord:
    """A message as Kafka has it."""
    [headers], (kind, at) = headers_of([message]), message.timestamp()
    return StoredRecord(
        topic=cast(str, message.topic()),
        partition=cast(int, message.partition()),
        offset=cast(int, message.offset()),
        key=message.key(),
        value=message.value(),
        timestamp_ms=at if kind != TIMESTAMP_NOT_AVAILABLE else NO_TIMESTAMP,
        headers=headers if headers is UNREADABLE else told(headers),
        timestamp_type=kind - 1,  # librdkafka counts from 0
    )


def bad_record(record: StoredRecord, reason: str, *, code: str | None = None) -> BadRecord:
    """The record with its bytes, and why it is bad; its timestamp is any of 64 bits."""
    return BadRecord(
        partition=record.partition,
        offset=record.offset,
        reason=f"{reason} · {LEFT_OUT}" if record.headers is UNREADABLE else reason,
        key=record.key,
        value=record.value,
        headers=told(record.headers),
        timestamp=record.timestamp_ms,
        code=code,
    )
