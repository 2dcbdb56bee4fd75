"""`bench publish`: figures with their limit, nothing left behind, and a cure where no database is up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from kafka_assets.audit.bench import database_url
from kafka_assets.audit.generated import SCHEMA, Orders
from kafka_assets.cli import app
from kafka_assets.errors import UsageError
from kafka_assets.settings import load_settings


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.delenv("KAFKA_ASSETS_DATABASE_URL", raising=False)


@pytest.mark.slow
@pytest.mark.parametrize("named", [[], ["--database", "sqlite"]])
def test_the_publisher_is_measured_against_the_database_and_nothing_stays(named: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "publish", *named, "--records", "1000", "--json"])
    assert done.exit_code == 0, done.output
    limit, published = json.loads(done.stdout)
    assert set(limit) == {"name", "value", "unit", "against", "ratio"}
    assert published["against"] == limit["name"]
    assert published["ratio"] == pytest.approx(published["value"] / limit["value"], abs=0.01)
    assert published["unit"] == "rows/s"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.campaign
def test_a_tick_with_a_history_is_measured_against_one_with_little(tmp_path: Path) -> None:
    """Small, and with a bound that a busy machine keeps: what it takes is told, not tested."""
    done = CliRunner().invoke(app, ["bench", "tick", "--keys", "500", "--rounds", "5", "--json"])
    assert done.exit_code == 0, done.output
    idle_few, idle, new_few, new = json.loads(done.stdout)
    assert (idle["against"], new["against"]) == (idle_few["name"], new_few["name"])
    assert idle["ratio"] < 4
    assert new["ratio"] < 4
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_not_up_names_the_command_that_starts_it() -> None:
    with pytest.raises(UsageError, match="up --with mariadb"):
        database_url(load_settings(), "mariadb")
    with pytest.raises(UsageError, match="postgresql"):
        database_url(load_settings(), "oracle")


def test_a_url_is_taken_as_it_is() -> None:
    url = "postgresql://me@nowhere/mine"
    assert make_url(database_url(load_settings(), url)).host == "nowhere"


def test_the_records_are_orders_of_about_two_hundred_bytes() -> None:
    [table] = Orders(1000).tables()
    assert table.schema == SCHEMA
    sizes = [len(json.dumps(row, default=str)) for row in table.to_pylist()]
    assert 180 < sum(sizes) / len(sizes) < 280
