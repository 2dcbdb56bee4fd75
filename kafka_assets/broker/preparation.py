"""What happens to a record before it goes: interceptors, bytes, and a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from kafka_assets.broker.deliveries import Interceptor, Outgoing
from kafka_assets.broker.partition_counts import PartitionCounts
from kafka_assets.broker.partitioners import Partitioner
from kafka_assets.broker.serializers import Serializer
from kafka_assets.errors import RecordRefused

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]

LATEST = 2**63 - 1
"""Kafka's timestamps have 64 bits."""


class Written(NamedTuple):
    """What of a record goes over the wire."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Preparation:
    """How one producer prepares records."""

    def __init__(
        self, key: Serializer, value: Serializer, *, partitioner: Partitioner, interceptors: Sequence[Interceptor]
    ) -> None:
        self._key = key
        self._value = value
        self._partitioner = partitioner
        self._interceptors = interceptors

    def prepare(self, record: Outgoing) -> tuple[Outgoing, Written]:
        """The record as the interceptors leave it, and its bytes."""
        for interceptor in self._interceptors:
            record = interceptor.on_send(record)
        milliseconds(record.timestamp_ms)
        return record, Written(
            _written(self._key, record.key, topic=record.topic, part="key"),
            _written(self._value, record.value, topic=record.topic, part="value"),
            [_header(*pair, topic=record.topic) for pair in record.headers],
        )

    def place(self, record: Outgoing, written: Written, *, counts: PartitionCounts) -> int:
        """The partition's number; -1 leaves it to librdkafka."""
        place = record.partition
        if place is None:
            place = self._partitioner(record.topic, written.key, written.value, counts.of(record.topic))
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


def _header(name: str, value: str | bytes | None, *, topic: str) -> tuple[str, bytes | None]:
    """A header as it goes: a name that C cannot hold would end the process, or lose its end."""
    try:
        if b"\0" in name.encode("utf-8"):
            raise ValueError("librdkafka ends a header's name at its first zero byte")
        return name, value.encode("utf-8") if isinstance(value, str) else value
    except ValueError as error:
        raise RecordRefused(
            f"the header {name!r} of a record for the topic {topic!r} cannot be written",
            why=str(error),
            cure="give headers whose names and texts are valid UTF-8, the names without a zero byte",
        ) from error


def milliseconds(timestamp: datetime | int | None) -> int | None:
    """A record's timestamp as Kafka has it."""
    if timestamp is None:
        return None
    found = timestamp if isinstance(timestamp, int) else round(timestamp.timestamp() * 1000)
    if not 0 < found <= LATEST:
        raise RecordRefused(
            f"the timestamp {timestamp!r} cannot be written",
            why="librdkafka takes 0 for now, nothing before 1970, and nothing beyond 64 bits",
            cure="leave it out for now, or give milliseconds since 1970",
        )
    return found
