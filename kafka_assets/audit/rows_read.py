"""How many rows the statements on an engine read: what grows with history, on a machine of any speed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, event, text

_POSTGRESQL = text(
    "SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0) FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'i') AND n.nspname !~ '^pg_'"
)
"""Of tables that are scanned, and of indexes; of this transaction alone. Parallel workers are not in it."""
_MYSQL = "SHOW SESSION STATUS LIKE 'Handler\\_read\\_%%'"


@dataclass
class Reads:
    """What was read so far: rows and index entries; on SQLite steps of its machine, which come to a few for each."""

    count: int = 0
    unit: str = "rows"


@contextmanager
def rows_read(engine: Engine) -> Generator[Reads]:
    """Count in this block, on connections that are made in it; not for measuring time, which counting takes."""
    reads = Reads()
    name = engine.dialect.name
    if name == "sqlite":
        reads.unit = "steps"
        listeners = {"connect": _steps(reads)}
    elif name == "postgresql":
        listeners = {"connect": _without_workers, "commit": _postgresql(reads), "rollback": _postgresql(reads)}
    else:
        listeners = {"checkin": _mysql(reads)}
    for what, listener in listeners.items():
        event.listen(engine, what, listener)
    try:
        yield reads
    finally:
        for what, listener in listeners.items():
            event.remove(engine, what, listener)


def _steps(reads: Reads) -> Callable[..., None]:
    def step() -> int:
        reads.count += 1
        return 0

    def connected(connection: Any, record: object) -> None:
        connection.set_progress_handler(step, 1)

    return connected


def _without_workers(connection: Any, record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET max_parallel_workers_per_gather = 0")
    connection.commit()


def _postgresql(reads: Reads) -> Callable[..., None]:
    def ending(connection: Connection) -> None:
        pgconn: Any = connection.connection.dbapi_connection
        if pgconn.info.transaction_status == pgconn.info.transaction_status.INTRANS:
            with pgconn.cursor() as cursor:
                [[read]] = cursor.execute(_POSTGRESQL.text).fetchall()
            reads.count += int(read)

    return ending


def _mysql(reads: Reads) -> Callable[..., None]:
    def ending(connection: Any, record: object) -> None:
        if connection is None:
            return
        with connection.cursor() as cursor:
            cursor.execute(_MYSQL.replace("%%", "%"))
            reads.count += sum(int(value) for _, value in cursor.fetchall())

    return ending
