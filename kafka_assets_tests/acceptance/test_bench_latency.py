"""`bench latency` through a real sensor and real runs; what it made is gone, however it ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kafka_assets.audit.scratch import PREFIX
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.topics import topic_names
from kafka_assets.devstack.processes import MARK
from kafka_assets.lab.bench.latency import PARTS, WHOLE
from kafka_assets_tests.acceptance.project import Project

BENCH = (str(Path(sys.executable).with_name("kafka-assets")), "bench", "latency")


@pytest.fixture(autouse=True)
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made, is made where this test alone looks."""
    monkeypatch.setenv("TMPDIR", str(project.folder))


@pytest.mark.campaign
def test_a_trickle_is_measured_part_by_part_and_nothing_stays(project: Project) -> None:
    done = subprocess.run(
        [*BENCH, "--records", "3", "--every", "0.5", "--json"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    figures = {one["name"]: one for one in listed}
    assert all(set(one) == {"name", "value", "unit", "against", "ratio"} for one in listed)
    for said in ("median", "p95"):
        whole = figures[f"{WHOLE}, {said}"]
        assert whole["value"] > 0 and whole["ratio"] is None
        for part, _, _ in PARTS:  # Dagster's own moments among them
            found = figures[f"{part}, {said}"]
            assert 0 <= found["value"] <= whole["value"]
            assert found["against"] == whole["name"]
            assert found["ratio"] == pytest.approx(found["value"] / whole["value"], abs=0.01)
    assert {"step claim, median", "step first_chunk, median", "step commit, median"} <= figures.keys()
    assert 0 < figures["a run: CPU, median"]["value"] <= figures["a run: CPU, p95"]["value"]
    assert 0 < figures["a run: memory of its own, peak, median"]["value"] < figures["a run: PSS, peak, p95"]["value"]
    assert figures["Dagster beside its runs: CPU a run"]["value"] > 0
    assert _left(project) == []


@pytest.mark.campaign
def test_an_interrupt_ends_all_that_was_started(project: Project) -> None:
    running = subprocess.Popen([*BENCH, "--records", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        _until(lambda: any(one.startswith("dagster@") for one in _left(project)), running)
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=240)
    finally:
        running.kill()
    assert running.returncode != 0, said
    assert _left(project) == []


def _left(project: Project) -> list[str]:
    """What of a measurement is there: its services, its topic, its folders."""
    found = [name for name in topic_names(Connection(project.broker, {})) if name.startswith(PREFIX)]
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(MARK, "")
        except (psutil.Error, OSError):
            continue
        if str(project.folder) in mark:
            found.append(mark)
    return found + [str(one) for one in project.folder.rglob(f"{PREFIX}*")]


def _until(there: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not there():
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)
