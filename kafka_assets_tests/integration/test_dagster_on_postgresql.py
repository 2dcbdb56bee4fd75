"""A Dagster instance on PostgreSQL, as docs/assets.md writes it: tick, run, keys and materializations are there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import ProgrammingError

from kafka_assets.errors import SettingsError
from kafka_assets.ledger.dagster_storage import refuse_storage
from kafka_assets_tests.integration.project import Landing

Declare = Callable[..., Landing]
PAGE = Path(__file__).parents[2] / "docs" / "assets.md"
STANDARD_WORKS = make_url("postgresql://db/x").get_dialect().driver == "psycopg2"
"""With SQLAlchemy 2.0; with 2.1 the page has a line more."""
REFUSED = ["postgresql+psycopg", *([] if STANDARD_WORKS else [None])]


def written(home: Path, url: str, *, scheme: str | None = None) -> Path:
    """The page's dagster.yaml, with this database in the place of its example."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    [config] = [yaml.safe_load(block) for block in blocks if block.startswith("storage:")]
    here = make_url(url)
    database = config["storage"]["postgres"]["postgres_db"]
    database |= {"hostname": here.host, "port": here.port, "username": here.username, "password": here.password}
    database |= {"db_name": here.database, **({"scheme": scheme} if scheme else {})}
    home.mkdir()
    (home / "dagster.yaml").write_text(yaml.safe_dump({**config, "telemetry": {"enabled": False}}), encoding="utf-8")
    return home


def test_what_lands_is_told_to_a_dagster_on_postgresql(
    landing: Declare, postgresql_database: str, tmp_path: Path
) -> None:
    home = written(tmp_path / "home", postgresql_database, scheme=None if STANDARD_WORKS else "postgresql+psycopg2")
    refuse_storage({"DAGSTER_HOME": str(home)})
    with dg.DagsterInstance.from_config(str(home)) as instance:
        stream = replace(landing(slices={"max_delay": "0ms", "max_records": 10}), instance=instance)
        stream.topic(partitions=2)
        stream.produce_ids(0, 30)
        stream.produce_ids(30, 45, partition=1)
        found = stream.land()
        assert found.troubles == []
        keys = stream.keys()
        assert len(keys) == 5
        assert set(instance.get_materialized_partitions(dg.AssetKey(stream.name))) == set(keys)
        assert instance.get_runs_count() == len(found.requests)
        assert all(run.status == dg.DagsterRunStatus.SUCCESS for run in instance.get_runs())
        # A backfill replaces, and what a lost run did not tell is told by the next tick.
        assert stream.replay(keys[0]).success
        instance.wipe_assets([dg.AssetKey(stream.name)])
        stream.cursor = None
        assert len(stream.tick().events) == len(keys)
    assert stream.sql(f"select count(*) from {stream.name}") == 45
    assert stream.sql("select count(*) from kafka_gap") == 0

    engine = create_engine(make_url(postgresql_database).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        there: Any = connection.execute(text("select partition from dynamic_partitions order by id")).scalars().all()
        assert list(there) == keys, "the keys are in that database, in their order"
        assert connection.scalar(text("select count(*) from runs")) == len(found.requests) + 1
    engine.dispose()


@pytest.mark.parametrize("scheme", REFUSED)
def test_an_instance_that_is_refused_could_indeed_store_no_event(
    postgresql_database: str, tmp_path: Path, scheme: str | None
) -> None:
    home = written(tmp_path / "home", postgresql_database, scheme=scheme)
    with pytest.raises(SettingsError, match="no run's event could be stored"):
        refuse_storage({"DAGSTER_HOME": str(home)})
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        pytest.raises(ProgrammingError, match="syntax error"),
    ):
        instance.report_runless_asset_event(dg.AssetMaterialization("orders", partition="orders:0:0-1"))
