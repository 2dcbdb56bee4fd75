"""Producers under experiment: each writes numbers into a topic of its own, and keeps what it was told is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.consume import consume
from kafka_assets.broker.deliveries import Delivery, Failure
from kafka_assets.broker.listing import topic_offsets
from kafka_assets.broker.producer import Producer
from kafka_assets.errors import KafkaAssetsError
from kafka_assets.lab.outcome import Outcome, counted
from kafka_assets.lab.waiting import PATIENCE


@dataclass(frozen=True)
class Mode:
    """How a producer writes, and how its topic is kept."""

    name: str
    acks: str = "all"
    idempotence: bool = True
    min_in_sync: int = 2
    unclean: bool = False
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def connection(self, brokers: Connection) -> Connection:
        mine = {
            "acks": self.acks,
            "enable.idempotence": str(self.idempotence).lower(),
            "linger.ms": "50",  # the records of one step go out as one request
            "batch.num.messages": "100000",
            "topic.metadata.refresh.interval.ms": "1000",
        }
        return Connection(brokers.bootstrap_servers, {**brokers.properties, **mine, **self.properties})

    @property
    def config(self) -> dict[str, str]:
        return {
            "min.insync.replicas": str(self.min_in_sync),
            "unclean.leader.election.enable": str(self.unclean).lower(),
        }


class Writer:
    """A producer of one mode. `acknowledged` is what it was told is safe: only that can be lost."""

    def __init__(self, brokers: Connection, topic: str, mode: Mode) -> None:
        self.topic = topic
        self.mode = mode
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.failed = 0
        self.timeouts = 0
        self._producer = Producer(
            Connection(
                brokers.bootstrap_servers,
                {**mode.connection(brokers).properties, "statistics.interval.ms": "100"},
            ),
            on_success=self._landed,
            on_error=self._refused,
            on_statistics=self._told,
        )

    def send(self, count: int) -> None:
        """The next so many numbers, into partition 0."""
        for number in range(self.sent, self.sent + count):
            self._producer.send(self.topic, b"%d" % number, partition=0)
        self.sent += count

    def answered(self, seconds: float = PATIENCE) -> bool:
        """Wait for the answer to each record, at most so long; whether all have one."""
        return self._producer.flush(seconds) == 0

    def listen(self, seconds: float = 0.1) -> None:
        self._producer.poll(seconds)

    def close(self) -> None:
        # A failure is a result here; `failed` has counted each.
        with suppress(KafkaAssetsError):
            self._producer.close(5)

    def outcome(self, reader: Connection, **more: object) -> Outcome:
        """Read the whole topic with a consumer that knows nothing of the producer."""
        return counted(
            self.mode.name,
            records=self.sent,
            expected=self.acknowledged,
            found=numbers(reader, self.topic),
            acks=self.mode.acks,
            idempotence=self.mode.idempotence,
            min_insync_replicas=self.mode.min_in_sync,
            unclean_election=self.mode.unclean,
            acknowledged=len(self.acknowledged),
            **more,
        )

    def _landed(self, delivery: Delivery) -> None:
        self.acknowledged.add(int(delivery.record.value))

    def _refused(self, failure: Failure) -> None:
        self.failed += 1

    def _told(self, statistics: str) -> None:
        self.timeouts = sum(broker["req_timeouts"] for broker in json.loads(statistics)["brokers"].values())


def numbers(reader: Connection, topic: str) -> list[int]:
    """Every record of the topic, as its number, each as often as it is there."""
    offsets = topic_offsets(reader, topic).partitions
    begin = {part: one.log_start for part, one in offsets.items()}
    end = {part: one.last_stable for part, one in offsets.items()}
    return [int(record.value or b"") for record in consume(reader, topic, begin, end=end, timeout=PATIENCE)]
