"""A Dagster instance on PostgreSQL that could store no event is refused before a run meets it."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import make_url

from kafka_assets.assets.definitions import build_definitions
from kafka_assets.audit.doctor import examine
from kafka_assets.errors import SettingsError
from kafka_assets.ledger.dagster_storage import refuse_storage

DATABASE = "{username: dagster, password: secret, hostname: db, db_name: dagster, port: 5432%s}"
STANDARD = f"storage: {{postgres: {{postgres_db: {DATABASE % ''}}}}}"
PSYCOPG_3 = f"storage: {{postgres: {{postgres_db: {DATABASE % ', scheme: postgresql+psycopg'}}}}}"
CUSTOM = (
    "storage: {custom: {module: dagster_postgres, class: DagsterPostgresStorage,"
    " config: {postgres_url: 'postgresql+psycopg://db/dagster'}}}"
)
OLD_FORM = (
    "event_log_storage: {module: dagster_postgres.event_log, class: PostgresEventLogStorage,"
    " config: {postgres_url: {env: EVENTS}}}"
)
STANDARD_WORKS = make_url("postgresql://db/x").get_dialect().driver == "psycopg2"
"""With SQLAlchemy 2.0, the line that the lock takes; with 2.1, which is allowed, it is one more that is refused."""
BROKEN = [PSYCOPG_3, CUSTOM, OLD_FORM, *([] if STANDARD_WORKS else [STANDARD])]
EVENTS = "postgresql+psycopg://dagster:secret@db/dagster"
WORKING = [
    *([STANDARD] if STANDARD_WORKS else []),
    "",
    "telemetry: {enabled: false}",
    "storage: {sqlite: {base_dir: history}}",
    f"storage: {{postgres: {{postgres_db: {DATABASE % ', scheme: postgresql+psycopg2'}}}}}",
    "storage: {postgres: {postgres_url: 'postgresql+psycopg2://dagster:secret@db/dagster'}}",
    "storage: {mysql: {mysql_url: 'mysql+mysqlconnector://db/dagster'}}",
    "storage: {postgres: {postgres_url: 'no url'}}",
    "storage: [",
]


def home(folder: Path, config: str) -> dict[str, str]:
    (folder / "dagster.yaml").write_text(config, encoding="utf-8")
    return {"DAGSTER_HOME": str(folder)}


@pytest.mark.parametrize("config", BROKEN)
def test_a_storage_with_the_driver_that_dagster_does_not_speak_to_is_refused(tmp_path: Path, config: str) -> None:
    with pytest.raises(SettingsError, match="no run's event could be stored") as refused:
        refuse_storage({"EVENTS": EVENTS, **home(tmp_path, config)})
    assert "SQLAlchemy<2.1" in refused.value.cure
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("config", WORKING)
def test_every_other_instance_is_taken(tmp_path: Path, config: str) -> None:
    refuse_storage(home(tmp_path, config))


def test_no_dagster_yaml_is_no_trouble(tmp_path: Path) -> None:
    refuse_storage({})
    refuse_storage({"DAGSTER_HOME": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("config", BROKEN)
def test_a_code_location_with_such_an_instance_is_refused_as_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    @dg.asset
    def plain() -> None: ...

    monkeypatch.setenv("EVENTS", EVENTS)
    monkeypatch.setenv("DAGSTER_HOME", home(tmp_path, config)["DAGSTER_HOME"])
    with pytest.raises(SettingsError, match="no run's event could be stored"):
        build_definitions([plain])


@pytest.mark.slow
@pytest.mark.parametrize("config", BROKEN)
def test_the_doctor_names_such_an_instance(tmp_path: Path, config: str) -> None:
    environ = {"EVENTS": EVENTS, **home(tmp_path, config)}
    found = {one.check: one for one in examine(tmp_path, environ=environ)}
    assert found["dagster"].status == "failed"
    assert "SQLAlchemy<2.1" in found["dagster"].cure
    home(tmp_path, "")
    assert "dagster" not in {one.check for one in examine(tmp_path, environ=environ)}
