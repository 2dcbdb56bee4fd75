"""`bench load` without services: its arithmetic, what it reads of a ledger, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from kafka_assets import services
from kafka_assets.audit.generated import Orders, fresh_table, planned_slice, publish_orders
from kafka_assets.cli import app
from kafka_assets.lab.bench import stream_load
from kafka_assets.lab.bench.landed_records import LandedRecords, committed_records, table_check
from kafka_assets.lab.bench.latency import WHOLE
from kafka_assets.lab.bench.load_figures import (
    LandedSlice,
    LoadLook,
    LoadMeasured,
    TableCheck,
    figures_of,
    lag,
    minute_line,
    seconds_to_commit,
    used_between,
)
from kafka_assets.lab.bench.process_roles import RoleUse, role_of, used_by_role
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.sinks.road import road_for
from kafka_assets.streams import declare

EXACT = TableCheck(produced=100, rows=100, distinct=100)


def landed(produced: Sequence[int], committed: int, *, planned: int = 0, run: str = "r") -> LandedSlice:
    return LandedSlice("s", planned=planned, committed=committed, run_id=run, produced=produced)


def steady(delay: Callable[[int], int], *, seconds: int = 80, check: TableCheck = EXACT) -> LoadMeasured:
    """One record a second, and a look each 20 seconds; `delay` of each record in milliseconds, by its number."""
    slices = [landed([1000 * one], 1000 * one + delay(one), planned=1000 * one + 10) for one in range(seconds)]
    looks = [
        LoadLook(1000 * at, sent=at, used={"spark": RoleUse(at * 0.5, 3_000_000), "bench": RoleUse(at, 1)}, busy=at)
        for at in range(0, seconds + 1, 20)
    ]
    return LoadMeasured(looks, slices, check, cores=2, caught_up=1.0)


def test_each_record_counts_that_was_made_after_the_warm_up() -> None:
    measured = replace(steady(lambda number: 100 * (number + 1)), looks=steady(lambda _: 0).looks[1:])
    figures = {one.name: one for one in figures_of(measured)}
    assert figures[f"{WHOLE}, median"].value == 5.0  # of the records 20 to 79, which took 2.1 to 8 seconds
    assert figures[f"{WHOLE}, p95"].value == 7.7
    assert figures[f"{WHOLE}, maximum"].value == 8.0
    planned = figures["produced → planned, p95"]
    assert (planned.value, planned.against, planned.ratio) == (0.01, f"{WHOLE}, p95", 0.001)
    assert figures["planned → committed, maximum"].value == 7.99


def test_the_lag_is_how_many_records_wait_on_average() -> None:
    slices = [landed([0, 500], 1000), landed([1000], 1500), landed([900], 5000)]
    assert lag(slices, 0, 1000) == pytest.approx(1.0 + 0.5 + 0.1)
    assert lag(slices, 1000, 2000) == pytest.approx(0.5 + 1.0)
    assert lag(slices, 6000, 7000) == 0


def test_a_load_whose_lag_stays_does_not_fall_behind() -> None:
    measured = steady(lambda number: 30_000)
    assert not measured.falls_behind
    assert measured.quarter(4) == pytest.approx(measured.quarter(3), rel=0.1)
    assert {one.name: one.value for one in figures_of(measured)}["falls behind"] == 0


def test_a_load_whose_lag_grows_falls_behind() -> None:
    measured = steady(lambda number: 400 * number)
    assert measured.falls_behind
    assert "waited on average" in measured.why_behind
    figure = {one.name: one for one in figures_of(measured)}["lag, last quarter"]
    assert figure.ratio is not None and figure.ratio > 1.25


def test_a_lag_that_grows_by_less_than_a_tick_has_not_grown() -> None:
    assert not steady(lambda number: 40 * number).falls_behind


def test_a_load_that_never_landed_falls_behind_and_says_what_is_missing() -> None:
    measured = replace(steady(lambda _: 10), caught_up=None, check=TableCheck(produced=100, rows=98, distinct=97))
    assert measured.falls_behind
    assert measured.why_behind.startswith("3 of 100 records")
    figures = {one.name: one.value for one in figures_of(measured)}
    assert (figures["falls behind"], figures["records missing"], figures["records doubled"]) == (1, 3, 1)
    assert "all committed after the end" not in figures


def test_where_nothing_has_landed_there_are_figures_all_the_same() -> None:
    nothing = replace(steady(lambda _: 0), slices=[], caught_up=None, check=TableCheck(10, 0, 0))
    names = {one.name for one in figures_of(nothing)}
    assert {"CPU", "falls behind", "records missing"} <= names
    assert f"{WHOLE}, p95" not in names


def test_the_share_of_each_role_is_of_all_cores_and_the_benchmark_is_no_part_of_the_whole() -> None:
    figures = {one.name: one for one in figures_of(steady(lambda _: 10))}
    assert (figures["CPU"].value, figures["CPU"].unit) == (25.0, "% of 2 cores")
    assert (figures["CPU of spark"].value, figures["CPU of spark"].ratio) == (25.0, 1.0)
    assert (figures["CPU of bench"].value, figures["CPU of bench"].against) == (50.0, None)
    assert figures["CPU of the whole machine"].value == 50.0
    assert figures["memory (PSS) at the end"].value == 3


def test_a_role_whose_processes_are_gone_has_used_nothing_and_not_less() -> None:
    first = LoadLook(0, 0, {"code": RoleUse(5.0)}, 0)
    last = LoadLook(1000, 0, {"code": RoleUse(3.0), "runs": RoleUse(1.0)}, 0)
    assert used_between(first, last, cores=1) == {"runs": 100.0, "code": 0.0}


def test_a_minute_is_one_line() -> None:
    first, last = steady(lambda _: 0).looks[:2]
    line = minute_line(first, last, landed=18, new=[landed([0, 1000], 3000)], cores=2)
    assert "produced 20  landed 18  lag 2  p95 3.0 s  runs 1  CPU 25 %: bench 50 spark 25  MB: spark 3" in line
    assert "p95 -" in minute_line(first, last, landed=18, new=[], cores=2)


def test_times_are_of_the_records_of_that_time() -> None:
    slices = [landed([0, 1000], 3000), landed([2000], 2500)]
    assert seconds_to_commit(slices) == [0.5, 2.0, 3.0]
    assert seconds_to_commit(slices, 1000, 2000) == [0.5, 2.0]


def test_the_declared_stream_is_one_and_its_records_fit() -> None:
    said = yaml.safe_load(stream_load.declaration("t", "load_0", max_delay="1s"))["attributes"]
    stream = declare(**said)
    assert (stream.topic, stream.target, stream.slices.max_delay.total_seconds()) == ("t", "load_0", 1)
    assert declare(**yaml.safe_load(stream_load.declaration("t", "n", max_delay=None))["attributes"]).slices == (
        declare(name="n", topic="t", target="n", schema="id BIGINT").slices
    )
    [value] = [stream_load.record(7)]
    assert 180 < len(value) < 260
    assert json.loads(value)["id"] == 7


@pytest.mark.slow
def test_what_landed_is_read_once_with_its_commits(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    ensure_schema(engine)
    road, orders = road_for(engine), Orders(1000)
    table = fresh_table(engine, road, "orders")
    records = LandedRecords(engine)
    assert records.look() == []
    key = planned_slice(engine, asset=table.name, records=1000)
    publish_orders(engine, road, table, orders, key)
    [found] = records.look()
    made = [round(one.timestamp() * 1000) for one in next(orders.tables()).column("placed_at").to_pylist()]
    assert list(found.produced) == made
    assert found.planned <= found.committed
    assert (found.stream, found.run_id, records.records) == ("orders", "generated", 1000)
    assert records.look() == []
    assert committed_records(engine) == 1000
    assert table_check(engine, "orders", produced=1000) == TableCheck(1000, 1000, 1000)
    with write(engine) as connection:
        connection.exec_driver_sql("delete from orders where id = 5")
        connection.exec_driver_sql("update orders set id = 7 where id = 8")
    check = table_check(engine, "orders", produced=1000)
    assert (check.missing, check.doubled, check.exact) == (2, 1, False)
    engine.dispose()


def test_a_process_s_role_is_told_by_its_command_line() -> None:
    assert role_of("python -m kafka_assets.assets.nursery x run=" + "-" * 36) == "nursery"
    assert role_of("python -m kafka_assets.assets.nursery x run=0123") == "runs"
    assert role_of("vi") is None


@pytest.mark.parametrize(("word", "role"), [(f"run={'-' * 36}", "nursery"), ("dagster._daemon", "daemon")])
def test_what_children_used_that_have_ended_is_the_runs(word: str, role: str) -> None:
    busy = "import subprocess, sys, time; subprocess.run([sys.executable, '-c', 'sum(range(10**6))']); print(); "
    with subprocess.Popen([sys.executable, "-uc", busy + "time.sleep(60)", word], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        found = used_by_role({"other": [parent.pid]})
        parent.kill()
    assert found.keys() == {role, "runs"}
    assert found["runs"].seconds > 0 and found[role].memory > 1_000_000


@pytest.fixture
def measured_as(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[LoadMeasured], None]:
    """The command's services are none, and its measurement is this."""

    @contextmanager
    def none() -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            folder=tmp_path, stop=lambda: None, bootstrap_servers="b:1", spark_remote="sc://s:1",
            database=lambda kind: f"sqlite:///{tmp_path / kind}",
        )  # fmt: skip

    def given(measured: LoadMeasured) -> None:
        monkeypatch.setattr(services, "local_services", none)
        monkeypatch.setattr(stream_load, "bench_load", lambda *_, **__: measured)

    return given


def test_the_command_prints_the_houses_figures(measured_as: Callable[[LoadMeasured], None]) -> None:
    measured_as(steady(lambda _: 10))
    done = CliRunner().invoke(app, ["bench", "load", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert all(set(one) == {"name", "value", "unit", "against", "ratio"} for one in figures)
    assert {one["against"] for one in figures} - {None} <= {one["name"] for one in figures}
    assert all((one["against"] is None) == (one["ratio"] is None) for one in figures)


def test_the_command_fails_where_rows_are_missing_and_says_that_it_falls_behind(
    measured_as: Callable[[LoadMeasured], None],
) -> None:
    measured_as(replace(steady(lambda _: 10), caught_up=None, check=TableCheck(100, 99, 99)))
    done = CliRunner().invoke(app, ["bench", "load"])
    assert done.exit_code == 1
    assert "it falls behind: 1 of 100 records" in done.stderr
    measured_as(replace(steady(lambda _: 10), check=TableCheck(100, 101, 100)))
    assert CliRunner().invoke(app, ["bench", "load", "--database", "mariadb"]).exit_code == 1
