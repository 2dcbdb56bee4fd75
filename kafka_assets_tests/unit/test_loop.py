"""One member's turns: what becomes of its batches and leases, whatever the group does meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.broker.topic_ids import TopicIds
from kafka_assets.errors import BrokerUnavailable, LeaseHeld, LedgerBusy, SliceFailed, TopicMissing
from kafka_assets.live import loop as loops
from kafka_assets.live import taking
from kafka_assets.live.backoff import Backoff
from kafka_assets.live.limits import Limits
from kafka_assets_tests.ledgers import committed_through
from kafka_assets_tests.lives import HOUR_MS, Live, end_leases, landed, meet, owners, whole
from kafka_assets_tests.looping import ORDERS, OTHER, Member
from kafka_assets_tests.ticking import Broker


@pytest.fixture
def member(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Member]]:
    monkeypatch.setattr(loops, "_FULL", 0.01)
    monkeypatch.setattr(loops, "_POLL", 0.01)
    monkeypatch.setattr(TopicIds, "require", lambda self, ids: None)
    broker = Broker()
    monkeypatch.setattr(taking, "observe", broker.observe)
    with ExitStack() as stack:

        def make(
            limits: Limits | None = None, *, patience: float = 20.0, lease_ms: int = HOUR_MS, **ends: int
        ) -> Member:
            ends = ends or {"p0": 50}
            meet(engine, partitions=len(ends), end=max(ends.values()))
            broker.set("orders", *ends.values())
            return Member(engine, stack, limits=limits or Limits(delay=0), patience=patience, lease_ms=lease_ms, **ends)

        yield make


def test_a_batch_that_is_being_committed_is_finished_before_its_partition_goes(
    member: Callable[..., Member], engine: Engine
) -> None:
    one = member(p0=50, p1=20)
    one.in_flight(ORDERS, OTHER)
    threading.Timer(0.1, one.gate.set).start()
    one.revoke(ORDERS)
    assert landed(engine) == list(range(50)) and one.figures.commits == 1
    assert owners(engine) == [None, "live-1"], "the other one goes on"
    one.turns(lambda: len(landed(engine, 1)) == 20)
    assert whole(engine)


def test_what_was_only_gathered_goes_with_its_partition(member: Callable[..., Member], engine: Engine) -> None:
    one = member(Limits(records=30, delay=60))
    one.in_flight()
    one.turns(lambda: one.loop.gathering.records == 20)
    threading.Timer(0.1, one.gate.set).start()
    one.revoke(ORDERS)
    assert landed(engine) == list(range(30)) and one.loop.gathering.records == 0
    one.assign(ORDERS)
    one.turns(lambda: len(one.loop.gathering.held) == 1)
    assert one.loop.gathering.held[ORDERS].position == 30, "it is read again from the ledger"


def test_a_batch_that_fails_while_its_partition_goes_is_nobodys(member: Callable[..., Member], engine: Engine) -> None:
    one = member()
    one.fails.append(LedgerBusy("the database is away"))
    one.in_flight()
    one.gate.set()
    one.revoke(ORDERS)
    assert (landed(engine), owners(engine), one.figures.retries) == ([], [None], 1)
    one.assign(ORDERS)
    one.turns(lambda: len(landed(engine)) == 50)
    assert whole(engine)


def test_an_error_that_stays_is_raised_after_the_partition_was_given_back(
    member: Callable[..., Member], engine: Engine
) -> None:
    one = member()
    one.fails.append(SliceFailed("too many bad records"))
    one.in_flight()
    one.gate.set()
    with pytest.raises(SliceFailed):
        one.revoke(ORDERS)
    assert (landed(engine), owners(engine)) == ([], [None])


def test_the_group_goes_on_without_a_batch_that_takes_too_long(member: Callable[..., Member], engine: Engine) -> None:
    one = member(patience=0.1)
    one.in_flight()
    one.revoke(ORDERS)  # while the gate is shut
    assert owners(engine) == ["live-1"]
    one.gate.set()
    one.turns(lambda: one.loop.committing.flight is None)
    one.wait_for_the_worker()
    # Nobody had taken the partition yet: the batch counts, and the lease is given back after it.
    assert (landed(engine), owners(engine)) == (list(range(50)), [None])
    assert one.figures.lag == 0 and whole(engine)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True])
def test_a_batch_that_comes_after_the_next_owner_is_fenced(
    member: Callable[..., Member], engine: Engine, lost: bool
) -> None:
    one = member(patience=0.1)
    one.in_flight()
    one.revoke(ORDERS, lost=lost)
    end_leases(engine)
    heir = Live(engine, meet(engine, end=50), "heir").take()
    heir.land(0, 10)
    one.gate.set()
    one.turns(lambda: one.loop.committing.flight is None)
    one.wait_for_the_worker()
    assert (landed(engine), owners(engine), one.figures.retries) == (list(range(10)), ["heir"], 1)
    assert one.loop.beginning.waiting == {} and one.figures.restarts == 0, "it is not this member's any more"
    assert whole(engine)


def test_partitions_that_were_lost_are_forgotten_at_once(member: Callable[..., Member], engine: Engine) -> None:
    one = member(Limits(records=30, delay=60), patience=30)
    one.in_flight()
    one.turns(lambda: one.loop.gathering.records == 20)
    began = time.monotonic()
    one.revoke(ORDERS, lost=True)
    assert time.monotonic() - began < 30, "it has that patience only with what it may finish"
    assert one.loop.gathering.records == 0
    one.gate.set()
    one.wait_for_the_worker()
    assert (landed(engine), owners(engine)) == (list(range(30)), [None])


@pytest.mark.slow
def test_a_lease_that_was_taken_over_drops_what_was_gathered(
    member: Callable[..., Member], engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    one = member(Limits(records=1_000, delay=60), lease_ms=300)
    one.assign(ORDERS)
    one.turns(lambda: one.loop.gathering.records == 50)
    heir = Live(engine, meet(engine, end=50), "heir")
    while not heir.leases:  # the member's own thread extends its lease all the while
        end_leases(engine)
        with suppress(LeaseHeld):
            heir.take()
    with caplog.at_level(logging.WARNING):
        one.turns(lambda: one.figures.restarts)
    assert one.loop.gathering.records == 0 and "leases were taken over" in caplog.text
    one.turns(lambda: "held by the live consumer heir" in str(one.figures.waiting))
    heir.land(0, 40)
    heir.give_back()
    one.turns(lambda: one.loop.gathering.records == 10)
    assert one.loop.gathering.held[ORDERS].position == 40


@pytest.mark.slow
def test_two_batches_are_all_that_is_held_while_the_database_is_slow(
    member: Callable[..., Member], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = member(Limits(records=10, delay=0), p0=100)
    monkeypatch.setattr(loops, "_LONG_FULL", 0.0)
    one.in_flight()
    for _ in range(20):
        one.loop.turn(one.group)
    assert one.group.at[ORDERS] <= 20 and one.loop.gathering.records <= 10
    assert one.group.paused == {ORDERS}, "and the rest stays with the broker"
    one.gate.set()
    one.turns(lambda: len(landed(engine)) == 100)
    assert one.group.paused == set() and whole(engine)


def test_while_the_database_is_slow_for_a_moment_nothing_that_was_fetched_is_dropped(
    member: Callable[..., Member], engine: Engine
) -> None:
    one = member(Limits(records=10, delay=0), p0=100)
    one.in_flight()
    one.turns(lambda: one.loop.committing.full)
    before = one.group.at[ORDERS]
    for _ in range(5):
        one.loop.turn(one.group)
    assert one.group.at[ORDERS] == before + 5, "one with each turn, in which the group hears of it"
    assert one.group.paused == set()
    one.gate.set()
    one.turns(lambda: len(landed(engine)) == 100)
    assert whole(engine)


def test_what_waits_is_known_before_a_record_has_come(member: Callable[..., Member]) -> None:
    one = member(p0=50)
    one.group.pause([ORDERS])
    one.assign(ORDERS)
    one.turns(lambda: one.figures.partitions == 1)
    assert one.figures.lag == 50


def test_a_batch_that_the_database_has_is_counted_until_it_answers(member: Callable[..., Member]) -> None:
    one = member(p0=50)
    one.in_flight()
    assert one.figures.committing == 50
    one.gate.set()
    one.turns(lambda: one.figures.commits)
    assert one.figures.committing == 0


def test_a_drain_commits_what_was_gathered(member: Callable[..., Member], engine: Engine) -> None:
    one = member(Limits(records=1_000, delay=60))
    one.assign(ORDERS)
    one.turns(lambda: one.loop.gathering.records == 50)
    one.loop.drain(one.group)
    assert landed(engine) == list(range(50)) and one.figures.commits == 1


@pytest.mark.slow
def test_a_drain_that_runs_out_of_time_drops_what_was_gathered(member: Callable[..., Member], engine: Engine) -> None:
    one = member(Limits(records=30, delay=60), patience=0.2)
    one.in_flight()
    one.turns(lambda: one.loop.gathering.records == 20)
    began = time.monotonic()
    one.loop.drain(one.group)
    assert time.monotonic() - began >= 0.2 and landed(engine) == []
    one.revoke(ORDERS)
    one.gate.set()
    one.wait_for_the_worker()
    assert (landed(engine), owners(engine), committed_through(engine)) == (list(range(30)), [None], 30)
    assert whole(engine)


@pytest.mark.slow
def test_leases_that_cannot_be_begun_with_are_given_back(
    member: Callable[..., Member], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, asked = taking.ready, list[int]()

    def busy_once(*given: Any, **more: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            assert owners(engine) == ["live-1"]
            raise LedgerBusy("busy, once")
        if len(asked) == 2:
            assert one.loop.beginning.waiting[ORDERS].lease is None
        return ready(*given, **more)

    monkeypatch.setattr(taking, "ready", busy_once)
    one = member()
    one.assign(ORDERS)
    one.turns(lambda: asked and one.loop.beginning.under_way is None)
    assert owners(engine) == [None]
    one.turns(lambda: len(landed(engine)) == 50)


@pytest.mark.slow
def test_trouble_with_the_broker_is_said_when_it_changes(
    member: Callable[..., Member], caplog: pytest.LogCaptureFixture
) -> None:
    one = member()
    one.group.raises = [TopicMissing("the topic is gone")] * 20 + [BrokerUnavailable("the group is silent")] * 5
    with caplog.at_level(logging.WARNING, logger=loops.__name__):
        one.turns(lambda: one.figures.troubles)
        assert "the topic is gone" in one.figures.troubles["broker"]
        one.turns(lambda: not one.group.raises)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["the topic is gone", "the group is silent"]
    one.assign(ORDERS)
    one.turns(lambda: "broker" not in one.figures.troubles)


def test_an_outage_of_any_length_is_waited_out() -> None:
    backoff = Backoff()
    for _ in range(2_000):
        backoff.failed()
    assert 15 <= backoff.seconds() <= 30
    backoff.worked()
    assert backoff.seconds() <= 0.2
