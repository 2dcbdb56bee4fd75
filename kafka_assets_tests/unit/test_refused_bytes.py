"""The bytes of records that a table refuses: which offsets are read for them, and what is said where one is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_assets.assets.refused import APART, fetch_refused
from kafka_assets.broker.headers import UNREADABLE
from kafka_assets.broker.read import StoredRecord
from kafka_assets.decode.messages import LATEST
from kafka_assets.errors import OffsetsExpired, RecordsChanged
from kafka_assets.records import BadRecord, Refused


def record(
    partition: int, offset: int, *, at: int = 5, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> StoredRecord:
    return StoredRecord("orders", partition, offset, b"k", b"v%d" % offset, at, headers)


class Log:
    """All offsets of each partition, and which of them were asked for."""

    def __init__(self, *gone: int) -> None:
        self.gone = gone
        self.asked: list[tuple[int, int, int]] = []

    def stored(self, topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        assert topic == "orders"
        self.asked.append((partition, start, end))
        return (record(partition, offset) for offset in range(start, end) if offset not in self.gone)


def refused(*places: tuple[int, int]) -> list[Refused]:
    return [Refused(partition, offset, f"no {offset}", topic="orders") for partition, offset in places]


def test_each_record_comes_with_its_own_reason_whatever_stands_between() -> None:
    log = Log()
    found = fetch_refused(refused((1, 7), (0, 3), (1, 5)), stored=log.stored)
    assert found == [
        BadRecord(0, 3, "no 3", b"k", b"v3", (), 5),
        BadRecord(1, 5, "no 5", b"k", b"v5", (), 5),
        BadRecord(1, 7, "no 7", b"k", b"v7", (), 5),
    ]
    assert log.asked == [(0, 3, 4), (1, 5, 8)]


def test_what_lies_far_apart_is_not_read_to_come_from_one_to_the_other() -> None:
    log = Log()
    far = 7 + APART + 1
    found = fetch_refused(refused((0, 0), (0, 7), (0, far)), stored=log.stored)
    assert [one.offset for one in found] == [0, 7, far]
    assert log.asked == [(0, 0, 8), (0, far, far + 1)]


def test_of_records_of_which_one_is_gone_none_is_told() -> None:
    with pytest.raises(RecordsChanged, match="refused 2 records, and 1 were found"):
        fetch_refused(refused((0, 3), (0, 4)), stored=Log(4).stored)

    def expired(topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        raise OffsetsExpired("offset 3 is not there")

    with pytest.raises(RecordsChanged, match="refused 1 records, and 0 were found"):
        fetch_refused(refused((0, 3)), stored=expired)


@pytest.mark.parametrize(("at", "kept"), [(0, 0), (LATEST, LATEST), (LATEST + 1, None), (-1, None)])
def test_a_time_that_no_column_holds_is_none(at: int, kept: int | None) -> None:
    [found] = fetch_refused(refused((0, 3)), stored=lambda *_: [record(0, 3, at=at)])
    assert found.timestamp == kept


def test_of_headers_that_cannot_be_told_it_is_said_that_they_are_left_out() -> None:
    [found] = fetch_refused(refused((0, 3)), stored=lambda *_: [record(0, 3, headers=UNREADABLE)])
    assert found.headers == ()
    assert found.reason.startswith("no 3 · its headers are left out")
