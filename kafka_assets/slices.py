"""Slices and their names: the offsets ``[start, end)`` of one partition of one topic's incarnation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kafka_assets.errors import KeysUnknown

_KEY = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d+):(?P<start>\d+)-(?P<end>\d+)(?::(?P<incarnation>\d+))?"
)


@dataclass(frozen=True, order=True)
class SliceKey:
    """What a Dagster key says: ``orders:3:120000-130000``, and ``:2`` from a topic's second incarnation on."""

    topic: str
    incarnation: int
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        suffix = f":{self.incarnation}" if self.incarnation > 1 else ""
        return f"{self.topic}:{self.partition}:{self.start}-{self.end}{suffix}"

    @property
    def offsets(self) -> int:
        return self.end - self.start

    @classmethod
    def parse(cls, key: str) -> SliceKey:
        match = _KEY.fullmatch(key)
        incarnation = int(match["incarnation"] or 1) if match else 0
        if match is None or int(match["end"]) <= int(match["start"]) or incarnation < 1:
            raise KeysUnknown(
                f"{key!r} is not the key of a slice",
                why="a key reads topic:partition:start-end, for example orders:3:120000-130000",
                cure="materialize keys that the sensor added",
            )
        return cls(
            topic=match["topic"],
            incarnation=incarnation,
            partition=int(match["partition"]),
            start=int(match["start"]),
            end=int(match["end"]),
        )


@dataclass(frozen=True)
class Piece:
    """Contiguous offsets of one partition that one read fetches; the slices in it stand in order."""

    topic: str
    partition: int
    start: int
    end: int
    slices: tuple[SliceKey, ...]


def readable(keys: Sequence[SliceKey]) -> str:
    """Some slices in few words: the first, and how many more."""
    return str(keys[0]) + (f" (+{len(keys) - 1})" if len(keys) > 1 else "") if keys else ""


def digest(keys: Iterable[str]) -> str:
    """A fingerprint of a set of keys: a run verifies it, since a Dagster range takes what lies between its ends."""
    return hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()[:16]


def pieces(
    slices: Sequence[SliceKey],
    *,
    max_offsets: int,
    max_slices: int,
    read_from: Mapping[SliceKey, int] = MappingProxyType({}),
) -> list[list[Piece]]:
    """Cut slices into chunks of bounded size, each a list of pieces with at most one range per partition.

    A slice is read from its start, or from where `read_from` says that its records begin now.

    What a query's tasks leave is known by its partition, so two disjoint ranges of a partition
    never share a chunk; nor do two topics, whose rows carry the same partitions and offsets. A slice
    larger than `max_offsets` is cut; small ones share a chunk.
    """
    chunks: list[list[Piece]] = []
    current: dict[tuple[str, int], Piece] = {}
    room, slots = max_offsets, max_slices

    def close() -> None:
        nonlocal current, room, slots
        if current:
            chunks.append(list(current.values()))
        current, room, slots = {}, max_offsets, max_slices

    for part in sorted(slices):
        start = read_from.get(part, part.start)
        while start < part.end:
            where = (part.topic, part.partition)
            before = current.get(where)
            stranger = next(iter(current), where)[0] != part.topic
            if room == 0 or slots == 0 or stranger or (before is not None and before.end != start):
                close()
                before = None
            end = min(part.end, start + room)
            joined = () if before is None else before.slices
            current[where] = Piece(
                topic=part.topic,
                partition=part.partition,
                start=start if before is None else before.start,
                end=end,
                slices=(*joined, part),
            )
            room -= end - start
            slots -= 1
            start = end
    close()
    return chunks
