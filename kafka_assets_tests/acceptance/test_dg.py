"""`dg` on this project itself: what `dg dev` would serve is checked, listed, and loads without a warning of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_assets_tests.acceptance.dg_dev import dg_dev, first_ticks, served

REPOSITORY = Path(__file__).parents[2]
ASSETS = {"customers", "kafka/customers", "kafka/orders", "order_totals", "orders", "shop_books", "shop_report"}
SENSORS = {"kafka_health", "kafka_slices"}


def outside() -> dict[str, str]:
    """The environment, without what would be set for this project."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_ASSETS_")}


def run(tool: str, *command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [Path(sys.executable).with_name(tool), *command],
        cwd=REPOSITORY,
        env={
            **outside(),
            "DAGSTER_HOME": "",
            "DG_CLI_DISABLE_TELEMETRY": "1",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def dg(*command: str) -> str:
    done = run("dg", *command)
    assert "Deprecat" not in done.stderr and "Superseded" not in done.stderr, done.stderr
    return done.stdout


def test_the_project_is_checked_and_its_definitions_listed() -> None:
    assert "loaded successfully" in dg("check", "defs")
    listed = json.loads(dg("list", "defs", "--json"))
    assert {one["asset_key"] for one in listed["assets"]} == ASSETS
    assert {one["name"] for one in listed["sensors"]} == SENSORS


def test_the_workspace_file_names_the_code_location() -> None:
    done = run("dagster", "definitions", "validate", "-w", "workspace.yaml")
    assert "Validation successful for code location kafka_assets." in done.stdout + done.stderr


@pytest.mark.campaign  # the same is tested each time of the wheel, in a project of somebody else's
def test_its_component_is_listed() -> None:
    assert "kafka_assets.KafkaTopic" in dg("list", "components")


@pytest.mark.campaign  # `dg dev` on a project of somebody else's is tested each time
def test_dg_dev_serves_it_and_its_sensor_ticks(tmp_path: Path) -> None:
    env = {
        **outside(),
        "KAFKA_ASSETS_HOME": str(tmp_path),
        "KAFKA_ASSETS_STREAMS": str(REPOSITORY / "kafka_assets" / "defs"),
        "KAFKA_ASSETS_DATABASE_URL": f"sqlite:///{tmp_path / 'warehouse.db'}",
    }
    with dg_dev(REPOSITORY, tmp_path / "dagster", env) as ask:
        found = served(ask)
        assert found["assets"] == ASSETS
        assert found["sensors"] == SENSORS
        ticks = first_ticks(ask, found, "kafka_slices")
        assert {one["status"] for one in ticks} == {"SKIPPED"}, ticks
        assert "kafka-assets up" in ticks[0]["skipReason"], "there is no broker, and the reason says what to do"
