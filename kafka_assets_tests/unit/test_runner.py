"""Landing without a daemon: what passes by itself is no reason to end, and none to fail. A signal ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from kafka_assets.assets import ending, replaying
from kafka_assets.assets import runner as running
from kafka_assets.assets.decorator import kafka_asset
from kafka_assets.assets.folder import Declared
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.landing import Landing
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK
from kafka_assets.assets.replaying import replay
from kafka_assets.assets.resources import SparkResource
from kafka_assets.assets.runner import Done, Failed, Runner
from kafka_assets.broker.offsets import PartitionOffsets, TopicOffsets
from kafka_assets.broker.stopping import ENDING, Stopped
from kafka_assets.cli.landing import _say_given_up
from kafka_assets.errors import (
    BrokerUnavailable,
    DiskFull,
    LeaseHeld,
    LedgerBusy,
    SliceFailed,
    SparkUnavailable,
    TableIncompatible,
    TopicChanged,
    UpstreamChanged,
)
from kafka_assets.faults import armed
from kafka_assets.ledger import meeting
from kafka_assets.settings import load_settings
from kafka_assets.slices import SliceKey
from kafka_assets.testing import Session
from kafka_assets_tests.ledgers import ASSET, rows
from kafka_assets_tests.ticking import Desk, orders


@pytest.fixture
def runner(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Of the desk's stream, ledger and Dagster; its runs need no Spark."""
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", str(desk.engine.url))
    desk.stream = orders(topics="shop.*")
    declared: Any = kafka_asset(name=ASSET, topics="shop.*", target=ASSET, schema="id BIGINT, note STRING")
    made = Runner(load_settings(), instance=desk.instance, assets=[declared(lambda records: records)])
    monkeypatch.setattr(made, "run", lambda request: desk.land(request) and None)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("passing", [LedgerBusy("another planner met it"), TopicChanged("it was created again")])
def test_what_another_planner_was_faster_with_is_looked_at_again(
    desk: Desk, runner: Runner, monkeypatch: pytest.MonkeyPatch, passing: Exception
) -> None:
    desk.broker.set("shop.a", 10)
    desk.settle()
    desk.broker.set("shop.a", 20)
    desk.broker.set("shop.b", 5)
    make, raised = meeting.make_sources, list[Exception]()

    def late(*given: Any, **more: Any) -> Any:
        if not raised:
            raised.append(passing)
            raise passing
        return make(*given, **more)

    monkeypatch.setattr(meeting, "make_sources", late)
    with runner:
        done = runner.until_caught_up(patience=timedelta(seconds=30))
    assert raised
    assert (done.troubles, done.caught_up) == ([], True)
    assert rows(desk.engine, "select count(*) from orders") == [(25,)]


@pytest.mark.slow
def test_what_stays_so_is_waited_for_as_long_as_the_callers_patience(
    desk: Desk, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*given: object, **more: object) -> None:
        raise LedgerBusy("the database was busy")

    desk.broker.set("shop.a", 10)
    monkeypatch.setattr(meeting, "make_sources", busy)
    with runner:
        done = runner.until_caught_up(patience=timedelta(seconds=1))
    assert not done.caught_up
    assert "the database was busy" in done.troubles[0]


def test_a_broker_that_is_away_ends_it_at_once(desk: Desk, runner: Runner) -> None:
    desk.broker.down = BrokerUnavailable("no Kafka broker answered at nowhere:1")
    with runner:
        done = runner.until_caught_up(patience=timedelta(hours=1))
    assert not done.caught_up
    assert desk.broker.asked == 1


@dataclass
class Beside:
    """Spark, which is away, and Dagster's instance: each can wait for the other one to be asked."""

    asked: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def require(self) -> None:
        self.asked.set()
        assert self.opened.wait(30)
        raise SparkUnavailable("Spark is away")


