"""Assets made of another one's slices on real servers: the shared suite, and who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import LedgerBusy, UpstreamChanged
from kafka_assets.ledger.derived import add_publications
from kafka_assets.sinks import publish as publishing
from kafka_assets.slices import SliceKey
from kafka_assets_tests.downstream_contract import (
    BELOW,
    DownstreamContract,
    below,
    below_target,
    books,
    landed,
    notes,
    source,
    through,
    upstream,
)
from kafka_assets_tests.integration.databases import held
from kafka_assets_tests.integration.faults import both
from kafka_assets_tests.ledgers import ASSET, Attempt, chunk_of, plan, rows_of, scalar


class TestDownstreamOnServers(DownstreamContract):
    """The engine is of each server."""


def planned(engine: Engine) -> list[SliceKey]:
    keys = plan(engine, slices=[(0, 5), (5, 9)])
    upstream(engine, *keys)
    add_publications(engine, asset=BELOW, stream=ASSET)
    below_target(engine)
    return keys


def test_a_replay_that_comes_after_the_recheck_waits_for_the_commit_below(engine: Engine) -> None:
    keys = planned(engine)
    checked, replayed = threading.Event(), threading.Event()
    order: list[str] = []

    def replay() -> None:
        assert checked.wait(20)
        upstream(engine, keys[0], note="b")
        order.append("replay")
        replayed.set()

    def pause() -> None:
        checked.set()
        # The lock is held: however long this takes, the replay does not come between.
        assert not replayed.wait(0.7)
        order.append("below")

    both(replay, lambda: below(engine, *keys, checked=pause))
    assert order == ["below", "replay"]
    assert notes(engine) == {"a"}
    assert [row[4] for row in books(engine)] == ["orders@1", "orders@1"]
    assert {note for _, offset, note in rows_of(engine) if offset < 5} == {"b"}


def test_a_replay_in_its_transaction_is_never_waited_for_and_fails_what_was_read_before_it(engine: Engine) -> None:
    keys = planned(engine)
    inside, asked = threading.Event(), threading.Event()
    tries: list[int] = []

    def replay() -> None:
        attempt = Attempt(engine, [keys[0]], replaces=True).claim(force=True)
        attempt.publish(chunk_of(keys[0], note="b"), between=lambda: inside.set() or (asked.wait(20) and None))

    def read_before() -> None:
        read = source(engine, *keys)
        assert inside.wait(20)

        def confirm() -> None:
            # The second try comes only because the first one did not wait for the replay's lock.
            tries.append(1)
            if len(tries) == 2:
                asked.set()

        with pytest.raises(UpstreamChanged, match="was replayed while its rows were being read"):
            below(engine, *keys, read=read, confirm=confirm)

    both(replay, read_before)
    assert len(tries) >= 2
    assert landed(engine) == []
    assert through(engine) == 0
    below(engine, *keys)
    assert notes(engine) == {"a", "b"}


def test_a_replay_that_is_rolled_back_costs_the_asset_below_a_retry_and_nothing_else(engine: Engine) -> None:
    keys = planned(engine)
    inside, asked = threading.Event(), threading.Event()
    tries: list[int] = []

    def replay() -> None:
        attempt = Attempt(engine, [keys[0]], replaces=True).claim(force=True)

        def spoilt() -> None:
            inside.set()
            asked.wait(20)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            attempt.publish(chunk_of(keys[0], note="b"), between=spoilt)

    def land() -> None:
        assert inside.wait(20)
        below(engine, *keys, confirm=lambda: tries.append(1) or (len(tries) == 2 and asked.set()))

    both(replay, land)
    assert len(tries) >= 2
    assert notes(engine) == {"a"}
    assert through(engine) == 9


def test_somebody_who_holds_the_upstream_for_ever_is_an_error_that_can_be_tried_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    [key, _] = planned(engine)
    monkeypatch.setattr(publishing, "retried", lambda transaction: transaction())
    lock = f"select id from kafka_publication where asset = '{ASSET}' and start_offset = 0 for update"
    with held(engine, lock), pytest.raises(LedgerBusy):
        below(engine, key)
    assert landed(engine) == []
    below(engine, key)
    assert landed(engine) == [0, 2, 4]


def test_many_replays_and_runs_below_end_in_one_order_each(engine: Engine) -> None:
    keys = planned(engine)
    refused: list[str] = []

    def replays() -> None:
        for number in range(4):
            upstream(engine, *(keys if number % 2 else reversed(keys)), note=f"r{number}")

    def lands() -> None:
        for _ in range(4):
            try:
                below(engine, *keys)
            except UpstreamChanged as changed:
                refused.append(changed.what)

    both(replays, lands)
    below(engine, *keys)
    assert notes(engine) == {"r3"}
    assert landed(engine) == [0, 2, 4, 6, 8]
    made_of = {row[4] for row in books(engine)}
    stands = scalar(engine, "select max(committed_attempt) from kafka_publication where asset = 'orders'")
    assert made_of == {f"orders@{stands}"}


@pytest.mark.parametrize("given", [0, 2])
def test_two_that_add_publications_at_the_same_moment_add_each_once(engine: Engine, given: int) -> None:
    plan(engine, slices=[(5 * number, 5 * number + 5) for number in range(20)])
    if given:
        add_publications(engine, asset=BELOW, stream=ASSET, limit=given)
    meet = threading.Barrier(2)
    added: list[int] = []

    def add() -> None:
        meet.wait(10)
        added.append(add_publications(engine, asset=BELOW, stream=ASSET))

    both(add, add)
    assert sum(added) == 20 - given
    assert scalar(engine, "select count(*) from kafka_publication where asset = 'below'") == 20
    assert scalar(engine, "select count(*) from kafka_committed where asset = 'below'") == 1


def test_publications_are_added_beside_a_planner_and_a_publisher(engine: Engine) -> None:
    keys = planned(engine)
    plan(engine, slices=[(9, 12)])
    inside, added = threading.Event(), threading.Event()

    def wait() -> Callable[[], object] | None:
        inside.set()
        assert added.wait(20)
        return None

    def add() -> None:
        assert inside.wait(20)
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 1
        plan(engine, slices=[(12, 15)])
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 1
        added.set()

    # Neither waits for the transaction that lands rows below, nor does that one fail by them.
    both(lambda: below(engine, *keys, checked=wait), add)
    assert through(engine) == 9
