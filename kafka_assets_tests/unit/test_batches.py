"""Batches: what may run together."""

from __future__ import annotations

from kafka_assets.assets.batches import in_batches, urgent
from kafka_assets.ledger.requests import Due
from kafka_assets.slices import SliceKey


def due(number: int, *, attempt: int = 0, size: int = 10) -> Due:
    return Due(number, SliceKey("t", 1, 0, number * 100, number * 100 + size), attempt, None)


def cut(wanted: list[Due], *, places: dict[str, int] | None = None, max_offsets: int = 10**9) -> list[list[int]]:
    known = places or {str(one.key): one.publication_id for one in wanted}
    return [[one.publication_id for one in batch] for batch in in_batches(wanted, known, max_offsets=max_offsets)]


def test_a_run_takes_at_most_a_hundred_keys() -> None:
    assert [len(batch) for batch in cut([due(number) for number in range(250)])] == [100, 100, 50]


def test_a_range_in_dagster_takes_what_lies_between_so_a_batch_is_contiguous() -> None:
    assert cut([due(1), due(2), due(5), due(6)]) == [[1, 2], [5, 6]]


def test_what_failed_runs_with_fewer_neighbours_and_then_alone() -> None:
    assert [len(batch) for batch in cut([due(number, attempt=1) for number in range(12)])] == [10, 2]
    assert cut([due(1), due(2, attempt=2), due(3)]) == [[1], [2], [3]]


def test_a_run_is_bounded_in_offsets_too() -> None:
    assert cut([due(1, size=60), due(2, size=60), due(3, size=30)], max_offsets=100) == [[1], [2, 3]]


def test_the_most_urgent_run_comes_first_wherever_its_keys_stand() -> None:
    wanted = [due(9), due(1), due(2)]
    assert cut(wanted, places={str(one.key): one.publication_id for one in wanted}) == [[9], [1, 2]]


def test_keys_are_added_for_the_runs_that_are_asked_for_and_no_more() -> None:
    wanted = [due(number, size=60) for number in range(9)]
    assert [one.publication_id for one in urgent(wanted, runs=2, max_offsets=120)] == [0, 1, 2, 3]


def test_a_slice_without_a_key_is_in_no_run() -> None:
    assert cut([due(1), due(2)], places={str(due(2).key): 0}) == [[2]]
