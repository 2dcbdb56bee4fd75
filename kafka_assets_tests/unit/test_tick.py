"""The sensor's tick: exact wherever it is killed and whoever else ticks, fair, and never red."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._daemon.sensor import MIN_INTERVAL_LOOP_TIME
from sqlalchemy import Engine, event, text

from kafka_assets.assets import planning as planner
from kafka_assets.assets import requesting
from kafka_assets.assets import tick as ticks
from kafka_assets.assets.by_hand import preview
from kafka_assets.assets.cursor import Cursor
from kafka_assets.assets.decorator import kafka_asset
from kafka_assets.assets.definitions import build_definitions
from kafka_assets.assets.folder import broken_in, load_assets
from kafka_assets.assets.names import SPARK, STREAM_TAG
from kafka_assets.assets.resources import SparkResource, default_resources
from kafka_assets.assets.run_process import LAUNCHER_TAG, PROCESS_TAG, RunProcess
from kafka_assets.assets.sensor import the_sensor
from kafka_assets.assets.tick import Tick, sensor_result
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import BrokerUnavailable, LedgerBusy
from kafka_assets.ledger import requests, told
from kafka_assets.ledger.backends import unconnected
from kafka_assets.ledger.claims import claim, record_failure, release
from kafka_assets.ledger.engine import make_engine, read, write
from kafka_assets.ledger.gone import leave_gone
from kafka_assets.ledger.health import health
from kafka_assets.ledger.observing import Looked, observe_known
from kafka_assets.ledger.publications import find
from kafka_assets.ledger.sources import known_sources
from kafka_assets.ledger.stalls import stall, stalls
from kafka_assets.plan import Offsets
from kafka_assets.settings import no_spark_known
from kafka_assets.slices import SliceKey
from kafka_assets.streams import declare
from kafka_assets_tests.ledgers import ASSET, rows, scalar
from kafka_assets_tests.ticking import Broker, Desk, Killed, at_commits, killing, orders


@pytest.fixture
def broker(desk: Desk) -> Broker:
    """Under the name of the real one, which no unit test has."""
    return desk.broker


def exact(desk: Desk, *, records: int) -> None:
    assert scalar(desk.engine, "select count(*) from orders") == records
    assert scalar(desk.engine, "select count(distinct kafka_partition || ':' || kafka_offset) from orders") == records
    assert scalar(desk.engine, "select count(*) from kafka_publication where state <> 'committed'") == 0
    assert rows(desk.engine, "select * from kafka_gap") == []


@pytest.mark.slow
@pytest.mark.parametrize("after", [True, False], ids=["after", "before"])
def test_a_tick_may_be_killed_around_any_commit(
    engine: Engine, anew: Callable[[], None], broker: Broker, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr(requests, "HOLD_MS", 0)  # else what was asked for and lost waits a minute
    broker.set("orders", 25, 5)
    kills = 0
    while True:
        anew()
        with dg.DagsterInstance.ephemeral() as instance:
            desk = Desk(engine, instance, broker, orders())
            with monkeypatch.context() as patched:
                at_commits(patched, killing(kills + 1), after=after)
                try:
                    desk.evaluate()
                except Killed:
                    kills += 1
                else:
                    break
            desk.settle()
            exact(desk, records=30)
            assert desk.told == set(desk.keys)
            assert scalar(desk.engine, "select max(committed_attempt) from kafka_publication") == 1
    assert kills > 10  # else nothing was killed


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["one-dagster", "two-dagsters"])
def test_a_second_sensor_may_tick_within_any_step_of_the_first(
    engine: Engine, anew: Callable[[], None], broker: Broker, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    others_engine = make_engine(engine.url)
    steps = 0
    while True:
        anew()
        broker.set("orders", 25, 5)
        with dg.DagsterInstance.ephemeral() as one, dg.DagsterInstance.ephemeral() as other:
            first = Desk(engine, one, broker, orders())
            second = Desk(others_engine, one if shared else other, broker, orders())
            seconds: list[Tick] = []
            with monkeypatch.context() as patched:
                at_commits(patched, _ticking(second, broker, seconds, wanted=steps + 1), after=True)
                found = first.tick()
            if not seconds:
                break
            steps += 1
            broker.set("orders", 35, 5)
            asked = [first.keys_of(request) for request in found.requests]
            asked += [second.keys_of(request) for request in seconds[0].requests]
            assert all(asked)
            assert len(set().union(*asked)) == sum(map(len, asked)), "two runs for one slice"
            first.land(*found.requests)
            second.land(*seconds[0].requests)
            first.settle()
            second.settle()
            exact(first, records=40)
            assert first.told == set(first.keys)
            assert second.told == first.told
            assert not [trouble for trouble in found.troubles + seconds[0].troubles if "Truncated" in trouble]
    assert steps > 10


def _ticking(desk: Desk, broker: Broker, found: list[Tick], *, wanted: int) -> Callable[[int], None]:
    def then(number: int) -> None:
        if number == wanted:
            broker.set("orders", 35, 5)
            found.append(desk.evaluate())

    return then


@pytest.mark.slow
def test_a_long_backlog_leaves_the_others_their_turn(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(slices={"per_tick": 4, "runs": 1})
    broker.set("orders", 60, 5, 25)
    found = desk.tick()
    assert found.planned == 4
    assert desk.land(*found.requests)
    planned = rows(desk.engine, "select s.partition, count(*) from kafka_slice s group by s.partition")
    assert planned == [(0, 2), (1, 1), (2, 1)]
    desk.settle()
    exact(desk, records=90)


def test_what_comes_late_is_landed_before_a_backlog_that_waits(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(slices={"runs": 1, "max_records": 1_000_000})
    broker.set("orders", 50_000_000, 0)
    assert desk.tick().planned == 50
    broker.set("orders", 50_000_000, 3)
    [request] = desk.tick().requests
    assert desk.keys_of(request)[0] == SliceKey("orders", 1, 1, 0, 3)


def test_a_tick_plans_so_many_records_and_one_slice_at_least(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(slices={"records_per_tick": 25})
    broker.set("orders", 1000, 100)
    assert desk.tick().planned == 2
    desk.stream = orders(slices={"records_per_tick": 1})
    assert desk.tick().planned == 1


def test_nothing_more_is_planned_while_enough_waits(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(slices={"waiting": 5})
    broker.set("orders", 1000)
    assert [desk.tick().planned for _ in range(3)] == [5, 0, 0]


def test_so_many_runs_land_a_stream_at_a_time(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(slices={"max_records": 1_000_000, "runs": 2})
    broker.set("orders", 5_000_000)
    found = desk.tick()
    assert len(found.requests) == 2
    keys = desk.keys_of(found.requests[0])
    claims = claim(desk.engine, list(find(desk.engine, asset=ASSET, keys=keys).values()), run_id="at work")
    assert len(desk.tick().requests) == 1
    record_failure(desk.engine, claims, reason="no good", max_attempts=5)


def test_a_run_that_dagster_never_started_is_asked_for_again_once_its_request_has_had_its_time(
    desk: Desk, broker: Broker
) -> None:
    desk.stream = orders(slices={"runs": 1})
    broker.set("orders", 15)
    [request] = desk.tick().requests
    desk.store(request, dg.DagsterRunStatus.NOT_STARTED)  # its process was killed before it could start
    assert desk.tick().requests == []
    desk.hold_no_longer()
    [again] = desk.tick().requests
    assert again.run_key != request.run_key
    desk.land(again)
    exact(desk, records=15)


@pytest.mark.parametrize(
    ("status", "patient", "tired"),
    [(dg.DagsterRunStatus.QUEUED, 50, 70), (dg.DagsterRunStatus.STARTING, 5, 15)],
    ids=["queued", "starting"],
)
def test_a_run_that_waits_in_dagster_is_waited_for_within_bounds(
    desk: Desk, broker: Broker, monkeypatch: pytest.MonkeyPatch, status: dg.DagsterRunStatus, patient: int, tired: int
) -> None:
    broker.set("orders", 15)
    [request] = desk.tick().requests
    desk.store(request, status)
    desk.hold_no_longer()
    desk.later(monkeypatch, minutes=patient)
    assert desk.tick().requests == []
    desk.later(monkeypatch, minutes=tired)
    assert len(desk.tick().requests) == 1


def test_few_slices_wait_for_others_while_a_run_of_the_stream_is_in_dagsters_queue(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    [request] = desk.tick().requests
    queued = desk.store(request, dg.DagsterRunStatus.QUEUED)
    for end in (20, 30):
        broker.set("orders", end)
        found = desk.tick()
        assert (found.planned, found.requests) == (1, [])
    desk.instance.report_run_canceling(queued)
    desk.land(request)
    [both] = desk.tick().requests
    assert [(key.start, key.end) for key in desk.keys_of(both)] == [(10, 20), (20, 30)]
    desk.land(both)
    exact(desk, records=30)


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING])
def test_what_fills_a_run_and_what_is_tried_again_waits_for_no_queue(
    desk: Desk, broker: Broker, monkeypatch: pytest.MonkeyPatch, status: dg.DagsterRunStatus
) -> None:
    broker.set("orders", 10)
    [request] = desk.tick().requests
    desk.store(request, status)
    broker.set("orders", 20)
    assert len(desk.tick().requests) == (status is not dg.DagsterRunStatus.QUEUED)
    desk.hold_no_longer()
    monkeypatch.setattr(requesting, "MAX_OFFSETS", 20)  # ten of them are half of a run
    broker.set("orders", 30)
    assert len(desk.tick().requests) == 1


@pytest.mark.slow
def test_dagster_is_asked_once_for_the_runs_of_all_streams_and_each_has_its_bound(
    desk: Desk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = {"schema": "id BIGINT", "slices": {"max_delay": "0ms", "max_records": 10, "runs": 1}}
    desk.stream = orders(slices={"runs": 1})
    desk.others = [declare(name=one, topic=one, target=one, **kind) for one in ("a", "b", "c")]
    for name in ("orders", "a", "b", "c"):
        broker.set(name, 10, 10)
    asked: list[str] = []
    ask = desk.instance.get_run_records

    def asking(filters: dg.RunsFilter, **named: Any) -> Any:
        asked.append(str(filters.tags))
        return ask(filters, **named)

    monkeypatch.setattr(desk.instance, "get_run_records", asking)

    def names(found: Tick) -> list[str]:
        return sorted(request.tags[STREAM_TAG] for request in found.requests)

    first = desk.tick()
    assert names(first) == ["a", "b", "c", "orders"]
    assert len(asked) == 1
    for request in first.requests[:2]:
        desk.store(request, dg.DagsterRunStatus.QUEUED)
    desk.hold_no_longer()
    again = desk.tick()
    assert len(asked) == 2
    assert names(again) == sorted(request.tags[STREAM_TAG] for request in first.requests[2:])
    # So many wait of one stream that the answer for all is cut short: its own are counted, and the others', too.
    for request in again.requests[:1]:
        for _ in range(50):
            desk.store(request, dg.DagsterRunStatus.QUEUED)
    desk.hold_no_longer()
    assert names(desk.tick()) == [again.requests[1].tags[STREAM_TAG]]
    assert len(asked) > 3


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_a_run_whose_process_died_with_its_code_server_takes_no_others_place_for_hours(
    desk: Desk, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, watched: bool
) -> None:
    broker.set("orders", 15)
    [request] = desk.tick().requests
    with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as server:
        server.bind("server")  # by a short name: a socket's must be
        if watched:
            server.listen()
        run = desk.store(request, dg.DagsterRunStatus.STARTING)
        desk.instance.add_run_tags(run.run_id, {GRPC_INFO_TAG: '{"host": "localhost", "socket": "server"}'})
        begun = dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_START.value, job_name=run.job_name)
        desk.instance.report_dagster_event(begun, run.run_id)
        desk.later(monkeypatch, minutes=4)
        desk.hold_no_longer()
        assert len(desk.tick().requests) == 1, "whatever Dagster believes"
        assert _status(desk, run) is dg.DagsterRunStatus.STARTED
        desk.later(monkeypatch, minutes=6)
        desk.hold_no_longer()
        desk.tick()
    assert (_status(desk, run) is dg.DagsterRunStatus.FAILURE) != watched


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_a_run_that_was_to_start_when_its_code_server_died_is_waited_for_no_longer(
    desk: Desk, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, watched: bool
) -> None:
    broker.set("orders", 15)
    [request] = desk.tick().requests
    with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as server:
        server.bind("server")
        if watched:
            server.listen()
        run = desk.store(request, dg.DagsterRunStatus.STARTING)
        desk.instance.add_run_tags(run.run_id, {GRPC_INFO_TAG: '{"host": "localhost", "socket": "server"}'})
        desk.hold_no_longer()
        assert desk.tick().requests == [], "its process may be on its way"
        desk.later(monkeypatch, minutes=1)
        assert len(desk.tick().requests) == (0 if watched else 1)
    assert (_status(desk, run) is dg.DagsterRunStatus.FAILURE) != watched


@pytest.mark.parametrize("tag", [PROCESS_TAG, LAUNCHER_TAG])
@pytest.mark.parametrize("lives", [True, False], ids=["lives", "dead"])
def test_a_forked_run_is_watched_by_its_process_and_before_that_by_its_launchers(
    desk: Desk, broker: Broker, monkeypatch: pytest.MonkeyPatch, lives: bool, tag: str
) -> None:
    broker.set("orders", 15)
    [request] = desk.tick().requests
    run = desk.store(request, dg.DagsterRunStatus.STARTING)
    this = RunProcess.launcher(run.run_id)
    desk.instance.add_run_tags(run.run_id, (this if lives else replace(this, born="another")).tag(tag))
    desk.hold_no_longer()
    desk.later(monkeypatch, minutes=1)
    assert len(desk.tick().requests) == (0 if lives else 1)
    assert (_status(desk, run) is dg.DagsterRunStatus.FAILURE) != lives


def _status(desk: Desk, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = desk.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def test_who_carries_runs_out_here_waits_for_no_queue(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 15)
    [request] = desk.tick().requests
    desk.store(request, dg.DagsterRunStatus.QUEUED)
    assert desk.tick(here=True).requests == [], "a request has its minute, whoever asks"
    desk.hold_no_longer()
    assert len(desk.tick(here=True).requests) == 1


def test_the_sensor_is_due_each_time_that_dagsters_daemon_looks() -> None:
    assert (the_sensor().minimum_interval_seconds or 0) < MIN_INTERVAL_LOOP_TIME


def test_a_few_records_wait_for_their_delay_and_then_land(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(slices={"max_delay": "1h"})
    broker.set("orders", 5)
    assert desk.tick().planned == 0
    desk.stream = orders(slices={"max_delay": "0ms"})
    assert desk.tick().planned == 1


def test_without_a_broker_dagster_is_told_and_no_run_is_asked_for(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 15)
    desk.land(*desk.tick().requests, tells=False)
    broker.set("orders", 25)
    broker.down = BrokerUnavailable("no Kafka broker answered at nowhere:1")
    found = desk.tick()
    assert len(found.events) == 2
    assert found.requests == []
    result = sensor_result(desk.tick())
    assert "no Kafka broker answered" in str(result.skip_reason)
    assert "next tick" in str(result.skip_reason)


def test_a_busy_ledger_stops_one_step_and_is_the_reason(
    desk: Desk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.set("orders", 15)

    def busy(*given: object, **more: object) -> None:
        raise LedgerBusy("the database was busy")

    with monkeypatch.context() as patched:
        patched.setattr(planner.ledger, "commit_plan", busy)
        assert "the database was busy" in str(sensor_result(desk.tick()).skip_reason)
    assert desk.tick().planned == 2


def test_one_streams_trouble_never_stops_the_others(desk: Desk, broker: Broker) -> None:
    desk.others = [orders(name="payments", target="payments", topic="payments")]
    broker.set("orders", 15)
    found = desk.tick()
    assert found.planned == 2
    assert any("'payments' does not exist" in trouble for trouble in found.troubles)


def test_a_planner_that_is_late_does_not_take_the_others_progress_for_a_truncation(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 30)
    desk.tick()
    said = iter([15, 30])  # its own question was answered before the other one planned
    broker.before = lambda: broker.set("orders", next(said))
    assert desk.tick().troubles == []
    assert next(said, None) is None


def test_a_topic_that_lost_records_is_an_error_each_time_and_plans_nothing(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 30, 5)
    desk.tick()
    broker.set("orders", 20, 15)
    found = [desk.tick() for _ in range(2)]
    assert all("slices are planned through 30" in one.troubles[0] for one in found)
    assert [one.planned for one in found] == [1, 0]  # the other partition goes on


def test_start_counts_at_the_first_tick_alone(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(start="latest")
    broker.set("orders", 30)
    assert desk.tick().planned == 0
    broker.set("orders", 40, 20)
    desk.settle()
    assert scalar(desk.engine, "select count(*) from orders where kafka_partition = 0") == 10
    assert scalar(desk.engine, "select count(*) from orders where kafka_partition = 1") == 20


def test_without_a_start_nothing_is_guessed(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(start="none")
    broker.set("orders", 30)
    found = desk.tick()
    assert found.planned == 0
    assert "declares start: none" in found.troubles[0]


def test_a_pattern_finds_its_topics_in_each_tick_and_never_kafkas_own(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(topics=r"(shop\..*|__.*)", start="latest")
    broker.set("shop.a", 10)
    broker.set("__consumer_offsets", 10)
    broker.set("myshop.b", 10)
    assert desk.tick().planned == 0
    broker.set("shop.a", 20)
    broker.set("shop.late", 30, start=5)  # older than the pattern's meeting it: from what Kafka has of it
    assert desk.tick().planned == 4
    topics = rows(
        desk.engine, "select r.topic, p.origin from kafka_source r join kafka_progress p on r.id = p.source_id"
    )
    assert topics == [("shop.a", 10), ("shop.late", 5)]


def test_a_topic_of_a_pattern_that_is_gone_is_said_and_the_others_go_on(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(topics="shop.*")
    broker.set("shop.a", 10)
    broker.set("shop.b", 10)
    desk.tick()
    del broker.topics["shop.a"]
    broker.set("shop.b", 20)
    found = desk.tick()
    assert found.planned == 1
    assert "the broker does not show shop.a" in found.troubles[0]
    broker.set("shop.a", 7, topic_id="id-2")
    assert desk.tick().planned == 1
    lost = rows(desk.engine, "select start_offset, end_offset, reason from kafka_slice where kind = 'lost'")
    assert lost == [(0, 10, "the topic was deleted")]


def test_a_pattern_that_matches_nothing_says_so(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(topics="shop")
    broker.set("myshop", 10)
    assert "no topic that the broker shows matches 'shop'" in desk.tick().troubles[0]


def test_the_group_is_the_consumer_group(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(group="loader")
    broker.set("orders", 10)
    desk.tick()
    assert rows(desk.engine, "select consumer_group, next_offset from kafka_committed_offset") == [("loader", 0)]


def test_under_another_group_all_that_was_planned_lands_again(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 25)
    desk.settle()
    desk.stream = orders(group="loader")
    broker.set("orders", 40)
    found = desk.tick()
    wanted = sorted((key.start, key.end) for request in found.requests for key in desk.keys_of(request))
    assert (wanted[0][0], wanted[-1][1]) == (0, 40)
    assert scalar(desk.engine, "select count(*) from kafka_publication where asset = 'loader'") == len(wanted)
    assert desk.tick().planned == 0


@pytest.mark.slow
def test_an_idle_tick_asks_as_often_whatever_there_is(desk: Desk, broker: Broker) -> None:
    asked: list[str] = []

    def count(*given: Any) -> None:
        asked.append(given[2])

    def idle() -> list[str]:
        desk.settle()
        desk.tick()
        asked.clear()
        conversations = broker.asked
        desk.tick()
        assert broker.asked == conversations + 1
        return list(asked)

    broker.set("orders", 30, 30)
    event.listen(Engine, "before_cursor_execute", count)
    try:
        few = idle()
        broker.set("orders", 500, 500)
        many = idle()
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert len(desk.keys) == 100
    assert len(many) == len(few)


@pytest.mark.slow
def test_all_quiet_topics_are_looked_at_by_one_transaction(desk: Desk, broker: Broker) -> None:
    names = ("a", "b", "c")
    slices = {"max_delay": "0ms"}
    desk.others = [declare(name=one, topic=one, target=one, schema="id BIGINT", slices=slices) for one in names]
    for name in ("orders", *names):
        broker.set(name, 0, 0)
    desk.settle()

    def writes() -> int:
        """How many transactions of a tick write; all that was looked at before was so long ago."""
        with write(desk.engine) as connection:
            connection.execute(text("update kafka_progress set observed_at = '2026-01-01 00:00:00.000000'"))
        begun: list[str] = []

        def count(*given: Any) -> None:
            begun.extend([given[2]] if given[2] == "BEGIN IMMEDIATE" else [])

        event.listen(desk.engine, "before_cursor_execute", count)
        desk.tick()
        event.remove(desk.engine, "before_cursor_execute", count)
        assert scalar(desk.engine, "select count(*) from kafka_progress where observed_at < '2026-01-02'") == 0
        return len(begun)

    assert writes() == 1
    broker.set("b", 0, 7)
    assert writes() > 1
    assert rows(desk.engine, "select start_offset, end_offset from kafka_slice") == [(0, 7)]
    assert writes() == 1, "what is planned, and waits for its run, is no reason to plan"
    broker.set("c", 0, 0, 5)
    writes()
    assert rows(desk.engine, "select start_offset, end_offset from kafka_slice") == [(0, 7), (0, 5)]
    for name in names:
        broker.set(name, 8, 8, 8)
    writes()
    slices = scalar(desk.engine, "select count(*) from kafka_slice")
    for name in names:
        broker.set(name, 9, 9, 9)
    assert writes() == 1 + 9 + 3, "all looks, each partition's plan, and a token for each stream's run"
    assert scalar(desk.engine, "select count(*) from kafka_slice") == slices + 9


@pytest.mark.slow
@pytest.mark.parametrize("slow", ["planning", "asking"])
def test_a_slow_ledger_costs_no_evaluation_its_minute_and_no_stream_its_turn(
    desk: Desk, broker: Broker, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """Dagster ends what takes a minute, and no run comes of what that has asked for, though its tokens are stored."""
    desk.others = [declare(name=f"s{n}", topic=f"s{n}", target=f"s{n}", schema="id BIGINT") for n in range(8)]
    names = {stream.name for stream in (desk.stream, *desk.others)}
    for name in names:
        broker.set(name, 10)
    desk.evaluate()  # its cursor is lost; all is known and nothing waits, since these streams let records wait
    clock, passed = time.monotonic, 0.0
    where, what = (planner.StreamPlan, "run") if slow == "planning" else (ticks, "request_runs")
    step: Callable[..., Any] = getattr(where, what)

    def slowly(*given: Any, **named: Any) -> Any:
        nonlocal passed
        passed += 9
        return step(*given, **named)

    monkeypatch.setattr(time, "monotonic", lambda: clock() + passed)
    monkeypatch.setattr(where, what, slowly)
    with write(desk.engine) as connection:
        connection.execute(text("update kafka_progress set pending_since = 0 where planned_through = 0"))
        connection.execute(text("update kafka_claim set not_before = 0"))
    arrived = set[str]()
    for _ in range(4):
        before = passed
        found = desk.evaluate()
        if passed - before < 60:
            desk.cursor = found.cursor
            arrived |= {request.tags[STREAM_TAG] for request in found.requests}
    assert arrived == names


def test_what_waits_for_its_delay_is_looked_at_with_all_others_and_its_time_goes_on(
    desk: Desk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.stream = orders(slices={"max_delay": "1h", "max_records": 1000})
    broker.set("orders", 5)
    desk.tick()
    [source] = known_sources(desk.engine, [desk.stream.name])[desk.stream.name]
    broker.set("orders", 7)
    found = observe_known(desk.engine, [Looked(source, ASSET, {0: Offsets(0, 7, 7)})])
    [first] = (found.progress_of(source.id) or {}).values()
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 20)
    [later] = (found.progress_of(source.id) or {}).values()
    assert (later.pending_ms or 0) - (first.pending_ms or 0) >= 20_000
    assert rows(desk.engine, "select last_stable, high_watermark from kafka_progress") == [(7, 7)]
    assert found.quiet == set()


def test_what_is_not_all_known_or_is_live_or_retired_is_left_to_its_own_look(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 5, 5)
    desk.tick()
    [source] = known_sources(desk.engine, [desk.stream.name])[desk.stream.name]
    looks = {name: Looked(source, asset, dict.fromkeys(range(parts), Offsets(0, 9, 9))) for name, asset, parts in (
        ("all", ASSET, 2), ("one more partition", ASSET, 3), ("one fewer", ASSET, 1), ("another group", "other", 2),
    )}  # fmt: skip
    assert {name for name, one in looks.items() if observe_known(desk.engine, [one]).progress} == {"all"}
    for statement in (
        "update kafka_progress set owner = 'live', owner_lease_until = 1, owner_backend = 'b' where partition = 1",
        "update kafka_progress set owner = null, owner_lease_until = null, owner_backend = null",
        "update kafka_source set retired_at = '2026-01-01 00:00:00.000000'",
    ):
        changed(desk, statement)
        live_or_retired = "null" not in statement
        assert (source.id in observe_known(desk.engine, [looks["all"]]).progress) != live_or_retired


def test_a_sensor_without_a_broker_skips_with_the_reason_and_keeps_its_cursor(
    tmp_path: Path, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(empty_ledger, tmp_path / "ledger.db")
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", f"sqlite:///{tmp_path / 'ledger.db'}")
    monkeypatch.delenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", raising=False)

    @kafka_asset(topic="orders", target="orders", schema="id BIGINT")
    def orders(records: Any) -> Any:
        return records

    defs = build_definitions([orders])
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance=instance, definitions=defs, resources=default_resources()) as context,
    ):
        found = the_sensor().evaluate_tick(context)
    assert "no Kafka broker is known" in str(found.skip_message)
    assert replace(Cursor.parse(found.cursor), out_since=None) == Cursor(settled={"orders": 0})


def test_a_tick_ends_what_holders_that_are_gone_left_behind(desk: Desk, broker: Broker) -> None:
    """A frozen replay of what is committed, and a live consumer: nobody but the sensor asks after either."""
    broker.set("orders", 10, 10)
    desk.land(*desk.tick().requests)
    gone = f"{unconnected(desk.engine)}9"  # its process number is used again, by one that began later
    with write(desk.engine) as connection:
        connection.execute(text("update kafka_claim set lease_until = 1, backend = :gone"), {"gone": gone})
        connection.execute(
            text("update kafka_progress set owner = 'live-1', owner_lease_until = 1, owner_backend = :gone"),
            {"gone": gone},
        )
    desk.tick()
    assert rows(desk.engine, "select distinct backend from kafka_claim") == [(None,)]
    assert rows(desk.engine, "select distinct owner, owner_backend from kafka_progress") == [(None, None)]


def test_a_request_is_not_stored_for_what_was_claimed_since_it_was_due(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    desk.tick()
    desk.hold_no_longer()
    waiting = requests.due(desk.engine, asset=ASSET, topics=["orders"], limit=10)
    taken = claim(
        desk.engine, list(find(desk.engine, asset=ASSET, keys=[one.key for one in waiting]).values()), run_id="r"
    )
    release(desk.engine, taken)  # given back again: of its lease nothing is left to see
    assert not requests.store_request(desk.engine, waiting, token="late")
    again = requests.due(desk.engine, asset=ASSET, topics=["orders"], limit=10)
    assert requests.store_request(desk.engine, again, token="in time")


def test_an_outage_of_minutes_is_a_failed_tick_and_ends_with_it(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    desk.land(*desk.tick().requests)
    desk.tick()
    broker.down = BrokerUnavailable("no Kafka broker answered at nowhere:1")
    assert "no Kafka broker answered" in str(sensor_result(desk.tick()).skip_reason)  # a pause is none
    now = Cursor.parse(desk.cursor)
    assert now.out_since is not None
    desk.cursor = replace(now, out_since=now.out_since - 130).written()
    with pytest.raises(BrokerUnavailable, match=r"for 2 minutes.*no Kafka broker answered"):
        sensor_result(desk.tick())
    broker.down = None
    assert sensor_result(desk.tick()).skip_reason is not None
    assert Cursor.parse(desk.cursor).out_since is None


def test_a_tick_that_has_something_to_tell_tells_it_in_an_outage_too(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    desk.land(*desk.tick().requests, tells=False)
    broker.down = BrokerUnavailable("no Kafka broker answered at nowhere:1")
    desk.cursor = replace(Cursor.parse(desk.cursor), out_since=1.0).written()
    assert len(sensor_result(desk.tick()).asset_events) == 1


def test_two_streams_of_one_group_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(
            "from kafka_assets import kafka_asset\n\n"
            f"@kafka_asset(name='{name}', topic='{name}', target='{name}', group='one', schema='id BIGINT')\n"
            "def land(records):\n    return records\n"
        )
    found = load_assets(tmp_path)
    assert [one.path.name for one in broken_in(found)] == ["a.py", "b.py"]
    assert all("the same group 'one'" in str(one.error) for one in broken_in(found))


@pytest.mark.parametrize("shared", ["group", "target"])
def test_streams_that_meet_only_where_definitions_are_merged_are_refused_by_the_sensor(shared: str) -> None:
    def declared(name: str) -> dg.Definitions:
        given = {"target": name, shared: "one"}
        asset = kafka_asset(name=name, topic=name, schema="id BIGINT", **given)(lambda records: records)
        return build_definitions([asset], executor=None)

    defs = dg.Definitions.merge(declared("a"), declared("b"))
    with dg.build_sensor_context(definitions=defs, resources=default_resources()) as context:
        found = the_sensor().evaluate_tick(context)
    assert f"streams 'a' and 'b' have the same {shared} 'one'" in str(found.skip_message)
    assert not found.run_requests


@pytest.mark.slow
def test_a_slice_that_always_fails_is_given_up_and_its_neighbours_land(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 300)
    bad, alone, company = SliceKey("orders", 1, 0, 150, 160), 0, list[int]()
    for _ in range(20):
        failed = False
        for request in desk.tick().requests:
            keys = desk.keys_of(request)
            if bad not in keys:
                desk.publish(keys, run_id=str(request.run_key))
                continue
            failed = True
            company.append(len(keys))
            alone += len(keys) == 1
            claims = claim(desk.engine, list(find(desk.engine, asset=ASSET, keys=keys).values()), run_id="bad")
            record_failure(desk.engine, claims, reason="no good", max_attempts=desk.stream.max_attempts)
        if failed:  # it waits, and nobody waits for it
            assert bad not in {key for request in desk.tick().requests for key in desk.keys_of(request)}
        desk.hold_no_longer()
    assert alone == desk.stream.max_attempts
    assert company == [30, 10, 1, 1, 1, 1, 1]
    assert scalar(desk.engine, "select count(*) from orders") == 290
    assert rows(desk.engine, "select start_offset from kafka_publication where state = 'failed'") == [(150,)]
    assert "1 slices failed too often" in str(sensor_result(desk.tick()).skip_reason)


def test_slices_of_a_topic_that_is_gone_are_in_nobodys_run(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(topics="shop.*", slices={"runs": 1})
    broker.set("shop.a", 10)
    desk.tick()
    del broker.topics["shop.a"]
    broker.set("shop.b", 10)
    desk.hold_no_longer()
    [request] = desk.tick().requests
    assert [key.topic for key in desk.keys_of(request)] == ["shop.b"]


def test_a_topic_that_is_gone_takes_no_place_of_those_that_wait(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(topics="shop.*", slices={"waiting": 10})
    broker.set("shop.a", 200)
    assert desk.tick().planned == 10
    del broker.topics["shop.a"]
    broker.set("shop.b", 30)
    dry = preview(desk.engine, Connection("nowhere:1"), [desk.stream])
    assert [one.key.topic for one in dry.slices] == ["shop.b"] * 3
    assert dry.waiting == {ASSET: 10}, "it is said how many there are, all the same"
    assert desk.tick().planned == 3


def test_a_given_up_slice_of_a_topic_that_was_created_again_is_nobodys_trouble(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    desk.tick()
    [key] = [SliceKey.parse(key) for key in desk.keys]
    claims = claim(desk.engine, list(find(desk.engine, asset=ASSET, keys=[key]).values()), run_id="bad")
    assert record_failure(desk.engine, claims, reason="no good", max_attempts=1)
    assert requests.given_up(desk.engine, assets=[ASSET]) == {ASSET: 1}
    broker.set("orders", 5, topic_id="id-2")
    desk.tick()
    assert rows(desk.engine, "select kind from kafka_slice where end_offset = 10") == [("lost",)]
    assert requests.given_up(desk.engine, assets=[ASSET]) == {}
    assert desk.tick().troubles == []


def test_what_another_group_has_of_a_topic_that_was_created_again_waits_for_nobody(desk: Desk, broker: Broker) -> None:
    """Those slices are not lost, since somebody has their rows; and whoever reads records can land none of them."""
    broker.set("orders", 20)
    desk.settle()
    desk.stream = orders(group="loader")
    desk.tick()
    keys = set(desk.keys)
    broker.set("orders", 5, topic_id="id-2")
    desk.tick()
    found = desk.tick()
    assert found.troubles == []
    old = "select p.asset, p.state from kafka_publication p join kafka_slice s on s.id = p.slice_id where source_id = 1"
    assert set(rows(desk.engine, old)) == {(ASSET, "committed"), ("loader", "failed")}
    assert requests.given_up(desk.engine, assets=["loader"]) == {}
    waiting = health(desk.engine, asset="loader", target="orders", counted=False).waiting
    assert (waiting.slices, waiting.failed, waiting.reason) == (1, 0, "")
    with read(desk.engine) as connection:
        [planned] = told.unfinished(connection, assets=["loader"])
        assert [one.key.incarnation for one in told.those(connection, [planned])] == [2]
    assert keys <= set(desk.keys), "the keys are those of the rows that stand, too"
    assert requests.rearm(desk.engine, asset="loader", code_version="new", max_attempts=5) == 0
    assert leave_gone(desk.engine, asset="loader") == 0


def test_what_is_planned_of_a_topic_that_the_stream_names_no_more_is_landed(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    broker.set("orders.new", 10)
    desk.tick()
    desk.hold_no_longer()
    broker.set("orders", 20)
    desk.stream = orders(topic="orders.new")
    found = desk.tick()
    assert found.planned == 1
    assert {key.topic for request in found.requests for key in desk.keys_of(request)} == {"orders", "orders.new"}


def failed(desk: Desk, found: Tick, *, code: str = "v1", max_attempts: int = 5) -> None:
    """Its runs fail, each for the fault of its slices."""
    for request in found.requests:
        held = claim(desk.engine, list(find(desk.engine, asset=ASSET, keys=desk.keys_of(request)).values()), run_id="r")
        record_failure(desk.engine, held, reason="no good", max_attempts=max_attempts, code_version=code)


def stalled(desk: Desk, found: Tick, *, code: str = "v1", failure: str = "the table is too narrow") -> None:
    """Its runs fail, and for no fault of their slices."""
    for request in found.requests:
        held = claim(desk.engine, list(find(desk.engine, asset=ASSET, keys=desk.keys_of(request)).values()), run_id="r")
        record_failure(desk.engine, held, reason="narrow", max_attempts=5, counts=False, pauses=False)
    stall(desk.engine, asset=ASSET, failure=failure, code_version=code)


def changed(desk: Desk, statement: str) -> None:
    with write(desk.engine) as connection:
        connection.execute(text(statement))


@pytest.mark.slow
def test_what_keeps_all_slices_from_landing_is_tried_by_one_run_at_a_time(desk: Desk, broker: Broker) -> None:
    desk.stream = orders(slices={"max_records": 10})
    broker.set("orders", 40)
    stalled(desk, desk.tick())
    waits = desk.tick()
    assert waits.requests == []
    assert waits.stalled == {ASSET}
    assert "nothing lands: the table is too narrow · tried again in 5 s" in waits.troubles[0]
    for _ in range(3):
        changed(desk, "update kafka_stall set not_before = 0")
        tries = desk.tick()
        assert len(tries.requests) == 1
        assert desk.tick().requests == [], "while that one may still come"
        stalled(desk, tries)
    assert scalar(desk.engine, "select not_before - tried_at from kafka_stall") == 40_000, "the pauses grow"
    changed(desk, "update kafka_stall set not_before = 0")
    desk.land(*desk.tick().requests)  # somebody has cured it
    desk.settle()
    assert scalar(desk.engine, "select count(*) from kafka_publication where state <> 'committed'") == 0
    assert desk.tick().troubles == []


def test_other_code_and_whoever_calls_try_at_once_what_keeps_slices_from_landing(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    stalled(desk, desk.tick())
    desk.version = "v2"
    assert desk.tick().requests == [], "two deployments may differ for long"
    changed(desk, "update kafka_stall set tried_at = tried_at - 31000")
    tries = desk.tick()
    assert len(tries.requests) == 1
    stalled(desk, tries, code="v2")
    assert desk.tick().requests == []
    assert len(desk.tick(again=True).requests) == 1


def test_while_no_spark_is_known_no_run_is_sent_out_and_the_first_tick_that_knows_one_asks_for_it(
    desk: Desk, broker: Broker
) -> None:
    def unknown() -> None:
        raise no_spark_known()

    broker.set("orders", 10)
    desk.spark = unknown
    for _ in range(3):
        waits = desk.tick()
        assert (waits.requests, waits.stalled) == ([], {ASSET})
        assert "nothing lands: no Spark is known" in waits.troubles[0]
    [told] = stalls(desk.engine, assets=[ASSET]).values()
    assert told.said().startswith("nothing lands: no Spark is known")
    assert told.wait_ms <= 5_000, "nobody has tried, and no pause grows"
    desk.spark = lambda: None  # `up` has ended
    found = desk.tick()
    assert len(found.requests) == 1
    assert (found.stalled, found.troubles, stalls(desk.engine, assets=[ASSET])) == (set(), [], {})


def test_what_a_run_has_met_without_spark_keeps_nobody_once_there_is_one(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 20)
    desk.stream = orders(slices={"max_records": 10, "runs": 1})
    stalled(desk, desk.tick(), failure=str(no_spark_known()))
    changed(desk, "update kafka_stall set not_before = not_before + 300000")
    assert desk.tick().requests == []
    desk.spark = lambda: None
    assert len(desk.tick().requests) == 1
    assert stalls(desk.engine, assets=[ASSET]) == {}


def test_a_spark_that_is_known_lifts_nothing_that_is_not_its_own(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    stalled(desk, desk.tick())
    desk.spark = lambda: None
    found = desk.tick()
    assert (found.requests, found.stalled) == ([], {ASSET})
    assert "the table is too narrow" in found.troubles[0]


def test_what_waits_for_no_run_is_not_kept_by_a_spark_that_nobody_knows(desk: Desk, broker: Broker) -> None:
    def unknown() -> None:
        raise no_spark_known()

    broker.set("orders", 10)
    desk.settle()
    desk.spark = unknown
    found = desk.tick()
    assert (found.troubles, stalls(desk.engine, assets=[ASSET])) == ([], {})


def test_the_sensor_sends_no_run_out_where_neither_settings_nor_resource_say_where_spark_is(
    desk: Desk, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", str(desk.engine.url))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "nowhere:1")
    for name in ("SPARK_REMOTE", "SPARK_MASTER"):
        monkeypatch.delenv(f"KAFKA_ASSETS_{name}", raising=False)
    broker.set("orders", 10)

    @kafka_asset(name=ASSET, topic="orders", target=ASSET, schema="id BIGINT, note STRING", slices={"max_delay": "0ms"})
    def declared(records: Any) -> Any:
        return records

    def ticked(**resources: Any) -> dg.SensorResult:
        defs = build_definitions([declared], resources=resources)
        given = {**default_resources(), **resources}
        with dg.build_sensor_context(
            instance=desk.instance, definitions=defs, resources=given, cursor=desk.cursor
        ) as context:
            found: Any = the_sensor().evaluate_tick(context)
        desk.cursor = found.cursor
        return found

    found: Any = ticked()
    assert not found.run_requests
    assert "nothing lands: no Spark is known" in str(found.skip_message)
    elsewhere: Any = ticked(**{SPARK: SparkResource(spark_config={"spark.remote": "sc://elsewhere:1"})})
    assert len(elsewhere.run_requests) == 1


def test_what_keeps_nobody_waiting_is_no_trouble(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    stalled(desk, desk.tick())
    changed(desk, "update kafka_slice set kind = 'skipped', reason = 'by hand'")
    assert desk.tick().troubles == []


@pytest.mark.slow
def test_what_was_given_up_is_tried_once_more_when_the_code_changes(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 10)
    failed(desk, desk.tick(), max_attempts=1)
    assert desk.tick().requests == []
    assert preview(desk.engine, Connection("nowhere:1"), [desk.stream]).given_up == {ASSET: 1}
    desk.version = "v2"
    assert desk.tick().requests == [], "it has only just failed"
    rested = "update kafka_claim set lease_until = lease_until - 61000"
    changed(desk, rested)
    again = desk.tick()
    assert len(again.requests) == 1
    failed(desk, again, code="v2", max_attempts=desk.stream.max_attempts)
    changed(desk, rested)
    assert desk.tick().requests == []
    assert "1 slices failed too often" in desk.tick().troubles[0]
    desk.version = "v3"
    desk.settle()
    exact(desk, records=10)


def test_a_run_says_which_slices_it_is_for(desk: Desk, broker: Broker) -> None:
    broker.set("orders", 35)
    [request] = desk.tick().requests
    ours = {name: value for name, value in request.tags.items() if name.startswith("kafka")}
    assert ours.pop("kafka_assets/request").startswith(f"{request.run_key}-")
    assert ours == {"kafka_assets/slices": "orders:0:0-9 (+3)", "kafka_assets/stream": ASSET, "kafka/topic": "orders"}
