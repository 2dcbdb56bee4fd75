"""How long topics keep their records, and from when the record at an offset is."""

# pyright: reportPrivateImportUsage=false
# confluent_kafka.admin is where these are documented to be; it only lacks an __all__.
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import ConfigEntry, ConfigResource

from kafka_assets.broker.admin import LOGGER, TIMEOUT, Watch, admin, create
from kafka_assets.broker.connection import Connection, consumer_config

Where = tuple[str, int]


@dataclass(frozen=True)
class Keeping:
    """What a topic's configuration says of its records' end; None where they have none of that kind."""

    retention_ms: int | None
    retention_bytes: int | None
    cleanup_policy: str


def keeping(connection: Connection, topics: Sequence[str], *, timeout: float = TIMEOUT) -> dict[str, Keeping]:
    """Ask for all topics at once; those that have no answer are left out."""
    if not topics:
        return {}
    with admin(connection, timeout=timeout) as asking:
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        futures = asking.client.describe_configs(wanted, request_timeout=asking.left())
        answers = asking.answers(cast("dict[ConfigResource, Future[dict[str, ConfigEntry]]]", futures))
    return {
        str(resource.name): _keeping({name: str(entry.value) for name, entry in answer.items()})
        for resource, answer in answers.items()
        if not isinstance(answer, KafkaError)
    }


def _keeping(config: Mapping[str, str]) -> Keeping:
    policy = config.get("cleanup.policy", "delete")
    ms, size = int(config.get("retention.ms", "-1")), int(config.get("retention.bytes", "-1"))
    ends = "delete" in policy
    return Keeping(ms if ends and ms >= 0 else None, size if ends and size >= 0 else None, policy)


def times_at(
    connection: Connection, places: Mapping[Where, int], *, committed: bool = True, timeout: float = 3.0
) -> dict[Where, int]:
    """The timestamp of the first record at or after each of these offsets; what does not answer in time is left out.

    So is what the broker refuses, or does not have: one topic that may not be read never hides the others.
    `committed=False` sees also what an open transaction has written.
    """
    if not places:
        return {}
    watch = Watch(connection)
    level = "read_committed" if committed else "read_uncommitted"
    config: dict[str, Any] = {**consumer_config(connection), "isolation.level": level, "error_cb": watch.hear}
    consumer = create(lambda: Consumer(config, logger=LOGGER))
    found: dict[Where, int] = {}
    refused: set[Where] = set()
    deadline = time.monotonic() + timeout
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in places.items()])
        while len(found.keys() | refused) < len(places) and time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=0.1):
                place = (cast(str, message.topic()), cast(int, message.partition()))
                error = message.error()
                if error is not None and error.code() not in (
                    KafkaError._PARTITION_EOF,
                    KafkaError.OFFSET_OUT_OF_RANGE,
                    KafkaError._AUTO_OFFSET_RESET,
                ):
                    # What is said of a whole topic has no partition.
                    refused |= {one for one in places if one == place or (one[0] == place[0] and place[1] < 0)}
                elif error is None and place not in found:
                    found[place] = message.timestamp()[1]
                    consumer.pause([TopicPartition(*place)])
            watch.check(consumer)
    finally:
        consumer.close()
    return found
