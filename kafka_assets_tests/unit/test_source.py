"""Which task reads which offsets."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_assets.slices import Piece
from kafka_assets.spark.source import OnWorkers, _parts, read, with_values

NO_SPARK = cast("Any", None)


@given(st.integers(0, 2**62), st.integers(0, 10_000), st.integers(1, 500) | st.none())
def test_the_parts_of_a_piece_are_all_of_it_in_order_and_none_is_larger_than_asked_for(
    start: int, count: int, at_once: int | None
) -> None:
    parts = _parts(Piece("orders", 0, start, start + count, ()), at_once)
    assert [offset for first, end in parts for offset in range(first, end)] == list(range(start, start + count))
    sizes = [end - first for first, end in parts]
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == (1 if at_once is None else max(1, -(-count // at_once)))


@pytest.mark.parametrize(("at_once", "ends"), [(None, [10]), (10, [10]), (9, [5, 10]), (3, [2, 5, 7, 10])])
def test_a_piece_is_cut_into_parts_of_about_one_size(at_once: int | None, ends: list[int]) -> None:
    assert [end for _, end in _parts(Piece("orders", 0, 0, 10, ()), at_once)] == ends


def test_each_part_is_a_task_and_values_may_be_asked_for() -> None:
    pieces = [Piece("orders", 1, 5, 9, ()), Piece("orders", 0, 0, 2, ())]
    raw = read(NO_SPARK, {"group.id": "g"}, pieces, at_once=3)
    ranges = [("orders", 1, 5, 7), ("orders", 1, 7, 9), ("orders", 0, 0, 2)]
    assert raw.fetch == ({"group.id": "g"}, ranges, False)
    valued = with_values(raw)
    assert isinstance(valued, OnWorkers)
    assert valued.fetch == ({"group.id": "g"}, ranges, True)


def test_two_ranges_of_one_partition_are_no_read() -> None:
    pieces = [Piece("orders", 1, 5, 9, ()), Piece("orders", 1, 0, 2, ())]
    with pytest.raises(ValueError, match="two ranges"):
        read(NO_SPARK, {}, pieces)


def test_what_lets_workers_in_is_not_shown() -> None:
    assert "hunter2" not in repr(read(NO_SPARK, {"sasl.password": "hunter2"}, []))
