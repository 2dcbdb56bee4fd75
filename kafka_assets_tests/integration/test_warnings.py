"""No warning is ours: with each one an error, definitions load, sensors tick, slices land, and checks are run.

What Dagster says of itself is left out by name where this package calls it: docs/testing.md lists that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_assets_tests.integration import warned
from kafka_assets_tests.integration.project import Landing

DECLARED = """
from kafka_assets import kafka_asset, slice_asset


@kafka_asset(
    topic="{name}", target="{name}", schema="id BIGINT NOT NULL, note STRING", name="{name}",
    slices={{"max_delay": "0ms"}}, keep_keys="30d", skip_when_behind={{"records": 100, "keep": 50}},
)
def landed(records):
    return records.where("id > 0")


@slice_asset(upstream=landed, target="{name}_totals", name="{name}_totals", scope="slice")
def totals(rows):
    return rows.selectExpr("count(*) AS records")
"""
IN_YAML = """
type: kafka_assets.KafkaTopic
attributes:
  topic: {name}
  target: {name}_by_key
  mode: upsert
  key: [id]
  schema: "id BIGINT NOT NULL, note STRING"
  freshness: 1h
"""


def run(landing: Landing, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    arguments = [str(folder), landing.broker, landing.spark_remote, landing.database_url, *more]
    return subprocess.run(
        [sys.executable, "-W", "error", str(warned.__file__), *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def declared(landing: object, tmp_path: Path) -> tuple[Landing, Path]:
    stream: Landing = landing()  # type: ignore[operator]
    stream.topic()
    stream.produce_ids(0, 20)
    folder = tmp_path / "defs"
    folder.mkdir()
    (folder / "landed.py").write_text(DECLARED.format(name=stream.name), encoding="utf-8")
    (folder / "by_key.yaml").write_text(IN_YAML.format(name=stream.name), encoding="utf-8")
    return stream, folder


def test_with_every_warning_an_error_all_goes_as_ever(declared: tuple[Landing, Path]) -> None:
    stream, folder = declared
    done = run(stream, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("24 checks\n")
    assert stream.sql(f"select count(*) from {stream.name}") == 19
    assert stream.sql(f"select count(*) from {stream.name}_by_key") == 20


def test_and_a_warning_would_be_an_error_there(declared: tuple[Landing, Path]) -> None:
    done = run(*declared, "--warns")
    assert done.returncode != 0
    assert "DeprecationWarning: for the test of this test" in done.stderr
