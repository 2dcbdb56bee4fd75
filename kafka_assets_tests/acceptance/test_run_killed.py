"""`kafka-assets run` under SIGKILLs wherever it stands: what lands afterwards is exact, and nothing waits for ever."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from kafka_assets.ledger.engine import make_engine
from kafka_assets_tests.acceptance.conftest import Project

KILLS = int(os.environ.get("KAFKA_ASSETS_TESTS_CAMPAIGN_KILLS", "30"))
RECORDS = 600
"""New ones before each kill, so that there is always something to land."""


@pytest.fixture(params=["sqlite", "postgresql"])
def placed(
    request: pytest.FixtureRequest,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    fresh_database: Callable[[str], str],
) -> Iterator[Project]:
    """The project, its tables and ledger in one of these databases."""
    if request.param == "sqlite":
        yield project
        return
    url = fresh_database(request.getfixturevalue("postgresql_url"))
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", url)
    engine = make_engine(url)
    yield replace(project, engine=engine)
    engine.dispose()


@pytest.mark.campaign
def test_the_campaign_of_killed_runs(placed: Project) -> None:
    name = f"killed_{placed.engine.dialect.name}"
    placed.topic(name)
    placed.declare(name, topic=name, max_records=100)
    _run(placed, "plan")  # makes the ledger
    drawn = random.Random(20261)
    for number in range(KILLS):
        placed.produce(name, number * RECORDS, (number + 1) * RECORDS)
        _killed(placed, drawn.choice((_made, _made, _claimed, _at_random(drawn))))
    left = _never_started(placed)
    print(f"{KILLS} kills; {left} runs were made and never started")
    assert left, "no kill came between a run's making and its start"

    done = json.loads(_run(placed, "run", "--until-caught-up", "--json"))

    assert done["caught_up"] is True
    assert placed.landed(name, KILLS * RECORDS)
    assert placed.sql(f"select count(*) from {name}") == KILLS * RECORDS
    assert placed.sql(f"select count(distinct id) from {name}") == KILLS * RECORDS
    assert placed.sql("select count(*) from kafka_gap") == 0
    assert placed.sql("select sum(failures_alone) from kafka_claim") == 0


Reached = Callable[[Project, "subprocess.Popen[bytes]"], None]
"""Waits until a process of `run` stands where it is to be killed, or has ended."""


def _made(project: Project, process: subprocess.Popen[bytes]) -> None:
    """Between the making of its run and the start of it."""
    before = _never_started(project)
    while process.poll() is None and _never_started(project) == before:
        pass


def _claimed(project: Project, process: subprocess.Popen[bytes]) -> None:
    """In the midst of landing."""
    attempts = "select coalesce(sum(attempt), 0) from kafka_claim"
    before = project.sql(attempts)
    while process.poll() is None and project.sql(attempts) == before:
        time.sleep(0.02)


def _at_random(drawn: random.Random) -> Reached:
    def reached(project: Project, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(timeout=drawn.uniform(0, 15))
        except subprocess.TimeoutExpired:
            return

    return reached


def _killed(project: Project, reached: Reached) -> None:
    log = project.folder / "killed.log"
    with (
        log.open("ab") as out,
        subprocess.Popen(_command("run", "--until-caught-up"), cwd=project.folder, stdout=out, stderr=out) as process,
    ):
        reached(project, process)
        process.kill()


def _never_started(project: Project) -> int:
    home = project.folder / ".dagster"
    if not (home / "dagster.yaml").exists():
        return 0
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.NOT_STARTED]))


def _run(project: Project, *arguments: str) -> str:
    done = subprocess.run(
        _command(*arguments), cwd=project.folder, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("kafka-assets")), *arguments]
