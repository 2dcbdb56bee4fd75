"""Records as they came from Kafka, a list for each of their parts: what the decoder reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Protocol

Headers = Sequence[tuple[str, bytes | None]]


class Message(Protocol):
    """A record as confluent_kafka gives it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Batch:
    """Records of one partition, in the order of their offsets."""

    offsets: list[int] = field(default_factory=list[int])
    values: list[bytes | None] = field(default_factory=list["bytes | None"])
    keys: list[bytes | None] = field(default_factory=list["bytes | None"])
    timestamps: list[int] = field(default_factory=list[int])
    """Milliseconds since 1970."""
    timestamp_types: list[int] = field(default_factory=list[int])
    """As the Spark road has them: 0 of the producer, 1 of the broker, -1 none."""
    headers: list[Headers | None] = field(default_factory=list["Headers | None"])

    def __len__(self) -> int:
        return len(self.offsets)


_PARTITION = methodcaller("partition")
_OFFSET, _VALUE, _KEY = methodcaller("offset"), methodcaller("value"), methodcaller("key")
_STAMP, _HEADERS = methodcaller("timestamp"), methodcaller("headers")


def batches(messages: Iterable[Message]) -> dict[tuple[str, int], Batch]:
    """Messages without errors, by topic and partition; within one they stay in order."""
    apart: dict[tuple[str, int], list[Message]] = {}
    for message in messages:
        place: Any = (message.topic(), message.partition())
        found = apart.get(place)
        if found is None:
            found = apart[place] = []
        found.append(message)
    return {place: batch_of(found) for place, found in apart.items()}


def batch_of(messages: Sequence[Message]) -> Batch:
    """Messages of one partition, part by part: one pass over all for each is the fastest that Python has."""
    stamps = list(map(_STAMP, messages))
    return Batch(
        offsets=list(map(_OFFSET, messages)),
        values=list(map(_VALUE, messages)),
        keys=list(map(_KEY, messages)),
        timestamps=[at for _, at in stamps],
        timestamp_types=[kind - 1 for kind, _ in stamps],
        headers=list(map(_HEADERS, messages)),
    )
