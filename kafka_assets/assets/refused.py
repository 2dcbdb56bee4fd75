"""The bytes of records whose rows the database refused: the same offsets, read again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from kafka_assets.broker.read import StoredRecord, bad_record
from kafka_assets.decode.messages import LATEST
from kafka_assets.errors import OffsetsExpired, RecordsChanged
from kafka_assets.records import BadRecord, Refused

APART = 5_000
"""Offsets that are read for nothing rather than asked for anew: a question costs about what so many records cost."""

Stored = Callable[[str, int, int, int], Iterable[StoredRecord]]
"""The records of a topic's partition from one offset to before another one."""


def fetch_refused(refused: Sequence[Refused], *, stored: Stored) -> list[BadRecord]:
    """The refused records as Kafka has them; raises `RecordsChanged` where one of them is not delivered any more."""
    places: dict[tuple[str, int], dict[int, str]] = {}
    for one in refused:
        places.setdefault((one.topic, one.partition), {})[one.offset] = one.reason
    found: list[BadRecord] = []
    try:
        for (topic, partition), reasons in sorted(places.items()):
            for first, last in _ranges(sorted(reasons)):
                records = stored(topic, partition, first, last + 1)
                found += [_bad(record, reasons[record.offset]) for record in records if record.offset in reasons]
    except OffsetsExpired:
        pass  # told below, with those that compaction has removed
    if len(found) < len(refused):
        raise RecordsChanged(
            f"the table refused {len(refused)} records, and {len(found)} were found when their bytes were fetched",
            why="the topic was compacted, or records expired, between the two reads",
            cure="nothing: the slice is asked for again",
        )
    return found


def _ranges(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """From which to which offset they are read, each range by itself; what lies between two is no more than `APART`."""
    first = offsets[0]
    for one, following in pairwise(offsets):
        if following - one > APART:
            yield first, one
            first = following
    yield first, offsets[-1]


def _bad(record: StoredRecord, reason: str) -> BadRecord:
    bad = bad_record(record, reason)
    return bad if 0 <= record.timestamp_ms <= LATEST else replace(bad, timestamp=None)
