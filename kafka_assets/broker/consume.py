"""Reading a topic to look at it: all of its partitions, from anywhere, up to its end or for ever; commits nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, TopicPartition

from kafka_assets.broker.admin import LOGGER, TIMEOUT, Watch, create
from kafka_assets.broker.connection import Connection, consumer_config
from kafka_assets.broker.offsets import PartitionOffsets
from kafka_assets.broker.outage import Outage
from kafka_assets.broker.read import StoredRecord, raise_error, record_of
from kafka_assets.errors import BrokerRefused, BrokerUnavailable, OffsetsExpired

_BATCH = 500


def check_begin(topic: str, begin: Mapping[int, int], known: Mapping[int, PartitionOffsets]) -> None:
    """Refuse to begin where nothing is: below the first offset, or beyond the end."""
    for partition, offset in begin.items():
        there = known[partition]
        if offset < there.log_start:
            raise OffsetsExpired(
                f"offset {offset} of partition {partition} of the topic {topic!r} is not there any more",
                why=f"the partition begins at {there.log_start}",
                cure=f"begin at {there.log_start}, or later",
            )
        if offset > there.high_watermark:
            raise BrokerRefused(
                f"offset {offset} of partition {partition} of the topic {topic!r} is not there yet",
                why=f"the partition ends at {there.high_watermark}",
                cure=f"begin at {there.high_watermark}, or earlier",
            )


def consume(
    connection: Connection,
    topic: str,
    begin: Mapping[int, int],
    *,
    end: Mapping[int, int] | None,
    timeout: float = TIMEOUT,
    say: Callable[[str], None] = lambda what: None,
) -> Generator[StoredRecord]:
    """Committed records of these partitions, each partition's in order; up to `end`, or for ever where it is None.

    `timeout` is how long it waits, before an end, without any progress. Without an end it waits for ever, and says
    when the broker went away, and when it came back. No group is joined, nothing is committed.
    """
    left = {part: end[part] for part in begin if begin[part] < end[part]} if end is not None else dict.fromkeys(begin)
    if not left:
        return
    watch = Watch(connection)
    config: dict[str, Any] = {**consumer_config(connection), "error_cb": watch.hear}
    consumer = create(lambda: Consumer(config, logger=LOGGER))
    try:
        consumer.assign([TopicPartition(topic, part, begin[part]) for part in left])
        outage = Outage(connection, watch, say)
        moved, before = time.monotonic(), dict(begin)
        while left:
            for message in consumer.consume(_BATCH, timeout=0.1):
                partition, error = cast(int, message.partition()), message.error()
                if error is not None:
                    raise_error(connection, message, error, at=before[partition])
                    continue
                moved = time.monotonic()
                stop = left.get(partition, 0)
                if stop is None or cast(int, message.offset()) < stop:
                    yield record_of(message)
            if end is None:
                outage.look()
            watch.check(consumer)
            # Past holes and control records no message comes; only the position tells.
            at = {
                place.partition: place.offset for place in consumer.position([TopicPartition(topic, p) for p in left])
            }
            if any(offset > before[part] for part, offset in at.items()):
                moved, before = time.monotonic(), before | {part: max(at[part], before[part]) for part in at}
            left = {part: stop for part, stop in left.items() if stop is None or at[part] < stop}
            if end is not None and left and time.monotonic() - moved > timeout:
                raise watch.unavailable() if watch.last else _stuck(topic, left, before)
    finally:
        consumer.close()


def _stuck(topic: str, left: Mapping[int, int | None], at: Mapping[int, int]) -> BrokerUnavailable:
    waits = ", ".join(f"partition {part} at {at[part]} of {stop}" for part, stop in left.items())
    return BrokerUnavailable(
        f"the topic {topic!r} could not be read to its end: {waits}",
        why="the log ends there, or an open transaction holds the rest back",
        cure="ask again; `kafka-assets offsets` shows where it ends",
    )
