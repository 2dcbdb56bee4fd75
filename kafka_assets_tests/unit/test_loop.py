"""One member's turns without a broker: what becomes of its batches and leases, whatever the group does meanwhile.

Ledger, leases and transactions are real; what Kafka would say is given, and a gate holds batches up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.rebalances import Rebalances
from kafka_assets.broker.topic_ids import TopicIds
from kafka_assets.errors import BrokerUnavailable, LeaseHeld, LedgerBusy, SliceFailed, TopicMissing
from kafka_assets.forms import ArrowForm
from kafka_assets.live import loop as loops
from kafka_assets.live import taking
from kafka_assets.live.backoff import Backoff
from kafka_assets.live.batch import Place
from kafka_assets.live.figures import Figures
from kafka_assets.live.keeping import Keeper
from kafka_assets.live.landing import Landing
from kafka_assets.live.limits import Limits
from kafka_assets.live.loop import Loop
from kafka_assets.live.taking import Taking
from kafka_assets_tests.ledgers import committed_through
from kafka_assets_tests.lives import HOUR_MS, Live, end_leases, landed, meet, owners, whole
from kafka_assets_tests.ticking import Broker, orders

pytestmark = pytest.mark.usefixtures("unsynced")

ORDERS, OTHER = ("orders", 0), ("orders", 1)


class Record:
    """A message, as far as a loop asks it."""

    def __init__(self, place: Place, offset: int) -> None:
        self._place, self._offset = place, offset

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b'{"id": %d, "note": "a"}' % self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def headers(self) -> None:
        return None


class Group:
    """A subscription as a loop sees it: partitions that end somewhere, read from where they are started."""

    def __init__(self, **ends: int) -> None:
        self.rebalances = Rebalances()
        self.end = {("orders", int(name[1:])): end for name, end in ends.items()}
        self.assigned: set[Place] = set()
        self.at: dict[Place, int] = {}
        self.paused: set[Place] = set()
        self.raises: list[Exception] = []

    def consume(self, max_records: int, timeout: float) -> list[Any]:
        if self.raises:
            raise self.raises.pop(0)
        found: list[Any] = []
        for place in [one for one in self.at if one not in self.paused]:
            until = min(self.end[place], self.at[place] + max_records - len(found))
            found += [Record(place, offset) for offset in range(self.at[place], until)]
            self.at[place] = until
        return found

    def start(self, place: Place, offset: int) -> None:
        self.at[place] = offset

    def park(self, place: Place) -> None:
        self.at.pop(place, None)

    def pause(self, places: Iterable[Place]) -> None:
        self.paused.update(places)

    def resume(self, places: Iterable[Place]) -> None:
        self.paused.difference_update(places)

    def positions(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self.at[place] for place in places if place in self.at}

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self.end[place] for place in places}


class Member:
    """A loop on the ledger of `orders`; while its gate is closed, the worker stands before a batch's transaction."""

    def __init__(
        self, engine: Engine, stack: ExitStack, *, limits: Limits, patience: float, lease_ms: int, **ends: int
    ) -> None:
        self.engine, self.group = engine, Group(**ends)
        connection, stream = Connection("nowhere:1"), orders()
        landing = Landing(engine, connection, ArrowForm(stream, "v1", None), owner="live-1", limits=limits)
        self.gate, self.reached, self.fails = threading.Event(), threading.Event(), list[Exception]()
        self.gate.set()
        land = landing.land

        def held_up(parts: Sequence[Any]) -> Any:
            self.reached.set()
            assert self.gate.wait(20)
            if self.fails:
                raise self.fails.pop(0)
            return land(parts)

        landing.land = held_up
        self.keeper = stack.enter_context(Keeper(engine, lease_ms=lease_ms, aside=lambda _: None))
        self.loop = Loop(
            taking=Taking(engine, connection, stream, owner="live-1", lease_ms=lease_ms),
            landing=landing,
            keeper=self.keeper,
            limits=limits,
            figures=Figures(),
            patience=patience,
        )
        stack.callback(self.loop.close)
        stack.callback(self.gate.set)

    def assign(self, *places: Place) -> None:
        self.group.assigned.update(places)
        self.loop.on_assign(places)

    def revoke(self, *places: Place, lost: bool = False) -> None:
        """As a subscription does it: told first, then gone."""
        try:
            (self.loop.on_lost if lost else self.loop.on_revoke)(places)
        finally:
            self.group.assigned.difference_update(places)
            for place in places:
                self.group.park(place)

    def turns(self, until: Callable[[], object], patience: float = 20.0) -> None:
        deadline = time.monotonic() + patience
        while not until():
            assert time.monotonic() < deadline, "it never came"
            self.loop.turn(self.group)
            time.sleep(0.001)

    def in_flight(self, *places: Place) -> None:
        """Until a batch of these partitions stands before its transaction."""
        self.gate.clear()
        self.assign(*(places or (ORDERS,)))
        self.turns(self.reached.is_set)

    @property
    def figures(self) -> Figures:
        return self.loop.figures

    def wait_for_the_worker(self) -> None:
        self.loop._worker.submit(lambda: None).result(20)


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
    began = time.monotonic()
    one.revoke(ORDERS)
    assert time.monotonic() - began < 5 and owners(engine) == ["live-1"]
    one.gate.set()
    one.turns(lambda: one.loop.committing.flight is None)
    one.wait_for_the_worker()
    # Nobody had taken the partition yet: the batch counts, and the lease is given back after it.
    assert (landed(engine), owners(engine)) == (list(range(50)), [None])
    assert one.figures.lag == 0 and whole(engine)


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
    one = member(Limits(records=30, delay=60), patience=20)
    one.in_flight()
    one.turns(lambda: one.loop.gathering.records == 20)
    began = time.monotonic()
    one.revoke(ORDERS, lost=True)
    assert time.monotonic() - began < 1 and one.loop.gathering.records == 0
    one.gate.set()
    one.wait_for_the_worker()
    assert (landed(engine), owners(engine)) == (list(range(30)), [None])


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


def test_two_batches_are_all_that_is_held_while_the_database_is_slow(
    member: Callable[..., Member], engine: Engine
) -> None:
    one = member(Limits(records=10, delay=0), p0=100)
    one.in_flight()
    for _ in range(20):
        one.loop.turn(one.group)
    assert one.group.at[ORDERS] <= 20 and one.loop.gathering.records <= 10
    assert one.group.paused == {ORDERS}, "and the rest stays with the broker"
    one.gate.set()
    one.turns(lambda: len(landed(engine)) == 100)
    assert one.group.paused == set() and whole(engine)


def test_a_drain_commits_what_was_gathered(member: Callable[..., Member], engine: Engine) -> None:
    one = member(Limits(records=1_000, delay=60))
    one.assign(ORDERS)
    one.turns(lambda: one.loop.gathering.records == 50)
    one.loop.drain(one.group)
    assert landed(engine) == list(range(50)) and one.figures.commits == 1


def test_a_drain_that_runs_out_of_time_drops_what_was_gathered(member: Callable[..., Member], engine: Engine) -> None:
    one = member(Limits(records=30, delay=60), patience=0.2)
    one.in_flight()
    one.turns(lambda: one.loop.gathering.records == 20)
    began = time.monotonic()
    one.loop.drain(one.group)
    assert 0.2 <= time.monotonic() - began < 5 and landed(engine) == []
    one.revoke(ORDERS)
    one.gate.set()
    one.wait_for_the_worker()
    assert (landed(engine), owners(engine), committed_through(engine)) == (list(range(30)), [None], 30)
    assert whole(engine)


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
