"""Records as they came from Kafka, a list for each of their parts: what the decoder reads.

Messages are taken apart as soon as they are consumed: kept until their batch is full, each costs three times as much,
since nothing of it is in the processor's cache any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import methodcaller, ne
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kafka_assets.broker.headers import LEFT_OUT, UNREADABLE, headers_of, told
from kafka_assets.records import LATEST, BadRecord

if TYPE_CHECKING:
    from kafka_assets.decode.contract import Reason
    from kafka_assets.live.ahead import Piece

Headers = Sequence[tuple[str, bytes | None]]
Place = tuple[str, int]
"""A topic's name, and a partition."""


class Message(Protocol):
    """A record as confluent_kafka gives it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


_TOPIC, _PARTITION = methodcaller("topic"), methodcaller("partition")
_OFFSET, _VALUE, _KEY = methodcaller("offset"), methodcaller("value"), methodcaller("key")
_STAMP = methodcaller("timestamp")


@dataclass
class Batch:
    """Records of one partition, in the order of their offsets."""

    offsets: list[int] = field(default_factory=list[int])
    values: list[bytes | None] = field(default_factory=list["bytes | None"])
    keys: list[bytes | None] = field(default_factory=list["bytes | None"])
    stamps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """As confluent_kafka has them: the type, which is one more than Spark's, and milliseconds since 1970.

    Type 0 says that there is none. So does a negative number, and one that no column holds.
    """
    headers: list[Headers | None] = field(default_factory=list["Headers | None"])
    """Or UNREADABLE."""
    pieces: list[Piece] = field(default_factory=list["Piece"])
    """Of its values: what is decoded already, from the first one on."""

    def __len__(self) -> int:
        return len(self.offsets)

    def extend(self, messages: Sequence[Message]) -> int:
        """Take messages of this partition; the bytes of their keys and values."""
        # One pass over all for each part is the fastest that Python has.
        values, keys = list(map(_VALUE, messages)), list(map(_KEY, messages))
        self.offsets += map(_OFFSET, messages)
        self.values += values
        self.keys += keys
        self.stamps += map(_STAMP, messages)
        self.headers += headers_of(messages)
        return size(values) + size(keys)

    @property
    def timestamps(self) -> list[int | None]:
        return [_time(kind, at) for kind, at in self.stamps]

    def bad(self, at: int, why: Reason, *, partition: int) -> BadRecord:
        """The record at this place, with its bytes."""
        headers = self.headers[at]
        return BadRecord(
            partition=partition,
            offset=self.offsets[at],
            reason=f"{why.words} · {LEFT_OUT}" if headers is UNREADABLE else why.words,
            key=self.keys[at],
            value=self.values[at],
            headers=told(headers),
            timestamp=_time(*self.stamps[at]),
            code=why.code,
            field=why.field or None,
        )

    @property
    def timestamp_types(self) -> list[int]:
        """As the Spark road has them: 0 of the producer, 1 of the broker, -1 none."""
        return [kind - 1 for kind, _ in self.stamps]


def _time(kind: int, at: int) -> int | None:
    return at if kind and 0 <= at <= LATEST else None


def batch_of(messages: Sequence[Message]) -> Batch:
    """Messages of one partition."""
    batch = Batch()
    batch.extend(messages)
    return batch


def batches(messages: Sequence[Message]) -> dict[Place, Batch]:
    """Messages without errors, by topic and partition; within one they stay in order."""
    found: dict[Place, Batch] = {}
    for place, some in runs(messages):
        found.setdefault(place, Batch()).extend(some)
    return found


def runs(messages: Sequence[Message]) -> Iterator[tuple[Place, Sequence[Message]]]:
    """Messages of one partition that follow each other; Kafka gives thousands of them at a time."""
    if not messages:
        return
    partitions = np.fromiter(map(_PARTITION, messages), dtype=np.int64, count=len(messages))
    changes = partitions[1:] != partitions[:-1]
    if len(set(map(_TOPIC, messages))) > 1:
        topics: list[str] = list(map(_TOPIC, messages))
        changes |= np.fromiter(map(ne, topics[1:], topics[:-1]), dtype=np.bool_, count=len(topics) - 1)
    ends: list[int] = [*(np.flatnonzero(changes) + 1).tolist(), len(messages)]
    for start, end in pairwise([0, *ends]):
        some = messages[start:end]
        yield (_TOPIC(some[0]), _PARTITION(some[0])), some


def size(parts: Iterable[bytes | None]) -> int:
    """Bytes of all that is there."""
    return sum(map(len, filter(None, parts)))
