"""Records as they came from Kafka, by partition: what the decoder reads, and what the publisher is told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import ne
from typing import TYPE_CHECKING, Any

import numpy as np

from kafka_assets.broker.headers import UNREADABLE, told
from kafka_assets.decode.messages import Columns as Taken
from kafka_assets.decode.messages import Message, joined, numbers
from kafka_assets.decode.passage import LEFT_OUT
from kafka_assets.records import BadRecord

if TYPE_CHECKING:
    from kafka_assets.decode.contract import Decoded, Reason

Place = tuple[str, int]
"""A topic's name, and a partition."""


class Columns(Taken):
    """Records of one partition, in the order of their offsets; headers that cannot be told are UNREADABLE."""

    def bad(self, at: int, why: Reason) -> BadRecord:
        """The record at this place, with its bytes."""
        headers = None if self.headers is None else self.headers[at]
        times, timed = self.times
        return BadRecord(
            partition=self.partition,
            offset=int(self.offsets[at]),
            reason=f"{why.words} · {LEFT_OUT}" if headers is UNREADABLE else why.words,
            key=self.keys[at].as_py(),
            value=self.values[at].as_py(),
            headers=told(headers),
            timestamp=int(times[at]) if timed[at] else None,
            code=why.code,
            field=why.field or None,
        )


def columns_of(messages: Sequence[Message]) -> Columns:
    """Messages of one partition, of which there is one at least."""
    return Columns.of(messages, untold=UNREADABLE)


@dataclass
class Batch:
    """Records of one partition, in the order of their offsets."""

    parts: list[Columns] = field(default_factory=list[Columns])
    """As they were consumed, few of them."""
    pieces: list[Decoded] = field(default_factory=list["Decoded"])
    """What is decoded already, from its first value on."""
    begun: int = 0
    """So many of its parts are in these pieces."""

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def extend(self, messages: Sequence[Message]) -> int:
        """Take messages of this partition, of which there is one at least; the bytes of their keys and values."""
        more = columns_of(messages)
        self.add(more)
        return more.bytes

    def add(self, more: Columns) -> None:
        """Take these; together with those before them where these are no fewer: a trickle makes few parts, too."""
        while len(self.parts) > self.begun and len(self.parts[-1]) <= len(more):
            more = joined([self.parts.pop(), more])
        self.parts.append(more)

    @property
    def ends(self) -> tuple[int, int] | None:
        """Its first and its last offset."""
        return (int(self.parts[0].offsets[0]), int(self.parts[-1].offsets[-1])) if self.parts else None


def by_place(messages: Sequence[Message]) -> dict[Place, list[Message]]:
    """Messages by topic and partition; within one they stay in order."""
    found: dict[Place, list[Message]] = {}
    if not messages:
        return found
    kind: Any = type(messages[0])
    topic: Callable[[Any], str] = kind.topic
    partitions = numbers(map(kind.partition, messages), len(messages))
    changes = partitions[1:] != partitions[:-1]
    if len(set(map(topic, messages))) > 1:
        topics = list(map(topic, messages))
        changes |= np.fromiter(map(ne, topics[1:], topics[:-1]), dtype=np.bool_, count=len(topics) - 1)
    # Kafka gives thousands of one partition that follow each other.
    ends: list[int] = [*(np.flatnonzero(changes) + 1).tolist(), len(messages)]
    for start, end in pairwise([0, *ends]):
        found.setdefault((topic(messages[start]), int(partitions[start])), []).extend(messages[start:end])
    return found
