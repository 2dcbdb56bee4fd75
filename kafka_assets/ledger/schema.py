"""The ledger's schema in a database: made, migrated, and refused where it is not this code's."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, select

from kafka_assets.errors import LedgerBusy, LedgerMissing, UsageError
from kafka_assets.ledger import rendering
from kafka_assets.ledger.drivers import make_sqlite_folder, require_sqlite_folder
from kafka_assets.ledger.engine import read, shown, write
from kafka_assets.ledger.tables import TABLES, ledger_version

REVISION = "0004"
"""The revision that this code works with; revisions count up, so that older and newer can be told apart."""

_LOCK_SECONDS = 60
_ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps what it works on in a global: two threads would migrate each other's database."""


def ensure_schema(engine: Engine) -> None:
    """Make the ledger where there is none; refuse one of another version."""
    found = current_revision(engine)
    if found is None:
        upgrade(engine)
    elif found != REVISION:
        raise _other_version(engine, found)


def upgrade(engine: Engine) -> str | None:
    """Bring the ledger to this code's revision; the one it had before, None where there was no ledger."""
    if engine.dialect.name == "sqlite":
        make_sqlite_folder(engine.url)
    with _exclusively(engine) as connection:
        before = _revision(connection)
        if before == REVISION:
            return before
        if before is not None and before > REVISION:
            raise _other_version(engine, before)
        if before is None:
            _refuse_strangers(engine, connection)
            _make_version_table(connection)
        _migrate(connection)
    return before


def current_revision(engine: Engine) -> str | None:
    """The revision that the database's ledger stands at; None where it has no ledger, and one could be made."""
    if engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).exists():
        require_sqlite_folder(engine.url)
        return None  # SQLite would make the file
    with read(engine) as connection:
        return _revision(connection)


def require_schema(engine: Engine) -> None:
    """Refuse a database without this code's ledger; for commands that only look."""
    found = current_revision(engine)
    if found is None:
        raise LedgerMissing(
            f"the database at {shown(engine.url)} has no ledger",
            cure="run `kafka-assets db init`, or let the sensor plan",
        )
    if found != REVISION:
        raise _other_version(engine, found)


def render(dialect_name: str) -> str:
    """The whole schema as SQL: sqlite, postgresql, mariadb or mysql."""
    if dialect_name not in rendering.DRIVERS:
        raise UsageError(
            f"there is no ledger for {dialect_name!r}", cure=f"choose one of {', '.join(rendering.DRIVERS)}"
        )
    return rendering.script(dialect_name, revision=REVISION)


def dialect_name(engine: Engine | Connection) -> str:
    """The name of the database behind a connection: a mysql:// URL may lead to a MariaDB."""
    return "mariadb" if getattr(engine.dialect, "is_mariadb", False) else engine.dialect.name


def _make_version_table(connection: Connection) -> None:
    if not inspect(connection).has_table(ledger_version.name):
        for statement in rendering.version_statements(dialect_name(connection)):
            connection.exec_driver_sql(statement)


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, REVISION)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(ledger_version.name):
        return None
    return connection.scalar(select(ledger_version.c.version_num))


@contextmanager
def _exclusively(engine: Engine) -> Generator[Connection]:
    """A transaction that no other process's initialisation overlaps."""
    with write(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('kafka_assets ledger'))")
            yield connection
        elif engine.dialect.name == "sqlite":
            yield connection
        else:
            # MySQL commits at every CREATE: the lock belongs to the session, not to the transaction.
            name = "kafka_assets." + hashlib.sha256(str(engine.url.database).encode()).hexdigest()[:32]
            if connection.exec_driver_sql(f"SELECT GET_LOCK('{name}', {_LOCK_SECONDS})").scalar() != 1:
                raise LedgerBusy(
                    "another process is making the ledger",
                    why=f"it has held the lock {name} for {_LOCK_SECONDS} s",
                    cure="wait for it, then try again",
                )
            yield connection


def _refuse_strangers(engine: Engine, connection: Connection) -> None:
    """Tables with the ledger's names that no migration made are somebody else's.

    MySQL cannot undo a CREATE: what an interrupted initialisation left there has our columns, and is kept.
    """
    inspector = inspect(connection)
    standing = set(inspector.get_table_names())
    strangers = [table for table in TABLES if table.name in standing]
    if engine.dialect.name not in {"sqlite", "postgresql"}:
        strangers = [
            table
            for table in strangers
            if {column["name"] for column in inspector.get_columns(table.name)} != set(table.columns.keys())
        ]
    if strangers:
        raise LedgerMissing(
            f"the database at {shown(engine.url)} has a table {strangers[0].name}, but no ledger",
            why="the table was not made by kafka_assets, or its ledger lost kafka_ledger_version",
            cure="use another database (or schema) for the ledger, or rename that table",
        )


def _other_version(engine: Engine, found: str) -> LedgerMissing:
    newer = found > REVISION
    return LedgerMissing(
        f"the ledger at {shown(engine.url)} is of revision {found}, this code works with {REVISION}",
        why="a newer kafka_assets migrated it" if newer else "it was made by an older kafka_assets",
        cure="install that version of kafka_assets here, too" if newer else "run `kafka-assets db upgrade`",
    )