@pytest.fixture
def beside(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", str(desk.engine.url))
    beside = Beside()
    monkeypatch.setattr(SparkResource, "require", lambda resource: beside.require())
    return beside


def a_runner() -> Runner:
    """With an instance of its own, and Spark on a server."""
    asset = kafka_asset(name=ASSET, topic="orders", target=ASSET, schema="id BIGINT")
    resources = {SPARK: SparkResource(spark_config={"spark.remote": "sc://nowhere:1"})}
    return Runner(load_settings(), assets=[asset(as_it_is)], resources=resources)


def test_spark_is_asked_while_dagsters_instance_is_opened(
    desk: Desk, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opens(home: str) -> dg.DagsterInstance:
        assert beside.asked.wait(30)
        beside.opened.set()
        return desk.instance

    monkeypatch.setattr(dg.DagsterInstance, "from_config", opens)
    desk.broker.set("orders", 10)
    with a_runner() as runner:
        with pytest.raises(SparkUnavailable, match="Spark is away"):
            runner.once()
        assert desk.instance.get_runs() == []
    assert rows(desk.engine, "select attempt, requests, not_before from kafka_claim") == [(0, 0, None)]


def test_spark_is_not_asked_where_nothing_was_planned(
    desk: Desk, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dg.DagsterInstance, "from_config", lambda home: desk.instance)
    desk.broker.set("orders", 0)
    with a_runner() as runner:
        assert runner.once().caught_up
    assert not beside.asked.is_set()


def test_one_tick_that_leaves_offsets_is_not_caught_up(
    desk: Desk, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run", lambda request: Failed("shop.a:0:0-10: no room", divides=False))
    monkeypatch.setattr(runner, "_require_spark", lambda: None)
    desk.broker.set("shop.a", 10)
    with runner:
        failed, waiting = runner.once(), runner.once()
        monkeypatch.setattr(runner, "run", lambda request: desk.land(request) and None)
        desk.hold_no_longer()
        landed = runner.once()
    assert [(done.runs, done.remaining, done.caught_up) for done in (failed, waiting, landed)] == [
        (1, 10, False), (0, 10, False), (1, 0, True),
    ]  # fmt: skip


def test_offsets_that_went_with_their_topic_are_said_once(desk: Desk, runner: Runner) -> None:
    desk.broker.set("shop.a", 10)
    desk.settle()
    desk.broker.set("shop.a", 25)
    with runner:
        desk.tick()  # planned, and not landed
        desk.broker.set("shop.a", 4, topic_id="id-2")
        found, again = (runner.until_caught_up(patience=timedelta(seconds=30)) for _ in range(2))
    assert (found.lost, found.remaining, found.caught_up) == ({"shop.a": 15}, 0, False)
    assert (again.lost, again.caught_up) == ({}, True)


class Kafka:
    """A broker's records, of which nothing comes: something else happens when it is asked for them, or for offsets."""

    def __init__(self, happens: Callable[[], object], *, claimed: bool) -> None:
        self._happens, self._claimed = happens, claimed

    def read(self, *given: object) -> Any:
        return None if self._claimed else self._happens()

    def observe(self, topics: object) -> Any:
        return self._happens()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process may be told to end, and does not."""
    before = {number: signal.getsignal(number) for number in ENDING}
    monkeypatch.setattr(ending, "GRACE", 1e6)
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)
    ending._ending = None


@pytest.fixture
def landing(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: None) -> Callable[..., Runner]:
    """A runner of two slices whose runs are Dagster's own; `happens` in their midst, before or after the claim."""
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", str(desk.engine.url))
    monkeypatch.setattr(Landing, "frame", lambda self: self.attached(SimpleNamespace(read=self.records.read())))
    desk.broker.set("orders", 2_000_000)

    def landing(
        happens: Callable[[], object], *, claimed: bool, more: Sequence[Declared] = (), **options: Any
    ) -> Runner:
        asset = kafka_asset(
            name=ASSET, topic="orders", target=ASSET, schema="id BIGINT", slices={"max_records": 1_000_000}
        )
        resources = {
            KAFKA: Kafka(happens, claimed=claimed),
            SPARK: Session(cast("Any", None)),
            IO_MANAGER: SliceIOManager(database_url=str(desk.engine.url)),
        }
        assets = [asset(as_it_is), *more]
        return Runner(load_settings(), instance=desk.instance, assets=assets, resources=resources, **options)

    return landing


def as_it_is(records: Any) -> Any:
    return records


def tell(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def swallow(number: signal.Signals) -> None:
    """As an import does that is interrupted in C."""
    with contextlib.suppress(BaseException):
        tell(number)
    raise ImportError("numpy.core.multiarray failed to import")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before-the-claim", "just-when-it-is-committed", "after-it"])
@pytest.mark.parametrize("happens", [tell, swallow])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_counts_against_no_slice(
    desk: Desk, landing: Callable[..., Runner], number: signal.Signals, happens: Any, when: str
) -> None:
    claimed = when != "before-the-claim"
    runner = landing(lambda: happens(number), claimed=claimed)
    between = armed("land", lambda: tell(number)) if when == "just-when-it-is-committed" else contextlib.nullcontext()
    with pytest.raises(Stopped) as stopped, ending.ended_by_signals(), runner, between:
        runner.until_caught_up(patience=timedelta(hours=1))
    assert stopped.value.number == number
    [run] = desk.instance.get_runs()
    assert run.status == dg.DagsterRunStatus.CANCELED, "and the other one was not begun"
    claims = rows(
        desk.engine,
        "select attempt, failures_alone, not_before, requests, lease_until > strftime('%s') * 1000 + 5000"
        " from kafka_claim",
    )
    first, second = ((1, 0, None, 1, 0), (0, 0, None, 0, None)) if claimed else ((0, 0, None, 0, None),) * 2
    assert claims == [first, second]
    assert len(desk.tick().requests) == 2, "they are asked for again at once"


def test_ctrl_c_ends_it_where_nobody_hears_signals_as_well(desk: Desk, landing: Callable[..., Runner]) -> None:
    runner = landing(lambda: tell(signal.SIGINT), claimed=True)
    with pytest.raises(KeyboardInterrupt), runner:
        runner.until_caught_up(patience=timedelta(hours=1))
    assert len(desk.instance.get_runs()) == 1


def test_a_run_leaves_our_checks_to_their_own_clock_and_takes_those_of_the_user_along(
    desk: Desk, landing: Callable[..., Runner]
) -> None:
    @dg.asset_check(asset=ASSET)
    def of_the_users_own() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    runner = landing(lambda: None, claimed=True, more=[of_the_users_own])
    with runner:
        runner.once()
    run = desk.instance.get_runs()[0]
    planned = dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED
    asked = [one.dagster_event for one in desk.instance.all_logs(run.run_id, of_type=planned)]
    assert [one.event_specific_data.check_name for one in asked if one] == ["of_the_users_own"]  # type: ignore[union-attr]


@pytest.fixture
def planned(desk: Desk) -> list[SliceKey]:
    """Two slices, which one run lands."""
    desk.broker.set("orders", 20)
    desk.stream = orders()
    desk.tick()
    return [SliceKey.parse(key) for key in desk.keys]


def test_a_replay_that_is_ended_is_not_tried_by_halves(
    desk: Desk, landing: Callable[..., Runner], planned: list[SliceKey]
) -> None:
    runner = landing(lambda: tell(signal.SIGTERM), claimed=True)
    with pytest.raises(Stopped), ending.ended_by_signals(), runner:
        replay(runner, runner.streams[0], planned)
    assert len(desk.instance.get_runs()) == 1
    assert rows(desk.engine, "select attempt, failures_alone from kafka_claim") == [(1, 0), (1, 0)]


@pytest.mark.slow
def test_what_keeps_all_slices_from_landing_ends_it_soon_and_is_tried_again_by_the_next_one(
    desk: Desk, landing: Callable[..., Runner]
) -> None:
    def narrow() -> None:
        raise TableIncompatible("it has no column 'currency'")

    for runs in (1, 2):  # what comes after it in a run would meet it, too; then one run sees whether it lasts
        with landing(narrow, claimed=True) as runner:
            done = runner.until_caught_up(patience=timedelta(hours=1))
        assert not done.caught_up
        assert "it has no column 'currency'" in done.troubles[0]
        assert len(desk.instance.get_runs()) == runs
    assert done.waits[0].startswith("orders:0:0-1000000 waits: to be tried again; the last attempt failed: it has no")


@pytest.mark.slow
def test_a_slice_that_always_fails_is_told_of_once_and_named_in_the_end(
    desk: Desk, landing: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoilt() -> None:
        raise SliceFailed("it has 500 bad records of 500", cure="compare the schema with the topic's records")

    # Nobody waits here for the pauses between the attempts.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: desk.hold_no_longer())
    monkeypatch.setattr(running, "time", clock)
    said: list[str] = []
    with landing(spoilt, claimed=True, say=said.append) as runner:
        done = runner.until_caught_up(patience=timedelta(hours=1))
        again = runner.once()
    assert (done.failed_slices, done.caught_up, done.troubles) == (2, False, [])
    assert done.runs == len(desk.instance.get_runs()) >= 8
    keys = ["orders:0:0-1000000", "orders:0:1000000-2000000"]
    reasons = [f"{key}: {SliceFailed('it has 500 bad records of 500')}" for key in keys]
    assert done.failures == [f"{reason} · compare the schema with the topic's records" for reason in reasons]
    landed = [line for line in said if line.startswith("landing ")]
    assert landed[0] == f"landing {keys[0]} … {keys[1]}"
    for line in (*done.failures, *landed):
        assert said.count(line) == 1
    # Then each further attempt at both of them is two short lines.
    assert len(said) <= 4 + 2 * done.runs / len(keys)
    assert max(len(line) for line in said if line not in done.failures) < 130
    assert done.given_up_slices == again.given_up_slices == {ASSET: keys}
    _say_given_up(done.given_up, done.given_up_slices)
    shown = capsys.readouterr().err
    assert f"2 slices of {ASSET} failed too often, and wait for you ({', '.join(keys)})" in shown
    assert f"kafka-assets replay {ASSET} --failed" in shown


CLAIMS = "select attempt, failures_alone, not_before is null, requests from kafka_claim order by publication_id"


def test_what_a_run_has_not_come_to_is_asked_for_again_at_once(desk: Desk, landing: Callable[..., Runner]) -> None:
    def busy() -> None:
        raise LedgerBusy("a deadlock, five times")

    with landing(busy, claimed=True) as runner:
        runner.once()
        assert rows(desk.engine, CLAIMS) == [(1, 0, 0, 1), (0, 0, 1, 0)]
        runner.once()
        assert [attempt for attempt, *_ in rows(desk.engine, CLAIMS)] == [1, 1]


def test_a_signal_leaves_the_pause_of_what_has_failed_in_the_same_run(
    desk: Desk, landing: Callable[..., Runner]
) -> None:
    times = count()

    def happens() -> None:
        if not next(times):
            raise SliceFailed("too many bad records")
        tell(signal.SIGTERM)

    runner = landing(happens, claimed=True)
    with pytest.raises(ending.Stopped), ending.ended_by_signals(), runner:
        runner.until_caught_up(patience=timedelta(hours=1))
    failed, stopped = rows(desk.engine, CLAIMS)
    assert failed == (1, 1, 0, 1)
    assert stopped[2] == 1


def test_of_each_transaction_that_fails_it_is_told_why(landing: Callable[..., Runner]) -> None:
    times = count(1)

    def happens() -> None:
        raise SliceFailed(f"reason {next(times)}")

    said: list[str] = []
    with landing(happens, claimed=True, say=said.append) as runner:
        done = runner.once()
    assert [line for line in said if "reason" in line] == done.failures
    assert [line.partition(": ")[2] for line in done.failures] == ["reason 1", "reason 2"]


@pytest.mark.parametrize(("here", "runs", "slices"), [(True, 1, 4), (False, 4, 4)])
def test_who_carries_runs_out_asks_for_no_more_than_lands_soon(desk: Desk, here: bool, runs: int, slices: int) -> None:
    desk.stream = orders(slices={"max_records": 1_000_000})
    desk.broker.set("orders", 40_000_000)
    assert len(desk.tick(here=here).requests) == runs
    asked = "select count(*), max(s.end_offset - s.start_offset) from kafka_claim c join kafka_publication p"
    asked += " on p.id = c.publication_id join kafka_slice s on s.id = p.slice_id where request_token is not null"
    assert rows(desk.engine, asked) == [(slices, 1_000_000)]


def raising(error: Exception) -> Callable[[], None]:
    def happens() -> None:
        raise error

    return happens


@pytest.mark.slow
@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        SparkUnavailable("Spark is away"), LedgerBusy("the database is away"), DiskFull("the disk is full"),
        TableIncompatible("it has no column 'currency'"), BrokerUnavailable("no broker answered"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_a_replay_that_fails_by_no_slices_fault_is_not_tried_by_halves(
    desk: Desk, landing: Callable[..., Runner], planned: list[SliceKey], error: Exception, claimed: bool
) -> None:
    with landing(raising(error), claimed=claimed) as runner:
        done = replay(runner, runner.streams[0], planned)
    assert len(desk.instance.get_runs()) == 1
    assert list(done.failed) == planned
    assert done.ended is not None and error.args[0] in done.ended


def test_a_replay_leaves_what_could_only_fail_by_the_same(
    desk: Desk, landing: Callable[..., Runner], planned: list[SliceKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "MAX_OFFSETS", 10)  # a batch of each
    with landing(raising(DiskFull("the disk is full")), claimed=True) as runner:
        done = replay(runner, runner.streams[0], planned)
    assert len(desk.instance.get_runs()) == 1
    assert (list(done.failed), done.untried) == (planned[:1], planned[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [ValueError("no good"), LeaseHeld("another run holds one"), UpstreamChanged("one is not committed")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_a_replay_that_fails_by_some_slice_is_halved_until_it_is_named(
    desk: Desk, landing: Callable[..., Runner], planned: list[SliceKey], error: Exception
) -> None:
    with landing(raising(error), claimed=True) as runner:
        done = replay(runner, runner.streams[0], planned)
    assert len(desk.instance.get_runs()) == 3
    assert (list(done.failed), done.ended, done.untried) == (planned, None, [])


@pytest.mark.parametrize("verbose", [False, True])
def test_dagsters_own_log_is_for_who_asks_for_it(
    landing: Callable[..., Runner], capfd: pytest.CaptureFixture[str], verbose: bool
) -> None:
    def fails() -> None:
        raise ValueError("no good")

    said: list[str] = []
    with landing(fails, claimed=True, say=said.append, verbose=verbose) as runner:
        done = runner.once()
    assert done.failures == ["orders:0:0-1000000: ValueError: no good", "orders:0:1000000-2000000: ValueError: no good"]
    assert done.failures[0] in said
    shown = capfd.readouterr().err
    assert ("Traceback" in shown or "Stack Trace" in shown) is verbose
    assert ("STEP_START" in shown) is verbose


def test_what_an_open_transaction_holds_back_stands_in_the_figures(desk: Desk, runner: Runner) -> None:
    desk.broker.set("shop.a", 10)
    [topic] = desk.broker.topics.values()
    assert isinstance(topic, TopicOffsets)
    desk.broker.topics["shop.a"] = replace(topic, partitions={0: PartitionOffsets(0, 10, 160)})
    with runner:
        assert runner.until_caught_up(patience=timedelta(seconds=30)).caught_up
        [standing] = runner.standing()
    assert (standing["lag"], standing["hanging"]) == (0, 150)


@pytest.mark.parametrize("step", [Runner.once, partial(Runner.until_caught_up, patience=timedelta(hours=1))])
def test_where_no_stream_is_declared_there_is_nothing_to_do(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Callable[[Runner], Done]
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", str(desk.engine.url))
    with Runner(load_settings(), instance=desk.instance, assets=[]) as runner:
        done = step(runner)
        assert (done.runs, done.caught_up, runner.standing()) == (0, True, [])
