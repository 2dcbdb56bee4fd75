"""What happens to a record before it goes: interceptors, bytes, and a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kafka_assets.broker.deliveries import Interceptor, Outgoing
from kafka_assets.broker.partition_counts import PartitionCounts
from kafka_assets.broker.partitioners import Partitioner
from kafka_assets.broker.serializers import Serializer
from kafka_assets.errors import RecordRefused

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


class Preparation:
    """How one producer prepares records."""

    def __init__(
        self, key: Serializer, value: Serializer, *, partitioner: Partitioner, interceptors: Sequence[Interceptor]
    ) -> None:
        self._key = key
        self._value = value
        self._partitioner = partitioner
        self._interceptors = interceptors

    def prepare(self, record: Outgoing) -> tuple[Outgoing, bytes | None, bytes | None]:
        """The record as the interceptors leave it, and the bytes of its key and value."""
        for interceptor in self._interceptors:
            record = interceptor.on_send(record)
        key = _written(self._key, record.key, topic=record.topic, part="key")
        return record, key, _written(self._value, record.value, topic=record.topic, part="value")

    def place(self, record: Outgoing, key: bytes | None, value: bytes | None, *, counts: PartitionCounts) -> int:
        """The partition's number; -1 leaves it to librdkafka."""
        place = record.partition
        if place is None:
            place = self._partitioner(record.topic, key, value, counts.of(record.topic))
            if place is None:
                return -1
        counts.check(record.topic, place)
        return place


def as_pairs(headers: Headers) -> tuple[tuple[str, str | bytes | None], ...]:
    return tuple(headers.items() if isinstance(headers, Mapping) else headers)


def _written(serializer: Serializer, given: Any, *, topic: str, part: str) -> bytes | None:
    """The bytes of a record's key or value, or RecordRefused."""
    try:
        return serializer(given)
    except (TypeError, ValueError) as error:
        raise RecordRefused(
            f"the {part} of a record for the topic {topic!r} cannot be written",
            why=str(error),
            cure=f"give what its serializer takes, or another serializer as `{part}`",
        ) from error


def milliseconds(timestamp: datetime | int | None) -> int | None:
    """A record's timestamp as Kafka has it."""
    if timestamp is None:
        return None
    found = timestamp if isinstance(timestamp, int) else round(timestamp.timestamp() * 1000)
    if found <= 0:
        raise RecordRefused(
            f"the timestamp {timestamp!r} cannot be written",
            why="librdkafka takes 0 for now, and nothing before 1970",
            cure="leave it out for now, or give milliseconds since 1970",
        )
    return found
