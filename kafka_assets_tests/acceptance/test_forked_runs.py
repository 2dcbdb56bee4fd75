"""Runs forked from a warm process, in a whole deployment: what kills them, what changes under them, how they end."""

from __future__ import annotations

import psutil
import pytest

from kafka_assets import devstack
from kafka_assets.assets.nursery import NOBODY, RUN_WORD
from kafka_assets.devstack import processes
from kafka_assets.faults import SETTING
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.acceptance.deployment import Deployment
from kafka_assets_tests.acceptance.project import Project, lease_ends

NOTES = """
import atexit, os, pathlib, sys

def born():
    there = set(sys.modules)
    atexit.register(lambda: note(" ".join(sorted(set(sys.modules) - there))))

def note(imported):
    aside = pathlib.Path(__file__).with_suffix(f".{os.getpid()}")
    aside.write_text(imported)
    aside.replace(aside.with_suffix(".imported"))

os.register_at_fork(after_in_child=born)
"""
"""A process that was forked writes down beside the file what it had to import, when it ends."""


def test_a_run_killed_in_its_transaction_with_what_it_was_forked_from_is_taken_over_exactly(
    deployment: Deployment,
) -> None:
    deployment.tell_to_hang("forked")
    offsets = deployment.produce_at_once("forked", 3_000)
    deployment.wait(lambda: deployment.hanging("forked") is not None)
    worker = psutil.Process(deployment.hanging("forked") or 0)
    [run] = deployment.runs("forked")
    assert worker.cmdline()[-1] == f"{RUN_WORD}{run['runId']}"
    nursery = worker.parent()
    assert nursery is not None and nursery.cmdline()[-1] == f"{RUN_WORD}{NOBODY}"
    nursery.kill()
    worker.kill()
    lease_ends(deployment, "forked")
    deployment.wait(lambda: deployment.landed("forked", offsets))
    deployment.exact("forked", rows=3_000, attempt=2)
    # Nobody was left who had it for a child: Dagster asks for the health of its runs.
    deployment.wait(lambda: {"FAILURE", "SUCCESS"} == {one["status"] for one in deployment.runs("forked")})


def test_a_function_that_is_changed_on_the_disk_makes_the_next_slices_rows(deployment: Deployment) -> None:
    deployment.produce("deployed_changed", 0, 1_000, partitions=1)
    deployment.wait(lambda: deployment.landed("changed", 1_000))
    declared = deployment.folder / "defs" / "changed.py"
    aside = deployment.folder / "changed.py"
    aside.write_text(NOTES + declared.read_text().replace("return records", 'return records.where("id % 2 = 0")'))
    aside.replace(declared)  # a file that is half written would be broken for its neighbours
    deployment.produce("deployed_changed", 1_000, 2_000, partitions=1)
    deployment.wait(lambda: deployment.landed("changed", 2_000))
    assert deployment.sql("select count(*) from changed where id < 1000") == 1_000
    assert deployment.sql("select count(*) from changed where id >= 1000") == 500
    imported = declared.with_suffix(".imported")
    deployment.wait(imported.exists)
    assert imported.read_text() == "", "what a run imports, its nursery should have imported"


def test_down_leaves_no_process_of_a_run_behind(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    told = project.folder / "told"
    told.touch()
    monkeypatch.setenv(SETTING, f"hang@verify?{told}")
    project.topic("ended_by_down", partitions=1)
    project.declare("ended_by_down", topic="ended_by_down")
    project.produce("ended_by_down", 0, 100, partitions=1)
    ensure_schema(project.engine)
    project.start()
    struck = told.with_suffix(".struck")
    project.wait(struck.exists)
    worker = psutil.Process(int(struck.read_text()))
    begun = [worker, *worker.parents()]
    family = [one for one in begun if _is_forked(one)]
    assert len(family) == 2, "the run and its nursery"
    devstack.down(project.folder / ".kafka_assets")
    assert not [one for one in family if processes.is_alive(one)]
    assert not processes.strays(project.folder / ".kafka_assets")
    assert project.sql("select count(*) from ended_by_down") == 0


def _is_forked(process: psutil.Process) -> bool:
    try:
        return "kafka_assets.assets.nursery" in process.cmdline()
    except psutil.AccessDenied:
        return False
