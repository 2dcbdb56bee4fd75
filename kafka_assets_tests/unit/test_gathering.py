"""What a live consumer has gathered: counted, dropped where a partition goes, and cut where the batch ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from kafka_assets.ledger.leases import Lease
from kafka_assets.ledger.sources import Source
from kafka_assets.live.batch import Place
from kafka_assets.live.gathering import Gathering

ORDERS, SHOP = ("orders", 0), ("shop", 3)


@dataclass(frozen=True)
class Said:
    """A message, as far as it is asked here."""

    place: Place
    at: int
    size: int = 10

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"x" * (self.size - 3)

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def headers(self) -> None:
        return None


def said(place: Place, *offsets: int) -> list[Any]:
    return [Said(place, offset) for offset in offsets]


def lease(place: Place) -> Lease:
    return Lease(Source(1, "s", place[0], "id", 1), place[1], "owner")


@pytest.fixture
def gathering() -> Gathering:
    made = Gathering()
    made.begin(ORDERS, lease(ORDERS), 5)
    made.begin(SHOP, lease(SHOP), 0)
    return made


def test_a_batch_covers_the_holes_between_its_positions(gathering: Gathering) -> None:
    gathering.add([*said(ORDERS, 6, 8), *said(SHOP, 0), *said(ORDERS, 9)])
    assert (gathering.records, gathering.bytes) == (4, 40) and gathering.since is not None
    orders, shop = gathering.take({ORDERS: 12, SHOP: 1})
    assert (orders.start, orders.end, len(orders.batch), orders.torn) == (5, 12, 3, False)
    assert (shop.start, shop.end) == (0, 1) and str(orders.key) == "orders:0:5-12"
    assert (gathering.records, gathering.bytes, gathering.since) == (0, 0, None)
    gathering.add(said(ORDERS, 12))
    [again] = gathering.take({ORDERS: 13, SHOP: 1})
    assert (again.start, again.end) == (12, 13)


def test_a_position_that_moved_past_holes_alone_is_a_batch_without_records(gathering: Gathering) -> None:
    [part] = gathering.take({ORDERS: 7, SHOP: 0})
    assert (part.place, part.start, part.end, len(part.batch)) == (ORDERS, 5, 7, 0)
    assert gathering.take({ORDERS: 7, SHOP: 0}) == []


def test_of_a_partition_that_went_nothing_is_kept(gathering: Gathering) -> None:
    gathering.add([*said(ORDERS, 5, 6), *said(SHOP, 0)])
    gathering.drop([ORDERS, ("never", 1)])
    assert (gathering.records, gathering.bytes) == (1, 10)
    gathering.add(said(ORDERS, 7))  # consumed before the group took it away
    assert [part.place for part in gathering.take({ORDERS: 8, SHOP: 1})] == [SHOP]


def test_a_partition_that_is_begun_again_begins_where_it_is_told(gathering: Gathering) -> None:
    gathering.add(said(ORDERS, 5, 6))
    gathering.begin(ORDERS, lease(ORDERS), 100)
    assert gathering.records == 0
    gathering.add(said(ORDERS, 100))
    assert gathering.take({ORDERS: 101})[0].start == 100


@pytest.mark.parametrize(("offsets", "end"), [((4,), 6), ((5, 6), 6), ((6, 5), 7), ((5,), 5)])
def test_offsets_that_are_not_in_their_batch_are_seen(gathering: Gathering, offsets: tuple[int, ...], end: int) -> None:
    gathering.add(said(ORDERS, *offsets))
    assert gathering.take({ORDERS: end})[0].torn
