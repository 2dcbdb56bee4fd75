"""`dg` on this project itself: what `dg dev` would serve is checked, listed, and loads without a warning of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def dg(*command: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_ASSETS_")}
    done = subprocess.run(
        [Path(sys.executable).with_name("dg"), *command],
        cwd=REPOSITORY,
        env={
            **kept,
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
    assert "Deprecat" not in done.stderr and "Superseded" not in done.stderr, done.stderr
    return done.stdout


def test_the_project_is_checked_and_its_definitions_listed() -> None:
    assert "loaded successfully" in dg("check", "defs")
    listed = json.loads(dg("list", "defs", "--json"))
    assert {one["asset_key"] for one in listed["assets"]} == {
        "customers", "kafka/customers", "kafka/orders", "order_totals", "orders", "shop_books", "shop_report",
    }  # fmt: skip
    assert {one["name"] for one in listed["sensors"]} == {"kafka_health", "kafka_slices"}


def test_its_component_is_listed() -> None:
    assert "kafka_assets.KafkaTopic" in dg("list", "components")
