"""Who holds a database connection: named so that a frozen holder can be ended, and a reused number is not.

SQLite's locks belong to a process, so its backend is (host, pid, start of the process). No client
can end another process's transaction there: a frozen holder is named, and its user ends it.
"""

from __future__ import annotations

import os
import socket
from functools import cache

import psutil
from sqlalchemy import Connection, Engine


def backend_of(connection: Connection) -> str:
    """The name of this connection's holder, to be written into a claim before it does anything."""
    if connection.dialect.name == "sqlite":
        return own_process()
    raise NotImplementedError(connection.dialect.name)


def terminate(engine: Engine, backend: str) -> bool:
    """End what `backend` names and see it gone; False where that is not to be had (SQLite, and it lives)."""
    if engine.dialect.name == "sqlite":
        return not _lives(backend)
    raise NotImplementedError(engine.dialect.name)


@cache
def own_process() -> str:
    return f"sqlite:{socket.gethostname()}:{os.getpid()}:{_start_of(os.getpid())}"


def pid_of(backend: str) -> str:
    """The part of a SQLite backend's name that a user can act on."""
    _, host, pid, _ = backend.split(":")
    return f"pid {pid} on {host}"


def _lives(backend: str) -> bool:
    _, host, pid, start = backend.split(":")
    if host != socket.gethostname():
        return True
    return _start_of(int(pid)) == start


def _start_of(pid: int) -> str | None:
    """When a process began, to the hundredth of a second: with its pid, a name that is never used again."""
    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.NoSuchProcess:
        return None
