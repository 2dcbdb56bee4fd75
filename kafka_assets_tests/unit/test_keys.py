"""Where keys stand in Dagster: read as far back as is due, and no further."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import dagster as dg
import pytest

from kafka_assets.assets import requesting
from kafka_assets.assets.keys import PAGE, add_keys, places
from kafka_assets_tests.ledgers import scalar
from kafka_assets_tests.ticking import Desk, orders

STREAM = orders()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def counted(monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance) -> Callable[[], int]:
    """How many keys Dagster has given since it was asked the last time."""
    given = 0

    def counting(ask: Callable[..., Any], keys: Callable[[Any], Sequence[str]]) -> Callable[..., Any]:
        def asked(*values: Any, **named: Any) -> Any:
            nonlocal given
            answer = ask(*values, **named)
            given += len(keys(answer))
            return answer

        return asked

    def since() -> int:
        nonlocal given
        count, given = given, 0
        return count

    for name, keys in {
        "get_dynamic_partitions": lambda answer: answer,
        "get_paginated_dynamic_partitions": lambda answer: answer.results,
    }.items():
        monkeypatch.setattr(instance, name, counting(getattr(instance, name), keys))
    return since


def history(instance: dg.DagsterInstance, count: int, name: str = "old") -> list[str]:
    keys = [f"{name}:{number}" for number in range(count)]
    add_keys(instance, STREAM, keys)
    return keys


def test_a_tick_reads_no_key_of_history(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    history(desk.instance, 3000)
    read = counted(monkeypatch, desk.instance)
    desk.broker.set("orders", 10)
    one = desk.tick().requests
    assert read() == 0, "a range of one key takes no other"
    desk.land(*one)
    desk.broker.set("orders", 20, 10, 10)
    read()
    several = desk.tick().requests
    assert read() <= PAGE
    assert [len(desk.keys_of(request)) for request in (*one, *several)] == [1, 3]
    desk.land(*several)
    assert scalar(desk.engine, "select count(*) from orders") == 40


def test_what_stands_too_far_back_runs_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of which no run came, and others landed meanwhile for days."""
    monkeypatch.setattr(requesting, "KEYS_PER_TICK", 150)
    desk.broker.set("orders", 10, 10, 10)
    [lost] = desk.tick().requests
    assert len(desk.keys_of(lost)) == 3
    history(desk.instance, 300)
    desk.hold_no_longer()
    read = counted(monkeypatch, desk.instance)
    again = desk.tick().requests
    assert read() == 150
    assert [len(desk.keys_of(request)) for request in again] == [1] * min(3, STREAM.slices.runs)
    desk.land(*again)
    desk.settle()
    assert scalar(desk.engine, "select count(*) from orders") == 30


def test_places_are_read_back_to_the_oldest_key_that_is_asked_for(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = history(instance, 5 * PAGE)
    read = counted(monkeypatch, instance)
    for first, last in ((0, 1), (0, 499), (250, 251), (398, 401), (498, 499)):
        found = places(instance, STREAM, [keys[first], keys[last]])
        assert found[keys[last]] - found[keys[first]] == last - first
    assert read() <= 4 * 5 * PAGE + PAGE


def test_keys_stand_beside_each_other_for_a_tick_only_where_they_do_in_dagster(instance: dg.DagsterInstance) -> None:
    keys = history(instance, 3 * PAGE)
    found = places(instance, STREAM, keys, most=PAGE + 30)
    assert sorted(found) == sorted(keys)
    standing = {place: key for key, place in found.items()}
    beside = [(key, standing[place + 1]) for place, key in sorted(standing.items()) if place + 1 in standing]
    assert set(beside) <= set(pairwise(keys))
