"""Records as they came from Kafka, each of their parts side by side in Arrow and numpy: what the decoder reads.

Messages are taken apart as soon as they are consumed: kept until their batch is full, each costs three times as much,
since nothing of it is in the processor's cache any more. Of each one its own objects live no longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from operator import ne
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from kafka_assets.broker.headers import LEFT_OUT, UNREADABLE, headers_of, told
from kafka_assets.live.fingerprints import fingerprint
from kafka_assets.records import LATEST, BadRecord

if TYPE_CHECKING:
    from kafka_assets.decode.contract import Decoded, Reason

Headers = Sequence[tuple[str, bytes | None]]
Place = tuple[str, int]
"""A topic's name, and a partition."""
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


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
class Columns:
    """Records of one partition, in the order of their offsets."""

    partition: int
    offsets: Numbers
    values: Any
    """A binary array, and so are the keys."""
    keys: Any
    stamps: Numbers
    """As confluent_kafka has them, in pairs: the type, which is one more than Spark's, and milliseconds since 1970.

    Type 0 says that there is none. So does a negative number, and one that no column holds.
    """
    headers: Sequence[Headers | None] | None
    """Or UNREADABLE. None where no record has any."""

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def bytes(self) -> int:
        """Those of keys and values."""
        return _size(self.values) + _size(self.keys)

    @property
    def times(self) -> tuple[Numbers, Flags]:
        """Milliseconds since 1970, and which of them are a time."""
        return _times(self.stamps)

    @cached_property
    def fingerprint(self) -> int:
        """What the same records are known by when they are read again."""
        return fingerprint(self.partition, self.offsets, self.keys, self.values)

    def bad(self, at: int, why: Reason) -> BadRecord:
        """The record at this place, with its bytes."""
        headers = None if self.headers is None else self.headers[at]
        times, timed = _times(self.stamps[at : at + 1])
        return BadRecord(
            partition=self.partition,
            offset=int(self.offsets[at]),
            reason=f"{why.words} · {LEFT_OUT}" if headers is UNREADABLE else why.words,
            key=self.keys[at].as_py(),
            value=self.values[at].as_py(),
            headers=told(headers),
            timestamp=int(times[0]) if timed[0] else None,
            code=why.code,
            field=why.field or None,
        )


def columns_of(messages: Sequence[Message]) -> Columns:
    """Messages of one partition, of which there is one at least."""
    # One pass over all for each part, by what the messages' class gives for it, takes a fifth of asking each by name.
    kind: Any = type(messages[0])
    headers = headers_of(messages)
    return Columns(
        partition=kind.partition(messages[0]),
        offsets=_numbers(map(kind.offset, messages), len(messages)),
        values=pa.array(list(map(kind.value, messages)), pa.binary()),
        keys=pa.array(list(map(kind.key, messages)), pa.binary()),
        stamps=_numbers(chain.from_iterable(map(kind.timestamp, messages)), 2 * len(messages)).reshape(-1, 2),
        headers=None if headers.count(None) == len(headers) else headers,
    )


def joined(parts: Sequence[Columns]) -> Columns:
    """The records of these parts of one partition, of which there is one at least, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Columns(
        partition=parts[0].partition,
        offsets=np.concatenate([one.offsets for one in parts]),
        values=pa.concat_arrays([one.values for one in parts]),
        keys=pa.concat_arrays([one.keys for one in parts]),
        stamps=np.concatenate([one.stamps for one in parts]),
        headers=None
        if all(one.headers is None for one in parts)
        else [*chain.from_iterable([None] * len(one) if one.headers is None else one.headers for one in parts)],
    )


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
    partitions = _numbers(map(kind.partition, messages), len(messages))
    changes = partitions[1:] != partitions[:-1]
    if len(set(map(topic, messages))) > 1:
        topics = list(map(topic, messages))
        changes |= np.fromiter(map(ne, topics[1:], topics[:-1]), dtype=np.bool_, count=len(topics) - 1)
    # Kafka gives thousands of one partition that follow each other.
    ends: list[int] = [*(np.flatnonzero(changes) + 1).tolist(), len(messages)]
    for start, end in pairwise([0, *ends]):
        found.setdefault((topic(messages[start]), int(partitions[start])), []).extend(messages[start:end])
    return found


def _times(stamps: Numbers) -> tuple[Numbers, Flags]:
    kinds, at = stamps[:, 0], stamps[:, 1]
    return at, (kinds != 0) & (at >= 0) & (at <= LATEST)


def _numbers(numbers: Any, count: int) -> Numbers:
    return np.fromiter(numbers, dtype=np.int64, count=count)


def _size(column: Any) -> int:
    _, places, _ = column.buffers()
    ends = np.frombuffer(places, dtype=np.int32)
    return int(ends[column.offset + len(column)]) - int(ends[column.offset])
