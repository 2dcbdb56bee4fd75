"""Who holds a database connection: named so that a frozen holder can be ended, and a reused number is not.

A server's backend is its number and a start: PostgreSQL uses pids again, MySQL and MariaDB count their
connections anew at each restart. Whoever ends a backend is of the same database role as its owner.
SQLite's locks belong to a process, so its backend is (host, pid, start of the process). No client
can end another process's transaction there: a frozen holder is named, and its user ends it.
"""

from __future__ import annotations

import os
import socket
import time
from functools import cache

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from kafka_assets.birth import birth
from kafka_assets.errors import LedgerBusy, SettingsError
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.trouble import code_of

GONE_SECONDS = 10
"""How long a backend that was told to end may take until it is gone: it rolls back first."""

_PG_START = "CAST(extract(epoch FROM backend_start) * 1000000 AS BIGINT)"
_PG_OWN = f"SELECT pid, {_PG_START} FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_PG_END = text(
    f"SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE pid = :number AND {_PG_START} = :start"
)
_PG_STRANGER = text("SELECT usename FROM pg_stat_activity WHERE pid = :number AND backend_start IS NULL")
_NO_SUCH_THREAD, _NOT_OWNER = 1094, 1095


def backend_of(connection: Connection) -> str:
    """The name of this connection's holder, to be written into a claim before it does anything."""
    database = connection.dialect.name
    if database == "sqlite":
        return own_process()
    if database == "postgresql":
        number, start = connection.exec_driver_sql(_PG_OWN).one()
    else:
        number, start = _mysql_number_and_start(connection)
    return f"{database}:{number}:{start}"


def unconnected(engine: Engine) -> str | None:
    """What a claim names while its publisher has no connection yet: a server knows nobody to end."""
    return own_process() if engine.dialect.name == "sqlite" else None


def terminate(engine: Engine, backend: str) -> bool:
    """End what `backend` names and see it gone; False where that is not to be had (SQLite, and it lives)."""
    if engine.dialect.name == "sqlite":
        return not _lives(backend)
    _, number, start = backend.split(":")
    end = _end_postgresql if engine.dialect.name == "postgresql" else _end_mysql
    deadline = time.monotonic() + GONE_SECONDS
    while not end(engine, int(number), int(start)):
        if time.monotonic() > deadline:
            raise LedgerBusy(
                f"backend {number} of the database was told to end, and is still there after {GONE_SECONDS} s",
                why="it may be rolling back much, or wait for its disk",
                cure="nothing: it is asked again; if it stays, end it by hand on the server",
            )
        time.sleep(0.02)
    return True


@cache
def own_process() -> str:
    return f"sqlite:{socket.gethostname()}:{os.getpid()}:{birth(os.getpid())}"


os.register_at_fork(after_in_child=own_process.cache_clear)  # else a child would go by its parent's name


def pid_of(backend: str) -> str:
    """The part of a SQLite backend's name that a user can act on."""
    _, host, pid, _ = backend.split(":")
    return f"pid {pid} on {host}"


def _end_postgresql(engine: Engine, number: int, start: int) -> bool:
    """One request to end; True when there is no such backend any more."""
    # A transaction of its own each time: within one, PostgreSQL shows the same activity for ever.
    with read(engine) as connection:
        if connection.execute(_PG_END, {"number": number, "start": start}).first() is not None:
            return False
        stranger = connection.scalar(_PG_STRANGER, {"number": number})
    if stranger is not None:
        raise _other_role(number, stranger)
    return True


def _end_mysql(engine: Engine, number: int, start: int) -> bool:
    with read(engine) as connection:
        if _mysql_number_and_start(connection)[1] != start:
            return True  # the server was restarted since: the number is somebody else's now
        try:
            connection.exec_driver_sql(f"KILL {number}")
        except DBAPIError as error:
            if code_of(error) == _NOT_OWNER:
                raise _other_role(number, "another user") from error
            if code_of(error) != _NO_SUCH_THREAD:
                raise
            return True
    return False


def _mysql_number_and_start(connection: Connection) -> tuple[int, int]:
    """Both times are the statement's own, so that their difference is the server's start exactly."""
    room = "information_schema" if getattr(connection.dialect, "is_mariadb", False) else "performance_schema"
    row = connection.exec_driver_sql(
        "SELECT CONNECTION_ID(), CAST(UNIX_TIMESTAMP() - VARIABLE_VALUE AS SIGNED)"
        f" FROM {room}.global_status WHERE VARIABLE_NAME = 'Uptime'"
    ).one()
    return int(row[0]), int(row[1])


def _other_role(number: int, role: str) -> SettingsError:
    return SettingsError(
        f"backend {number} of the database cannot be ended: it belongs to {role}",
        why="a claim names it, and only the same database role may see and end it",
        cure="let the sensor and all runs use one database role (KAFKA_ASSETS_DATABASE_URL)",
    )


def _lives(backend: str) -> bool:
    _, host, pid, start = backend.split(":")
    if host != socket.gethostname():
        return True
    return birth(int(pid)) == start
