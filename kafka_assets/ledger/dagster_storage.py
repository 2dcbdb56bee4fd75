"""Whether a Dagster instance that keeps its events in PostgreSQL works with the SQLAlchemy that is installed here.

Of a URL that names no driver, SQLAlchemy 2.1 makes one for psycopg 3, and 2.0 one for psycopg2. Dagster's storage
speaks to psycopg2 alone: with the other no event is stored, so that every run of every asset fails at its start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import sqlalchemy
import yaml
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from kafka_assets.errors import SettingsError

FILE = "dagster.yaml"
_PACKAGE = "dagster_postgres"


def refuse_storage(environ: Mapping[str, str] | None = None) -> None:
    """Raise SettingsError where the instance of the environment's DAGSTER_HOME could store no event.

    Nothing is connected to, and nothing is said of an instance that is not set here.
    """
    env = os.environ if environ is None else environ
    if not (home := env.get("DAGSTER_HOME")):
        return
    file = Path(home).expanduser() / FILE
    for config in _of_postgresql(_read(file)):
        if _driver(config, env) == "psycopg":
            raise SettingsError(
                "Dagster's own storage cannot work here: no run's event could be stored",
                why=f"{file} names a PostgreSQL without its driver or with psycopg 3; dagster-postgres needs "
                f"psycopg2, and SQLAlchemy {sqlalchemy.__version__} takes psycopg 3 where nothing is said",
                cure="pip install 'SQLAlchemy<2.1'; or write `scheme: postgresql+psycopg2` under postgres_db, "
                "or begin postgres_url with postgresql+psycopg2://",
            )


def _read(path: Path) -> Mapping[str, Any]:
    """The instance's settings; none where Dagster itself would say that it cannot read them."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else {}


def _of_postgresql(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The configurations of dagster-postgres for what holds events, in the three forms that dagster.yaml knows."""
    storage = _table(settings.get("storage"))
    yield _table(storage.get("postgres"))
    for named in (_table(storage.get("custom")), _table(settings.get("event_log_storage"))):
        if str(named.get("module", "")).partition(".")[0] == _PACKAGE:
            yield _table(named.get("config"))


def _driver(config: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """The driver that SQLAlchemy takes for such a configuration; None where it names no database."""
    if (database := config.get("postgres_db")) is not None:
        name = _value(_table(database).get("scheme", "postgresql"), environ) + "://"
    elif (url := config.get("postgres_url")) is not None:
        name = _value(url, environ)
    else:
        return None
    try:
        return make_url(name).get_dialect().driver
    except (ArgumentError, NoSuchModuleError, ValueError):
        return None  # Dagster says what is wrong with it


def _value(said: object, environ: Mapping[str, str]) -> str:
    """A text, or the variable of the environment that `{env: NAME}` stands for."""
    if isinstance(said, dict):
        return environ.get(str(cast(dict[str, Any], said).get("env")), "")
    return str(said)


def _table(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}
