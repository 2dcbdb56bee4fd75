"""Dagster's storage is bounded: runs go when their keys have gone, with all that they left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.utils import make_new_run_id

from kafka_assets.assets import run_retention
from kafka_assets.assets.names import STREAM_TAG
from kafka_assets.assets.run_retention import forget_runs
from kafka_assets.devstack.dagster import INSTANCE
from kafka_assets.streams import Stream
from kafka_assets_tests.ticking import Desk, orders

SUCCESS, STARTED, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        yield made


def run(
    instance: dg.DagsterInstance, stream: str, *, days: int, status: dg.DagsterRunStatus = SUCCESS
) -> dg.DagsterRun:
    made = dg.DagsterRun(job_name="landing", run_id=make_new_run_id(), tags={STREAM_TAG: stream}, status=status)
    instance.run_storage.add_historical_run(made, datetime.now(UTC) - timedelta(days=days))
    instance.report_engine_event("it landed", made)
    log = Path(instance.root_directory) / "storage" / made.run_id / "compute_logs"
    log.mkdir(parents=True)
    (log / "step.err").write_text("said")
    return made


def left_of(instance: dg.DagsterInstance, one: dg.DagsterRun) -> list[str]:
    """The files that carry the run's id."""
    return [path.name for path in Path(instance.root_directory).rglob(f"*{one.run_id}*")]


def kept(stream: Stream, instance: dg.DagsterInstance, *runs: dg.DagsterRun) -> list[bool]:
    forget_runs(instance, stream)
    return [instance.has_run(one.run_id) for one in runs]


@pytest.mark.slow
def test_runs_go_with_their_keys_and_leave_no_file(instance: dg.DagsterInstance) -> None:
    old, failed = run(instance, "orders", days=40), run(instance, "orders", days=40, status=FAILURE)
    young, going_on = run(instance, "orders", days=30), run(instance, "orders", days=40, status=STARTED)
    others = run(instance, "payments", days=40)
    assert left_of(instance, old)
    assert kept(orders(), instance, old) == [True]
    assert kept(orders(keep_keys="30d"), instance, old, failed, young, going_on, others) == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert left_of(instance, old) == left_of(instance, failed) == []
    assert left_of(instance, young) and left_of(instance, others)


@pytest.mark.slow
def test_a_tick_deletes_a_few_the_oldest_first(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_retention, "RUNS_PER_TICK", 2)
    runs = [run(instance, "orders", days=days) for days in (50, 49, 48)]
    assert kept(orders(keep_keys="30d"), instance, *runs) == [False, False, True]
    assert kept(orders(keep_keys="30d"), instance, *runs) == [False, False, False]


def test_what_dagster_cannot_delete_costs_a_tick_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.stream = orders(keep_keys="30d")
    old = dg.DagsterRun("landing", run_id=make_new_run_id(), tags={STREAM_TAG: "orders"}, status=SUCCESS)
    desk.instance.run_storage.add_historical_run(old, datetime.now(UTC) - timedelta(days=40))

    def refuse(*given: object, **named: object) -> None:
        raise PermissionError("no right to delete")

    monkeypatch.setattr(desk.instance.compute_log_manager, "delete_logs", refuse)
    desk.broker.set("orders", 30)
    assert len(desk.tick().requests) == 1
    assert desk.instance.has_run(old.run_id)


@pytest.mark.slow
def test_the_dagster_yaml_that_up_writes_purges_ticks(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(INSTANCE)
    assert yaml.safe_load(INSTANCE)["retention"]["sensor"]["purge_after_days"]["skipped"] == 1
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        from dagster._core.definitions.run_request import InstigatorType
        from dagster._core.scheduler.instigation import TickStatus

        assert instance.get_tick_retention_settings(InstigatorType.SENSOR)[TickStatus.FAILURE] == 30
