"""A ledger of its own beside a database, for measuring: made for it, and gone afterwards."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from kafka_assets.errors import SettingsError
from kafka_assets.ledger.engine import make_engine, parse_url, shown
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.ledger.trouble import lost, refused_connection
from kafka_assets.settings import PREFIX as SETTING
from kafka_assets.settings import Settings

PREFIX = "kafka_assets_scratch_"


@contextmanager
def scratch_ledger(url: str) -> Generator[Engine]:
    """An empty ledger on the server (on SQLite: the disk) of this URL; what is in its database is not touched."""
    parsed = parse_url(url)
    place = _folder(parsed) if parsed.get_backend_name() == "sqlite" else _database(parsed)
    with place as found:
        engine = make_engine(found)
        try:
            ensure_schema(engine)
            yield engine
        finally:
            engine.dispose()


def scratch_environment(settings: Settings, engine: Engine, folder: Path) -> dict[str, str]:
    """The settings of a project in this folder, as an environment: it stands above whatever is set around us.

    Its streams are declared in `defs/`, its ledger is this one; broker and Spark are those of the settings.
    """
    named = {
        "HOME": str(folder),
        "STREAMS": str(folder / "defs"),
        "BOOTSTRAP_SERVERS": settings.require_broker(),
        "DATABASE_URL": engine.url.render_as_string(hide_password=False),
        "SPARK_REMOTE": settings.spark_remote or "",
        "SPARK_MASTER": settings.spark_master or "",
    }
    named |= {f"KAFKA__{name.upper().replace('.', '_')}": value for name, value in settings.kafka.items()}
    return {SETTING + name: value for name, value in named.items()}


@contextmanager
def _folder(url: URL) -> Generator[URL]:
    """Beside the file, or where it would be: another disk is another speed."""
    beside = next(one for one in Path(url.database or "").expanduser().resolve().parents if one.is_dir())
    try:
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=beside) as folder:
            yield url.set(database=str(Path(folder) / "ledger.db"))
    except OSError as error:
        raise SettingsError(
            f"no scratch ledger can be made in {beside}",
            why=str(error),
            cure="name a file in a folder that this user may write",
        ) from error


@contextmanager
def _database(url: URL) -> Generator[URL]:
    name = PREFIX + secrets.token_hex(4)
    _execute(url, f"CREATE DATABASE {name}")
    try:
        yield url.set(database=name)
    finally:
        _execute(url, f"DROP DATABASE {name}")


def _execute(url: URL, statement: str) -> None:
    admin = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    try:
        with admin.connect() as connection:
            connection.exec_driver_sql(statement)
    except DBAPIError as error:
        if error.statement is None or lost(error):
            raise refused_connection(admin, error) from error
        raise SettingsError(
            f"the scratch database could not be made or dropped in {shown(url)}",
            why=str(error.orig).strip(),
            cure="use a user who may create databases",
        ) from error
