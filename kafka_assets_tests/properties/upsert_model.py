"""What upsert promises, in plain Python: of each key the last record stands, whoever committed it and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kafka_assets_tests.properties.append_model import Delivered, Model, Place, Result, Slice

EVERYWHERE = 99
"""The key that all partitions have."""


@dataclass(frozen=True)
class Record:
    slice: Slice
    offset: int
    key: int
    rank: int
    deletes: bool

    @property
    def place(self) -> Place:
        return self.slice.incarnation, self.slice.partition, self.offset


@dataclass(frozen=True)
class Last:
    """The last word on a key."""

    record: Record
    note: str


@dataclass
class UpsertModel(Model):
    by_value: bool = False
    """Whether a value of the record orders, and not its offset."""
    keys: dict[int, Last] = field(default_factory=dict[int, Last])

    def records(self, written: Sequence[tuple[Slice, Delivered]]) -> Iterator[Record]:
        for one, found in written:
            for offset in sorted(found.landed | found.deleting):
                moving = offset in found.moving or self.by_value
                key = offset % 3 if self.by_value else EVERYWHERE if moving else 10 * one.partition + offset % 3
                yield Record(one, offset, key, rank=offset * 7 % 5 - 2, deletes=offset in found.deleting)

    def version(self, record: Record) -> tuple[int, ...]:
        incarnation, partition, offset = record.place
        return (incarnation, record.rank, partition, offset) if self.by_value else (incarnation, offset)

    def moved(self, written: Sequence[tuple[Slice, Delivered]]) -> bool:
        """Whether a key of these is met in two partitions of one topic, whose offsets do not compare."""
        records = list(self.records(written))
        met = {(one.key, one.place[:2]) for one in records}
        met |= {(one.key, self.keys[one.key].record.place[:2]) for one in records if one.key in self.keys}
        topics = {(key, incarnation) for key, (incarnation, _) in met}
        return not self.by_value and len(topics) < len(met)

    def commit(self, run: str, written: Sequence[tuple[Slice, Delivered]]) -> None:
        records = sorted(self.records(written), key=lambda one: (one.key, self.version(one)))
        won: list[Record] = []
        for key, of_key in groupby(records, key=lambda one: one.key):
            last = list(of_key)[-1]
            before = self.keys.get(key)
            if before is None or self.version(before.record) <= self.version(last):
                won.append(last)
        for one, found in written:
            mine = [record for record in won if record.slice is one]
            deleted = sum(record.deletes for record in mine)
            lost = len(found.landed) + len(found.deleting) - len(mine)
            one.state = "committed"
            one.result = Result(one.attempt, run, found, len(mine) - deleted, superseded=lost, tombstoned=deleted)
        self.keys |= {one.key: Last(one, f"{run}#{one.slice.attempt}") for one in won}

    def rows(self) -> set[tuple[int, int, int, str]]:
        return {(*last.record.place, last.note) for last in self.keys.values() if not last.record.deletes}
