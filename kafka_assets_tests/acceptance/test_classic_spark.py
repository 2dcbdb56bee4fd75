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


def test_run_lands_by_a_classic_session(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    # The environment's master beats the file's endpoint, where nobody listens.
    monkeypatch.delenv("KAFKA_ASSETS_SPARK_REMOTE")
    monkeypatch.setenv("KAFKA_ASSETS_SPARK_MASTER", "local[2]")
    (project.folder / "kafka_assets.toml").write_text('spark_remote = "sc://localhost:1"\n')
    # Where this process has had a session of Spark Connect, pyspark's children would believe that they have one.
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    # Of the workers' Python: that of the session, and not the first on the PATH.
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    project.topic("classic")
    project.declare("classic", topic="classic", before=WORKER, body='records.withColumn("note", whose("note"))')
    project.produce("classic", 0, 300, bad_every=100)
    command = [str(Path(sys.executable).with_name("kafka-assets")), "run", "--until-caught-up", "--json"]
    done = subprocess.run(command, cwd=project.folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["caught_up"] is True
    assert project.sql("select count(*) from classic") == 297
    assert project.sql("select count(*) from kafka_quarantine") == 3
    assert project.sql("select min(note) || max(note) from classic") == sys.executable * 2
