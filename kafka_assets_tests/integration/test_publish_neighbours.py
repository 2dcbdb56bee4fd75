"""Publishers of neighbouring slices on real servers: none waits for another while rows stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.ledger.publications import Publication
from kafka_assets.sinks import publish as publishing
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.slices import SliceKey
from kafka_assets_tests.integration.faults import both
from kafka_assets_tests.ledgers import Attempt, chunk_of, committed_through, plan, rows_of, scalar, target

LENIENT = BadPolicy("quarantine", 1.0)


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("higher_first", [False, True])
def test_a_slice_lands_while_its_neighbour_is_still_in_its_transaction(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, replay: bool, higher_first: bool
) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 9)])
    target(engine)
    if replay:
        for key in keys:
            Attempt(engine, [key]).claim().publish(chunk_of(key, bad=[key.start]), policy=LENIENT)
    slow, quick = reversed(keys) if higher_first else keys
    monkeypatch.setattr(publishing, "retried", lambda transaction: transaction())
    inserted, done = threading.Event(), threading.Event()

    def publish(key: SliceKey, between: Callable[[], object]) -> None:
        attempt = Attempt(engine, [key], replaces=True).claim(force=True)
        # Its quarantine is written before this: a bad record and rows are there, and not committed.
        chunks = (chunk_of(key, bad=[key.start], note="b"), chunk_of(key, offsets=[], read_count=0))
        attempt.publish(*chunks, policy=LENIENT, between=lambda: between() and None)

    waiting = threading.Thread(target=publish, args=(slow, lambda: inserted.set() or done.wait(20)))
    waiting.start()
    assert inserted.wait(20)
    publish(quick, lambda: None)
    done.set()
    waiting.join(20)
    assert {note for _, _, note in rows_of(engine)} == {"b"}
    assert scalar(engine, "select count(*) from kafka_quarantine") == 2
    assert committed_through(engine) == 9


@pytest.mark.parametrize("higher_first", [False, True])
def test_neighbours_that_commit_at_the_same_time_leave_committed_through_right(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, higher_first: bool
) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 9)])
    first, second = reversed(keys) if higher_first else keys
    target(engine)
    advance, locked = publishing._advance, threading.Event()

    def one_after_the_other(connection: Any, done: list[Publication]) -> None:
        if done[0].key == second:
            locked.wait(10)
        advance(connection, done)
        if done[0].key == first:
            locked.set()
            time.sleep(0.7)  # the other one waits for the row by now

    monkeypatch.setattr(publishing, "_advance", one_after_the_other)
    both(lambda: Attempt(engine, [first]).claim().publish(), lambda: Attempt(engine, [second]).claim().publish())
    assert committed_through(engine) == 9


def test_publishers_of_several_partitions_never_wait_for_each_other_in_a_circle(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The publications of the second pair were planned in the other order.
    one = [*plan(engine, slices=[(0, 5)]), *plan(engine, slices=[(0, 5)], partition=1)]
    two = [*plan(engine, slices=[(5, 9)], partition=1), *plan(engine, slices=[(5, 9)])]
    target(engine)
    advance, meet = publishing.advance, threading.Barrier(2)

    def slowly(*given: Any, **where: Any) -> None:
        advance(*given, **where)
        time.sleep(0.5)

    monkeypatch.setattr(publishing, "advance", slowly)
    monkeypatch.setattr(publishing, "retried", lambda transaction: transaction())

    def publish(keys: Any) -> Callable[[], object]:
        return lambda: Attempt(engine, keys).claim().publish(confirm=lambda seen: meet.wait(10) and None)

    both(publish(one), publish(two))
    assert (committed_through(engine), committed_through(engine, 1)) == (9, 9)
