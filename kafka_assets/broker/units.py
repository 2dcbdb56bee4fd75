"""A unit: records that are done together, and the offsets that are done with them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Literal

from kafka_assets.broker.read import StoredRecord

Each = Literal["record", "batch", "partition"]
EACH: tuple[Each, ...] = ("record", "batch", "partition")

Where = tuple[str, int]


def place_of(record: StoredRecord) -> Where:
    return record.topic, record.partition


class Unit:
    """Records on their way through the caller's hands: still to be handed over, in hand, or done.

    Of each partition the done ones are a beginning of the unit's, so one offset says what is done.
    """

    def __init__(self, records: Iterable[StoredRecord]) -> None:
        self.todo = deque(records)
        self.in_hand: list[StoredRecord] = []
        self.done: list[StoredRecord] = []

    def take(self, count: int = 1) -> Sequence[StoredRecord]:
        """Hand over the next ones; asking for them says that those before are done."""
        self.settle()
        self.in_hand = [self.todo.popleft() for _ in range(count)]
        return self.in_hand

    def settle(self) -> None:
        """What is in hand is done."""
        self.done += self.in_hand
        self.in_hand = []

    def drop(self, places: Collection[Where]) -> None:
        """Forget what was not handed over of partitions that are somebody else's now."""
        self.todo = deque(without(self.todo, places))

    @property
    def begins(self) -> dict[Where, int]:
        """The first offset of each partition in it."""
        return _first([*self.done, *self.in_hand, *self.todo])

    @property
    def open(self) -> dict[Where, int]:
        """The first offset of each partition that is not done."""
        return _first([*self.in_hand, *self.todo])

    @property
    def ends(self) -> dict[Where, int]:
        """The next offset of each partition, after what is done."""
        return {place_of(one): one.offset + 1 for one in self.done}


def without(records: Iterable[StoredRecord], places: Collection[Where]) -> list[StoredRecord]:
    return [record for record in records if place_of(record) not in places]


def cut(records: Sequence[StoredRecord], each: Each) -> list[Unit]:
    """The units of one fetch, in order."""
    if each == "record":
        return [Unit([record]) for record in records]
    if each == "partition":
        return [Unit(part) for _, part in groupby(sorted(records, key=place_of), key=place_of)]
    return [Unit(records)] if records else []


def _first(records: Sequence[StoredRecord]) -> dict[Where, int]:
    return {place_of(one): one.offset for one in reversed(records)}
