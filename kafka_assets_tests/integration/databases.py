"""A migrated ledger on a real server, emptied for each test: making one takes a second or more."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, inspect, make_url, text

from kafka_assets.ledger.engine import make_engine, parse_url
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.ledger.tables import TABLES

DATABASES = ["postgresql", "mariadb", "mysql"]
LOCK_SECONDS = 2
_BY_THE_SYSTEM = ("SET GLOBAL innodb_flush_log_at_trx_commit = 2",)
UNSYNCED = {
    "postgresql": ("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"),
    "mariadb": _BY_THE_SYSTEM,
    "mysql": (*_BY_THE_SYSTEM, "SET GLOBAL sync_binlog = 0"),
}
"""Servers are killed in tests, and lose nothing by it; none loses its power, for which each commit would wait."""


_numbers = itertools.count(1)


@contextmanager
def ledger(server: str) -> Generator[Engine]:
    """A database of its own with a ledger; dropped afterwards, whoever is still connected."""
    url, name = parse_url(server), f"ledger_{os.getpid()}_{next(_numbers)}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        for setting in UNSYNCED[url.get_backend_name()]:
            connection.execute(text(setting))
    engine = make_engine(make_url(url).set(database=name), lock_seconds=LOCK_SECONDS)
    try:
        ensure_schema(engine)
        yield engine
    finally:
        engine.dispose()
        with admin.connect() as connection:
            force = " WITH (FORCE)" if url.get_backend_name() == "postgresql" else ""
            connection.execute(text(f"DROP DATABASE {name}{force}"))
        admin.dispose()


def emptied(engine: Engine) -> Engine:
    """The ledger as it was when it was new, and none of the tables that tests made."""
    admin = _admin(engine.url)
    postgresql = engine.dialect.name == "postgresql"
    kept = {table.name for table in TABLES} | {"kafka_ledger_version"}
    quote = engine.dialect.identifier_preparer.quote_identifier
    listed = [quote(table.name) for table in TABLES if table.name != "kafka_ledger_version"]
    with admin.connect() as connection:
        connection.exec_driver_sql(
            "SET session_replication_role = replica" if postgresql else "SET SESSION foreign_key_checks = 0"
        )
        for name in set(inspect(connection).get_table_names()) - kept:
            connection.exec_driver_sql(f"DROP TABLE {quote(name)}")
        # A handful of rows: TRUNCATE would make new files for each table and its indexes.
        deletions = [f"DELETE FROM {table}" for table in listed]
        for statement in ["; ".join(deletions)] if postgresql else deletions:
            connection.exec_driver_sql(statement)
    return engine


@cache
def _admin(url: URL) -> Engine:
    """Who empties a ledger; with its first connection an engine asks the server a good deal."""
    return create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)


@contextmanager
def held(engine: Engine, statement: str) -> Generator[Connection]:
    """A transaction of somebody else's, on a connection of its own, that ran this and holds what it locked."""
    other = make_engine(engine.url, lock_seconds=LOCK_SECONDS)
    with other.connect() as connection, connection.begin():
        connection.execute(text(statement))
        yield connection
        connection.rollback()
    other.dispose()


def kill_backend(engine: Engine, backend: str) -> None:
    """What an administrator does: not the ledger's own code."""
    number = backend.split(":")[1]
    admin = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_terminate_backend({number}, 5000)"))
        else:
            connection.execute(text(f"KILL {number}"))
            time.sleep(0.2)
    admin.dispose()
