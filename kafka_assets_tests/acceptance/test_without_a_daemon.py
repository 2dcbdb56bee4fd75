"""`kafka-assets plan` and `run`: everything lands by one command, as cron runs it, and exit codes tell how it went."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_assets_tests.acceptance.project import Project
from kafka_assets_tests.commands import Commands


def test_run_lands_all_that_was_there_and_says_so(project: Project, command: Commands) -> None:
    project.topic("cron")
    project.declare("cron", topic="cron", max_records=700)
    project.produce("cron", 0, 6_000, bad_every=1_000)

    seen = command("plan", "--dry-run", "--json").json
    assert [one["offsets"] for one in seen["slices"]] == [667, 667, 666] * 3
    assert seen["written"] is False
    assert project.sql("select count(*) from sqlite_master") == 0, "a dry run makes no ledger"

    done = command("run", "--until-caught-up", "--json").json
    assert done["caught_up"] is True
    assert [(one["committed_through"], one["lag"]) for one in done["partitions"]] == [(2_000, 0)] * 3
    assert project.sql("select count(*) from cron") == 6_000 - 6
    assert project.sql("select count(*) from kafka_quarantine") == 6
    assert project.sql("select count(*) from kafka_gap") == 0

    again = command("run", "--until-caught-up", "--json").json
    assert again["runs"] == 0 and again["caught_up"] is True

    project.produce("cron", 6_000, 6_300)
    planned = command("plan", "--json").json
    assert sum(one["offsets"] for one in planned["slices"]) == 300
    assert command("run", "cron", "--json").json["failures"] == []
    assert project.sql("select count(*) from cron") == 6_300 - 6


def test_a_slice_that_fails_is_an_exit_code_of_one_and_the_others_land(project: Project, command: Commands) -> None:
    project.topic("spoilt")
    project.declare("spoilt", topic="spoilt", attributes='on_bad="fail", max_attempts=1')
    project.produce("spoilt", 0, 900, bad_every=601)  # one bad record, in one of three partitions

    done = command("run", "--until-caught-up", "--json", code=1).json

    assert done["failed_slices"] == 1 and done["remaining"] == 300
    assert "on_bad: fail" in done["failures"][-1]
    assert project.sql("select count(*) from spoilt") == 600
    assert project.sql("select count(*) from kafka_publication where state = 'failed'") == 1


def test_signals_end_it_and_what_was_being_landed_lands_by_the_next_one(project: Project, command: Commands) -> None:
    project.topic("interrupted")
    project.declare("interrupted", topic="interrupted", max_records=1_000)
    project.produce("interrupted", 0, 3_000)

    # While Spark's client is being imported; then while a claim is held.
    said = _ended(project, signal.SIGTERM, lambda: True, "run", "--until-caught-up")
    assert "stopped by SIGTERM" in said and "Traceback" not in said
    # A lease that was given back ended within this second, and one that is held goes on for a minute.
    held = "select count(*) from kafka_claim where lease_until > (strftime('%s') + 1) * 1000"
    _ended(project, signal.SIGINT, lambda: project.sql(held) > 0, "run", "--until-caught-up")
    assert project.sql("select count(*) from kafka_publication where state = 'committed'") == 0
    assert project.sql(held) == 0, "the claims are given back"
    assert project.sql("select count(*) from kafka_claim where failures_alone > 0 or not_before is not null") == 0

    assert command("run", "--until-caught-up", "--json").json["caught_up"] is True
    _ended(project, signal.SIGTERM, lambda: project.sql(held) > 0, "replay", "interrupted", "--since", "0", "--yes")
    assert project.sql("select count(*) from interrupted") == 3_000
    assert project.sql("select sum(failures_alone) from kafka_claim") == 0


def test_what_cannot_be_done_is_said_in_words(
    project: Project, command: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.declare("lonely", topic="lonely")
    wrong = command("run", "nobody", code=2)
    assert "there is no stream 'nobody'" in wrong.err and "lonely" in wrong.err
    missing = command("run", "--until-caught-up", code=1)
    assert "lonely" in missing.err
    assert "no duration" in command("run", "--patience", "soon", code=2).err
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    for words in (["plan", "--dry-run"], ["run", "--until-caught-up"]):
        down = command(*words, code=1)
        assert "127.0.0.1:1" in down.err


def _ended(project: Project, number: signal.Signals, when: Callable[[], bool], *command: str) -> str:
    """Start it, and send it the signal once it has begun to land, as soon as something else is so; what it said."""
    arguments = [str(Path(sys.executable).with_name("kafka-assets")), *command]
    with subprocess.Popen(
        arguments, cwd=project.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = list[str]()
        while not said or "landing" not in said[-1]:
            said.append(process.stdout.readline())
            assert said[-1], said
        while not when():
            assert process.poll() is None
        process.send_signal(number)
        said.append(process.stdout.read())
    assert process.returncode == 128 + number, said
    return "".join(said)


def test_a_spark_that_is_not_there_is_told_once_and_counted_against_nobody(
    project: Project, command: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.topic("sparkless")
    project.declare("sparkless", topic="sparkless")
    project.produce("sparkless", 0, 30)
    monkeypatch.setenv("KAFKA_ASSETS_SPARK_REMOTE", "sc://localhost:1/;token=x")
    down = command("run", "--until-caught-up", code=1)
    assert "the Spark server at localhost:1 does not answer" in down.err
    assert "kafka-assets up" in down.err
    assert project.sql("select sum(failures_alone) from kafka_claim") == 0
    assert project.sql("select count(*) from kafka_claim where attempt > 0") == 0
