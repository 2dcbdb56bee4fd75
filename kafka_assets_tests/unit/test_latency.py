"""The arithmetic of `bench latency`, and what it says where services are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_assets.cli import app
from kafka_assets.errors import SettingsError
from kafka_assets.lab.bench.latency import WHOLE, Way, costs_of, figures_of, parts_of, percentile
from kafka_assets.lab.bench.run_cost import RunCost


def way(whole: int, **more: int | None) -> Way:
    return Way(produced=1_000, planned=1_200, committed=1_000 + whole, **more)  # type: ignore[arg-type]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile(range(1, 101), 95) == 95
    assert percentile([3.0, 1.0, 2.0], 95) == 3.0
    assert percentile([7.0], 50) == 7.0


def test_the_parts_add_up_to_the_whole() -> None:
    parts = {part.name: part for part in parts_of([way(1_000, claimed=1_700, dequeued=1_300, started=1_600)])}
    assert parts[WHOLE].median == 1_000
    names = ("produced → planned", "planned → claimed", "claimed → committed")
    assert [parts[name].median for name in names] == [200, 500, 300]
    inner = ("planned → out of Dagster's queue", "out of the queue → worker runs", "worker runs → claimed")
    assert [parts[name].median for name in inner] == [100, 300, 100]


def test_a_part_is_measured_over_the_records_that_it_is_known_of() -> None:
    parts = {part.name: part for part in parts_of([way(1_000, claimed=1_700), way(3_000), way(2_000, started=1_600)])}
    assert (parts[WHOLE].median, parts[WHOLE].p95, parts[WHOLE].records) == (2_000, 3_000, 3)
    assert (parts["planned → claimed"].median, parts["planned → claimed"].records) == (500, 1)
    assert "out of the queue → worker runs" not in parts


def test_each_figure_stands_beside_the_whole() -> None:
    ways = [Way(0, 100, whole, claimed=250, steps={"insert": 0.1}) for whole in (400, 500, 1_000)]
    figures = {figure.name: figure for figure in figures_of(parts_of(ways))}
    median, p95 = figures[f"{WHOLE}, median"], figures[f"{WHOLE}, p95"]
    assert (median.value, median.unit, median.against, median.ratio) == (0.5, "s", None, None)
    assert p95.value == 1.0
    part = figures["produced → planned, median"]
    assert (part.value, part.against, part.ratio) == (0.1, median.name, 0.2)
    step = figures["step insert, p95"]
    assert (step.value, step.against, step.ratio) == (0.1, p95.name, 0.1)


def test_what_a_run_costs_is_told_with_what_others_did_for_it() -> None:
    costs = [RunCost(pid, seconds=0.25 * pid, private=pid * 10_000_000, pss=pid * 20_000_000) for pid in (1, 2, 4)]
    figures = {one.name: one for one in costs_of(costs, {"Spark server": 1.5})}
    assert (figures["a run: CPU, median"].value, figures["a run: CPU, p95"].value) == (0.5, 1.0)
    assert (figures["a run: memory of its own, peak, median"].value, figures["a run: PSS, peak, p95"].value) == (20, 80)
    assert (figures["Spark server: CPU a run"].value, figures["Spark server: CPU a run"].unit) == (0.5, "CPU s")
    assert costs_of([], {"Spark server": 1.5}) == []


@pytest.mark.parametrize("named", ["SPARK_REMOTE", "BOOTSTRAP_SERVERS"])
def test_without_services_it_names_the_command_that_starts_them(
    named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    for name in ("BOOTSTRAP_SERVERS", "SPARK_REMOTE", "SPARK_MASTER", "DATABASE_URL"):
        monkeypatch.delenv(f"KAFKA_ASSETS_{name}", raising=False)
    monkeypatch.setenv(f"KAFKA_ASSETS_{named}", "localhost:1")
    done = CliRunner().invoke(app, ["bench", "latency", "--records", "1"])
    assert isinstance(done.exception, SettingsError)
    assert "kafka-assets up" in done.exception.cure
    assert list(tmp_path.iterdir()) == []
