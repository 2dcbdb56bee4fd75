"""How a record finds its partition: by its key's hash as in the Java client, or by one of the other ways."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from kafka_assets.errors import RecordRefused, UsageError

STICKY_BYTES = 16_384
"""So much goes to one partition before another is chosen: Java's own batch.size."""


class Partitioner(Protocol):
    """Says where a record goes; None leaves it to librdkafka, which hashes keys as the Java client does.

    It sees the bytes of key and value, and is called for records that name no partition themselves,
    one at a time, even where several threads send.
    """

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: int, /) -> int | None: ...


def murmur2(data: bytes) -> int:
    """The 32-bit hash of the Java client (org.apache.kafka.common.utils.Utils.murmur2), as an unsigned number."""
    multiplier, mask, length = 0x5BD1E995, 0xFFFFFFFF, len(data)
    hashed = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        hashed = hashed * multiplier & mask ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Where the Java client, librdkafka's murmur2_random and this package put a key; an empty key is hashed too."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def by_key(topic: str, key: bytes | None, value: bytes | None, partitions: int, /) -> int | None:
    """Java's default, done by librdkafka: a key's hash; without a key, one partition for a while, then another."""
    return None


class ByKey:
    """The same as `by_key`, decided here, where the sender must know the partition before the record goes."""

    def __init__(self) -> None:
        self._keyless = Sticky()

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: int, /) -> int:
        return self._keyless(topic, key, value, partitions) if key is None else partition_of_key(key, partitions)


class RoundRobin:
    """Each partition of a topic in its turn, whatever the key."""

    def __init__(self) -> None:
        self._turns: Counter[str] = Counter()

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: int, /) -> int:
        turn = self._turns[topic]
        self._turns[topic] = turn + 1
        return turn % partitions


class Random:
    """Any partition, each as likely as another, whatever the key."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: int, /) -> int:
        return self._random.randrange(partitions)


class Sticky:
    """One partition until it was given `size` bytes, then another at random: full batches, whatever the key."""

    def __init__(self, size: int = STICKY_BYTES, *, seed: int | None = None) -> None:
        self._size = size
        self._random = random.Random(seed)
        self._places: dict[str, tuple[int, int]] = {}

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: int, /) -> int:
        weight = len(key or b"") + len(value or b"")
        place, given = self._places.get(topic) or (self._random.randrange(partitions), 0)
        if given >= self._size:
            # Among the others, so that a full partition is really left.
            others = [number for number in range(partitions) if number != place] or [place]
            place, given = self._random.choice(others), 0
        self._places[topic] = (place, given + weight)
        return place


def explicit(topic: str, key: bytes | None, value: bytes | None, partitions: int, /) -> int | None:
    """Only records that name their partition: one that does not is refused."""
    raise RecordRefused(
        f"a record for the topic {topic!r} names no partition",
        why="the partitioner is `explicit`: it guesses nothing",
        cure="give the record its partition, or choose another partitioner",
    )


PARTITIONERS: dict[str, Callable[[], Partitioner]] = {
    "key": lambda: by_key,
    "round-robin": RoundRobin,
    "random": Random,
    "sticky": Sticky,
    "explicit": lambda: explicit,
}


def partitioner_named(name: str) -> Partitioner:
    """A fresh partitioner of this name: those that count begin anew with each producer."""
    if name not in PARTITIONERS:
        raise UsageError(f"there is no partitioner {name!r}", cure=f"choose among {', '.join(PARTITIONERS)}")
    return PARTITIONERS[name]()
