"""`bench publish`: figures with their limit, nothing left behind, and a cure where no database is up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from kafka_assets.audit import bench_ledger
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
@pytest.mark.parametrize(
    "what", [["tick", "--keys", "200", "--rounds", "3"], ["ledger", "--slices", "20000", "--rounds", "1"]]
)
def test_history_is_measured_against_little_of_it_and_nothing_stays(
    what: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes is told, and not tested: `test_history` counts what is read."""
    monkeypatch.setattr(bench_ledger, "LITTLE", 2_000)
    done = CliRunner().invoke(app, ["bench", *what, "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert len(figures) >= 4
    for few, many in zip(figures[::2], figures[1::2], strict=True):
        assert set(few) == {"name", "value", "unit", "against", "ratio"}
        assert (many["against"], many["unit"]) == (few["name"], few["unit"])
        assert many["ratio"] > 0
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
