"""Processes that are watched: what all of them have done, deaths, errors that stay, and how they end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from kafka_assets.live import processes
from kafka_assets.live.figures import Figures, line, total
from kafka_assets.live.processes import Processes

DRAINS = 'import sys; print(\'{"records": 5, "seconds": 1.0}\', flush=True); sys.stdin.read(); sys.exit(0)'
GIVES_UP = 'import sys; print(\'{"error": "no such table", "retryable": false}\', flush=True); sys.exit(1)'


def children(*programs: str) -> Processes:
    def command(number: int) -> Sequence[str]:
        return [sys.executable, "-I", "-c", programs[number]]

    return Processes(command, len(programs))


@pytest.mark.slow
def test_all_drain_when_asked_and_what_they_did_is_one_sum() -> None:
    family = children(DRAINS, DRAINS)
    done: list[str | None] = []
    running = threading.Thread(target=lambda: done.append(family.run()))
    running.start()
    deadline = time.monotonic() + 120
    while family.figures.records < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    family.stop()
    running.join(20)
    assert done == [None] and family.figures.records == 10 and family.deaths == 0


@pytest.mark.slow
def test_an_error_that_stays_ends_all_of_them_and_is_told() -> None:
    family = children(DRAINS, GIVES_UP)
    assert family.run() == "no such table"
    assert all(child.process is None for child in family.children)


@pytest.mark.slow
def test_one_that_dies_is_begun_again_and_its_figures_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "FIRST", 0.05)
    mark = tmp_path / "died"
    program = f"""
import os, pathlib, signal
mark = pathlib.Path({str(mark)!r})
print('{{"records": 1, "seconds": 1.0}}', flush=True)
if not mark.exists():
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    family = children(program)
    for child in family.children:
        child.pause = 0.05
    with caplog.at_level("WARNING"):
        assert family.run() is None
    assert family.deaths == 1 and family.figures.records == 2
    assert "process 0 ended with signal 9, and begins again" in caplog.text


@pytest.mark.slow
def test_what_a_streams_function_prints_is_no_figure(caplog: pytest.LogCaptureFixture) -> None:
    printed = ["5", "null", '["error"]', '{"id": 7}', '{"records": "many"}', '{"error": "of a row"}', "{}"]
    lines = [*printed, '{"records": 5, "seconds": 1.0}']
    family = children(f"print({chr(10).join(lines)!r}, flush=True)")
    with caplog.at_level("INFO", logger=processes.__name__):
        assert family.run() is None
    assert family.deaths == 0 and family.figures.records == 5
    assert [record.getMessage() for record in caplog.records] == [f"process 0: {text}" for text in printed]


@pytest.mark.slow
def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = "import os, sys; open(sys.argv[1], 'a').write(f'{os.getpid()} '); sys.stdin.read()"
    parent = f"""
import sys
from kafka_assets.live.processes import Processes
Processes(lambda number: [sys.executable, "-I", "-c", {child!r}, {str(pids)!r}], 2).run()
"""
    killed = subprocess.Popen([sys.executable, "-c", parent])
    try:
        deadline = time.monotonic() + 120
        while len(found := pids.read_text().split() if pids.exists() else []) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        orphans = [psutil.Process(int(pid)) for pid in found]
        assert len(orphans) == 2
    finally:
        killed.kill()
        killed.wait()
    _, left = psutil.wait_procs(orphans, timeout=120)
    assert left == []


def test_the_line_says_what_is_done_and_what_waits() -> None:
    now = Figures(records=1500, commits=3, lag=7, partitions=2, rebalances=1, waiting={"a:0": "its slice is planned"})
    now.seconds, before = 10.0, Figures(records=500)
    before.seconds = 5.0
    said = line(now, before)
    assert said.startswith("200 records/s · 1,500 records in 3 commits · lag 7")
    assert "waiting for a:0: its slice is planned" in said


def test_figures_of_several_are_one_sum() -> None:
    one, other = Figures(records=1, troubles={"a:0": "x"}), Figures(records=2, troubles={"b:0": "y"})
    assert total([one, other]).records == 3 and set(total([one, other]).troubles) == {"a:0", "b:0"}


def test_figures_are_told_while_their_consumer_writes_them() -> None:
    figures, stop = Figures(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            for number in range(200):
                figures.waiting[f"orders:{number}"] = "planned"
            figures.waiting.clear()

    writing = threading.Thread(target=write)
    writing.start()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(500):
            assert set(figures.as_dict()["waiting"].values()) <= {"planned"}
    finally:
        sys.setswitchinterval(before)
        stop.set()
        writing.join()


def test_figures_come_back_as_they_were_told() -> None:
    told = Figures(records=3, troubles={"a:0": "x"}).as_dict()
    assert (back := Figures.said(told)) is not None and back.as_dict().keys() == told.keys()
    assert back.troubles == {"a:0": "x"} and Figures.said({**told, "another": 1}) is None
