"""The stopwatch of a run: each moment in one step, and a transaction that is tried again counts once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from kafka_assets.ledger import retries
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets.sinks.steps import STEPS, Steps
from kafka_assets_tests.ledgers import Attempt, chunk_of, plan, target

DOCS = Path(__file__).parents[2] / "docs" / "assets.md"


class Clock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def steps(clock: Clock) -> Steps:
    return Steps(clock)


def test_the_time_until_the_next_step_is_the_former_s(steps: Steps, clock: Clock) -> None:
    clock.at += 50
    steps.now("claim")
    clock.at += 1
    steps.now("insert")
    clock.at += 2
    steps.now("claim")
    clock.at += 4
    assert steps.now(None) == "claim"
    clock.at += 100
    assert steps.seconds() == {"claim": 5, "insert": 2}


def test_waiting_for_chunks_is_no_part_of_the_step_that_asks_for_them(
    steps: Steps, clock: Clock, engine: Engine
) -> None:
    keys = plan(engine, slices=[(0, 1), (1, 2), (2, 3)])

    def slow() -> Iterator[object]:
        for key in keys:
            clock.at += 10
            yield chunk_of(key)

    steps.now("insert")
    for _ in steps.waiting(slow()):  # type: ignore[arg-type]
        clock.at += 1
    assert steps.seconds() == {"first_chunk": 10, "read": 20, "insert": 3}


def test_a_chunk_that_never_comes_gives_the_time_back_to_who_asked(steps: Steps, clock: Clock) -> None:
    def broken() -> Iterator[object]:
        clock.at += 5
        raise ConnectionError
        yield

    steps.now("insert")
    with pytest.raises(ConnectionError):
        list(steps.waiting(broken()))  # type: ignore[arg-type]
    clock.at += 1
    assert list(steps.seconds().items()) == [("first_chunk", 5), ("insert", 1)]  # in the order of a run


def test_what_is_tried_again_counts_once(steps: Steps, clock: Clock) -> None:
    steps.now("read")
    clock.at += 1
    steps.mark()
    for took in (30, 3):
        steps.back()
        steps.now("lock")
        clock.at += took
    assert steps.seconds() == {"read": 1, "lock": 3}


def test_a_publication_says_where_its_time_went(engine: Engine) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 9)])
    first, second = Attempt(engine, keys).claim().publish()
    assert set(first.seconds) == {"first_chunk", "read", "offsets", "lock", "insert", "commit"}
    assert first.seconds == second.seconds


def test_a_run_that_waited_for_the_file_counts_its_last_try(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, table, clock = plan(engine, slices=[(0, 5)]), target(engine), Clock()
    attempt = Attempt(make_engine(engine.url, lock_seconds=0), keys, steps=Steps(clock)).claim()

    def slept(seconds: float) -> None:
        clock.at += 1000  # inside the step that gave up
        other.rollback()

    monkeypatch.setattr(retries.time, "sleep", slept)
    with write(engine) as other:
        [published] = attempt.publish(table=table)
    assert set(published.seconds.values()) == {0.0}
    assert {"lock", "insert", "commit"} <= published.seconds.keys()


def test_the_documentation_has_every_step_in_its_order() -> None:
    assert re.findall(r"^\| `seconds_(\w+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE) == list(STEPS)
