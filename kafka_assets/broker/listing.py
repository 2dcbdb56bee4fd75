"""All topics of a cluster, and the partitions of one, as a broker knows them now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_assets.broker.admin import TIMEOUT, admin
from kafka_assets.broker.cluster import describe_cluster
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import TopicOffsets, describe, observe, offsets_of_led
from kafka_assets.errors import KafkaAssetsError, TopicMissing


@dataclass(frozen=True)
class ListedTopic:
    """A line of the list of topics."""

    topic: str
    partitions: int
    replication_factor: int
    offline: int
    """Partitions without a leader."""


@dataclass(frozen=True)
class ListedPartition:
    """A partition: who has it, and where it begins and ends, which only its leader can say."""

    partition: int
    leader: int
    """-1 where there is none now."""
    replicas: list[int]
    in_sync: list[int]
    log_start: int | None
    last_stable: int | None
    high_watermark: int | None

    @property
    def offsets(self) -> int | None:
        """How many offsets it has; None where nobody says so."""
        return None if self.high_watermark is None or self.log_start is None else self.high_watermark - self.log_start


def list_topics(connection: Connection, *, internal: bool = False, timeout: float = TIMEOUT) -> list[ListedTopic]:
    """Every topic that the user may see, by name; Kafka's own only where asked for."""
    describe_cluster(
        connection, timeout=timeout
    )  # nobody there is known at once, and metadata would wait for all of it
    with admin(connection, timeout=timeout) as asking:
        found = asking.metadata().topics
    return [
        ListedTopic(
            topic=name,
            partitions=len(topic.partitions),
            replication_factor=max((len(part.replicas) for part in topic.partitions.values()), default=0),
            offline=sum(part.leader < 0 for part in topic.partitions.values()),
        )
        for name, topic in sorted(found.items())
        if internal or not name.startswith("__")
    ]


def list_partitions(connection: Connection, topic: str, *, timeout: float = TIMEOUT) -> list[ListedPartition]:
    """The partitions of one topic, those without a leader, too; raises TopicMissing."""
    with admin(connection, timeout=timeout) as asking:
        described = describe(asking, [topic], leaderless=True)[topic]
        if isinstance(described, KafkaAssetsError):  # asked for by name, metadata alone could create it
            raise described
        known: Any = asking.metadata().topics.get(topic)
        if known is None:
            raise TopicMissing(f"the topic {topic!r} was deleted while it was being looked at", cure="list the topics")
        led = [(topic, number) for number, part in sorted(known.partitions.items()) if part.leader >= 0]
        offsets = offsets_of_led(asking, led)
    return [
        ListedPartition(
            number,
            leader=part.leader,
            replicas=sorted(part.replicas),
            in_sync=sorted(part.isrs),
            log_start=there.log_start if there else None,
            last_stable=there.last_stable if there else None,
            high_watermark=there.high_watermark if there else None,
        )
        for number, part in sorted(known.partitions.items())
        for there in (offsets.get((topic, number)),)
    ]


def topic_offsets(connection: Connection, topic: str, *, timeout: float = TIMEOUT) -> TopicOffsets:
    """Where one topic begins and ends, or the error that it has."""
    found = observe(connection, [topic], timeout=timeout)[topic]
    if isinstance(found, KafkaAssetsError):
        raise found
    return found
