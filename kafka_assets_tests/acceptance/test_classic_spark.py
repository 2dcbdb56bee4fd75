"""A classic session, `local[2]`, in each run: the other Spark that the settings can name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_assets_tests.acceptance.project import Project

WORKER = """
from pyspark.sql import functions as F
from pyspark.sql import types as T


@F.udf(T.StringType())
def whose(note):
    import sys

    return sys.executable
"""


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("kafka-assets"))
    return subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.usefixtures("project", "classic")
def test_run_lands_by_a_classic_session(project: Project) -> None:
    (project.folder / "kafka_assets.toml").write_text('spark_remote = "sc://localhost:1"\n')
    project.topic("classic")
    project.declare("classic", topic="classic", before=WORKER, body='records.withColumn("note", whose("note"))')
    project.produce("classic", 0, 300, bad_every=100)
    done = command(project.folder, "run", "--until-caught-up", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["caught_up"] is True
    assert project.sql("select count(*) from classic") == 297
    assert project.sql("select count(*) from kafka_quarantine") == 3
    assert project.sql("select min(note) || max(note) from classic") == sys.executable * 2


@pytest.mark.usefixtures("classic")
def test_the_doctor_starts_the_session_that_a_run_would_start(tmp_path: Path) -> None:
    (tmp_path / "kafka_assets.toml").touch()
    looked = command(tmp_path, "doctor", "--deep", "--json")
    [spark] = [one for one in json.loads(looked.stdout) if one["check"] == "spark"]
    assert (looked.returncode, spark["status"]) == (0, "ok"), looked.stdout + looked.stderr
    assert "(local[2]) started and answered a query" in spark["detail"]


OTHER = """
import collections, sys

Version = collections.namedtuple("Version", "major minor micro releaselevel serial")
sys.version_info = Version(3, sys.version_info.minor + 1, 0, "final", 0)
"""
LACKING = """
import importlib.abc, sys


class NoneOf(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, NoneOf())
"""


@pytest.mark.campaign
@pytest.mark.usefixtures("project", "classic")
@pytest.mark.parametrize(
    ("site", "what"),
    [
        (OTHER, "Spark's workers run Python 3."),
        (LACKING, "Spark's workers have no module pyarrow"),
    ],
)
def test_workers_whose_python_does_not_fit_are_refused_before_anything_is_claimed(
    site: str, what: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.folder / "other_python"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(site)
    (folder / "python").write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(folder / "python"))
    name = f"unfit_{what.rpartition(' ')[2].strip('.').lower()}"
    project.topic(name, partitions=1)
    project.declare(name, topic=name)
    project.produce(name, 0, 30, partitions=1)
    done = command(project.folder, "run", "--until-caught-up")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert what in said
    assert "PYSPARK_PYTHON" in said
    assert project.sql("select count(*) from kafka_publication where committed_attempt is not null") == 0
    looked = command(project.folder, "doctor", "--deep", "--json")
    [workers] = [one for one in json.loads(looked.stdout) if one["check"] == "spark workers"]
    assert (looked.returncode, workers["status"]) == (1, "failed"), looked.stdout + looked.stderr
    assert what in workers["detail"]
