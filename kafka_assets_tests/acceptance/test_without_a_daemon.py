"""`kafka-assets plan` and `run`: everything lands by one command, as cron runs it, and exit codes tell how it went."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka_assets_tests.acceptance.conftest import Project


def test_run_lands_all_that_was_there_and_says_so(project: Project) -> None:
    project.topic("cron")
    project.declare("cron", topic="cron", max_records=700)
    project.produce("cron", 0, 6_000, bad_every=1_000)

    seen = _json(project, "plan", "--dry-run")
    assert [one["offsets"] for one in seen["slices"]] == [667, 667, 666] * 3
    assert seen["written"] is False
    assert project.sql("select count(*) from sqlite_master") == 0, "a dry run makes no ledger"

    done = _json(project, "run", "--until-caught-up")
    assert done["caught_up"] is True
    assert [(one["committed_through"], one["lag"]) for one in done["partitions"]] == [(2_000, 0)] * 3
    assert project.sql("select count(*) from cron") == 6_000 - 6
    assert project.sql("select count(*) from kafka_quarantine") == 6
    assert project.sql("select count(*) from kafka_gap") == 0

    again = _json(project, "run", "--until-caught-up")
    assert again["runs"] == 0 and again["caught_up"] is True

    project.produce("cron", 6_000, 6_300)
    planned = _json(project, "plan")
    assert sum(one["offsets"] for one in planned["slices"]) == 300
    assert _json(project, "run", "cron")["failures"] == []
    assert project.sql("select count(*) from cron") == 6_300 - 6


def test_a_slice_that_fails_is_an_exit_code_of_one_and_the_others_land(project: Project) -> None:
    project.topic("spoilt")
    project.declare("spoilt", topic="spoilt", attributes='on_bad="fail", max_attempts=1')
    project.produce("spoilt", 0, 900, bad_every=601)  # one bad record, in one of three partitions

    done = _json(project, "run", "--until-caught-up", code=1)

    assert done["failed_slices"] == 1 and done["remaining"] == 300
    assert "on_bad: fail" in done["failures"][-1]
    assert project.sql("select count(*) from spoilt") == 600
    assert project.sql("select count(*) from kafka_publication where state = 'failed'") == 1


def test_what_cannot_be_done_is_said_in_words(project: Project, monkeypatch) -> None:
    project.declare("lonely", topic="lonely")
    wrong = _run(project, "run", "nobody", code=2)
    assert "there is no stream 'nobody'" in wrong.stderr and "lonely" in wrong.stderr
    missing = _run(project, "run", "--until-caught-up", code=1)
    assert "lonely" in missing.stderr and "Traceback" not in missing.stderr
    assert "no duration" in _run(project, "run", "--patience", "soon", code=2).stderr
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    for command in (["plan", "--dry-run"], ["run", "--until-caught-up"]):
        down = _run(project, *command, code=1)
        assert "127.0.0.1:1" in down.stderr and "Traceback" not in down.stderr


def _json(project: Project, *command: str, code: int = 0) -> Any:
    return json.loads(_run(project, *command, "--json", code=code).stdout)


def _run(project: Project, *command: str, code: int) -> subprocess.CompletedProcess[str]:
    arguments: Sequence[str] = [str(Path(sys.executable).with_name("kafka-assets")), *command]
    done = subprocess.run(arguments, cwd=project.folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done
