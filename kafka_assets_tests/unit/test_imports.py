"""What a command loads: libraries that it does not need would take longer than all that it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine

HEAVY = {"alembic", "confluent_kafka", "dagster", "numpy", "pandas", "pyarrow", "pyspark", "sqlalchemy"}
STREAMS = """
type: kafka_assets.KafkaTopic
attributes: {topic: orders, target: orders, schema: id BIGINT}
"""
LOADS = """
import sys

from kafka_assets.cli import main

try:
    main()
except SystemExit as ended:
    assert ended.code in (None, 0, 1), ended.code  # 1: nothing of the stream was ever planned
print(*sys.modules, file=sys.stderr)
"""


def loaded(*command: str, **environ: str) -> set[str]:
    """Which of the heavy libraries a process has that carried out this command."""
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *command],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return HEAVY & set(done.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize("command", [["--help"], ["topics", "list", "--help"], ["ps", "--json"]])
def test_help_and_what_asks_nobody_load_nothing(command: list[str], tmp_path: Path) -> None:
    assert loaded(*command, KAFKA_ASSETS_HOME=str(tmp_path)) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "needed"),
    [
        (["lag"], {"confluent_kafka", "dagster", "numpy", "pyarrow", "sqlalchemy"}),
        (["streams"], {"confluent_kafka", "dagster", "numpy", "pyarrow", "sqlalchemy"}),
        (["slices", "orders"], {"dagster", "numpy", "pyarrow", "sqlalchemy"}),
        (["quarantine", "list"], {"dagster", "numpy", "pyarrow", "sqlalchemy"}),
    ],
    ids=["lag", "streams", "slices", "quarantine"],
)
def test_who_only_looks_loads_no_spark(command: list[str], needed: set[str], engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs" / "orders.yaml").write_text(STREAMS)
    environ = {
        "KAFKA_ASSETS_HOME": str(tmp_path),
        "KAFKA_ASSETS_STREAMS": str(tmp_path / "defs"),
        "KAFKA_ASSETS_DATABASE_URL": str(engine.url),
        "KAFKA_ASSETS_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    assert loaded(*command, **environ) == needed
