"""What a run costs, seen from outside: real processes, forked and spawned as runs are."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from kafka_assets.assets.nursery import NOBODY, RUN_WORD
from kafka_assets.lab.bench import run_cost
from kafka_assets.lab.bench.run_cost import RunWatch, command_of, is_run

MEGABYTES = 48
SECONDS = 0.4
BURNS = f"""
import subprocess, sys, time
if len(sys.argv) > 2:
    subprocess.run([sys.executable, "-c", sys.argv[2]], check=True)
held = bytearray({MEGABYTES} << 20)
until = time.process_time() + {SECONDS}
while time.process_time() < until:
    pass
time.sleep(0.4)
"""
SPAWNED = "multiprocessing.spawn"


def test_processes_are_told_apart_by_their_command_line() -> None:
    nursery = ["python", "-m", "kafka_assets.assets.nursery", "name"]
    assert is_run([*nursery, f"{RUN_WORD}0f2b7a52-7d3c-4a57-a9ac-000000000000"])
    assert not is_run([*nursery, f"{RUN_WORD}{NOBODY}"])
    assert is_run(["python", "-c", f"from {SPAWNED} import spawn_main"])
    assert not is_run(["python", "-m", "dagster", "dev"]) and not is_run([])


@pytest.mark.slow
def test_a_runs_seconds_and_memory_are_its_own_and_those_of_all_that_it_started() -> None:
    before = _run(BURNS)
    with RunWatch(os.getpid()) as watch:
        plain = _run(BURNS)
        family = _run(BURNS, BURNS)
        other = subprocess.Popen([sys.executable, "-c", BURNS])
        for process in (before, plain, family, other):
            _await_zombie(process)
        assert {cost.pid for cost in watch.costs} == set(), "none has ended while somebody may still ask for its end"
        for process in (before, plain, family, other):
            process.wait()
        watch.await_ends()
    costs = {cost.pid: cost for cost in watch.costs}
    assert costs.keys() == {plain.pid, family.pid}, "neither one that was there before, nor one that is no run"
    assert costs[plain.pid].seconds >= SECONDS
    assert costs[family.pid].seconds >= 2 * SECONDS
    assert all(cost.private >= MEGABYTES << 20 and cost.pss >= MEGABYTES << 20 for cost in costs.values())


def test_a_run_that_the_kernel_leaves_out_of_its_list_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()", SPAWNED], stdin=subprocess.PIPE)
    try:
        listed = [process.pid]
        monkeypatch.setattr(run_cost, "family", lambda root: iter(listed if root == os.getpid() else ()))
        watch = RunWatch(os.getpid())
        watch._there.clear()
        deadline = time.monotonic() + 30
        while not is_run(command_of(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)  # it has no command line yet
        watch._look()
        listed.clear()
        watch._look()
        assert watch.costs == []
    finally:
        process.communicate()
    watch._look()
    assert [cost.pid for cost in watch.costs] == [process.pid]


def _run(*arguments: str) -> subprocess.Popen[bytes]:
    """A process whose command line is that of a run which Dagster's own launcher has started."""
    code, *more = arguments
    return subprocess.Popen([sys.executable, "-c", code, SPAWNED, *more])


def _await_zombie(process: subprocess.Popen[bytes]) -> None:
    """It has ended, and nobody has asked for its end yet: two looks more are taken at it."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    time.sleep(0.25)
