"""What each driver is told when it connects: timeouts, UTC, strictness, and who begins a transaction."""

from __future__ import annotations

import shlex
import socket
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from sqlalchemy import URL, Connection, Dialect, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor

from kafka_assets.errors import LedgerBusy, SettingsError
from kafka_assets.settings import STATE, make_private

CONNECT_SECONDS = 10
"""How long a server may take to let a client in, and for each answer on the way."""
_STRICT = (
    "STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)


def make_sqlite_folder(url: URL) -> None:
    """Make the folder of the database's file: for who makes the ledger, and nobody else.

    A command that only looks leaves nothing behind, least of all a folder that would make its place a project.
    """
    folder = require_sqlite_folder(url)
    try:
        make_private(folder)
    except OSError as error:
        raise SettingsError(
            f"the folder {folder} for the database cannot be made", why=str(error), cure="choose another place"
        ) from error


def require_sqlite_folder(url: URL) -> Path:
    """The folder of the database's file: one that is there, or that `make_sqlite_folder` may make.

    That is a project's own alone: another one that is not there is one that was mistyped, and an empty ledger in it
    would land everything again.
    """
    folder = Path(url.database or "").parent
    if not folder.is_dir() and not (folder.name == STATE and folder.resolve().parent.is_dir()):
        raise SettingsError(
            f"the folder {folder} for the database is not there",
            why=f"only {STATE} of a project is made by itself: in a folder that was mistyped a new ledger would begin",
            cure=f"correct KAFKA_ASSETS_DATABASE_URL, or make it: mkdir -p {shlex.quote(str(folder))}",
        )
    return folder


def keep_to_file(engine: Engine) -> None:
    """SQLite makes a file that is not there. Where this engine has met it once, it was taken away since."""
    met = False

    def look(dialect: Dialect, record: object, given: Any, named: dict[str, Any]) -> None:
        name = str(given[0])
        if met and not name.startswith(("file:", ":memory:")) and not Path(name).exists():
            raise SettingsError(
                f"the database {name} is not there any more",
                why="its file was moved or deleted, or its disk is gone, while it was worked with",
                cure="bring it back: what was committed is in it. A new one would land everything again",
            )

    def remember(connection: DBAPIConnection, record: object) -> None:
        nonlocal met
        met = True

    event.listen(engine, "do_connect", look)
    event.listen(engine, "connect", remember)


def sqlite_arguments(lock_seconds: int) -> dict[str, Any]:
    # isolation_level=None: the driver begins nothing of its own, so that every BEGIN is one of ours.
    return {"timeout": lock_seconds, "isolation_level": None, "check_same_thread": False}


def postgresql_arguments(url: URL, lock_seconds: int, idle_seconds: int) -> tuple[URL, dict[str, Any]]:
    settings = {
        "timezone": "UTC",
        "lock_timeout": f"{lock_seconds}s",
        "idle_in_transaction_session_timeout": f"{idle_seconds}s",
    }
    given = url.query.get("options", "")
    options = " ".join([*([given] if isinstance(given, str) else given), *(f"-c {k}={v}" for k, v in settings.items())])
    defaults = {
        "application_name": "kafka_assets",
        "connect_timeout": CONNECT_SECONDS,
        # A host that is gone is noticed within half a minute, not within the two hours of TCP's default.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    arguments = {name: value for name, value in defaults.items() if name not in url.query}
    return url.difference_update_query(["options"]), {**arguments, "options": options.strip()}


def mysql_arguments(lock_seconds: int) -> dict[str, Any]:
    try:
        from pymysql.constants import CLIENT
    except ModuleNotFoundError:
        return {}  # create_engine says so
    return {
        "charset": "utf8mb4",
        # Of each answer, too, while the connection is made; later `MySQLConnection` says how long.
        **dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), CONNECT_SECONDS),
        # Off, whatever the URL says, and yet LOAD DATA LOCAL is understood: `MySQLConnection.load` sends no files.
        "local_infile": False,
        # An UPDATE that finds its row counts it, even where it changes nothing: compare-and-set relies on it.
        "client_flag": CLIENT.FOUND_ROWS | CLIENT.LOCAL_FILES,
        "init_command": f"SET time_zone = '+00:00', sql_mode = '{_STRICT}', "
        f"innodb_lock_wait_timeout = {lock_seconds}, lock_wait_timeout = {lock_seconds}",
    }


def connect_mysql(dialect: Dialect, record: object, given: Any, named: dict[str, Any]) -> DBAPIConnection:
    from kafka_assets.ledger.mysql_connection import open_connection

    return cast(DBAPIConnection, open_connection(named))


def keep_alive(connection: Any, record: object) -> None:
    """As in `postgresql_arguments`: pymysql's own keepalive has the system's default, two hours."""
    if connection._sock.family == socket.AF_UNIX:
        return
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            connection._sock.setsockopt(socket.IPPROTO_TCP, option, value)


def idle_timeout(seconds: int) -> Any:
    def prepare(connection: Any, record: object) -> None:
        maria = "mariadb" in str(connection.get_server_info()).lower()
        with connection.cursor() as cursor:
            cursor.execute(_mysql_idle_timeout(seconds, maria=maria))

    return prepare


def set_idle_timeout(connection: Connection, seconds: int) -> None:
    """How long the server keeps this transaction while its client says nothing; 0: for ever.

    On MySQL and MariaDB it is the session's, and no connection here outlives its transaction.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{seconds}s'")
    elif connection.dialect.name != "sqlite":
        maria = bool(getattr(connection.dialect, "is_mariadb", False))
        connection.exec_driver_sql(_mysql_idle_timeout(seconds, maria=maria))


def set_lock_timeout(connection: Connection, seconds: int) -> None:
    """How long this transaction's statements wait for a lock; on MySQL and MariaDB its DDL's."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{seconds}s'")
    elif connection.dialect.name != "sqlite":
        connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {seconds}")


@contextmanager
def patient(connection: Connection, seconds: int) -> Generator[None]:
    """Wait longer for a row's lock in this block, where giving up means to read everything again."""
    names = {"postgresql": ("SHOW lock_timeout", "SET LOCAL lock_timeout = '{}'", f"{seconds}s")}
    mysql = ("SELECT @@innodb_lock_wait_timeout", "SET SESSION innodb_lock_wait_timeout = {}", seconds)
    if connection.dialect.name == "sqlite":
        yield  # its one lock is held since BEGIN
        return
    ask, change, longer = names.get(connection.dialect.name, mysql)
    before = connection.exec_driver_sql(ask).scalar()
    connection.exec_driver_sql(change.format(longer))
    yield
    connection.exec_driver_sql(change.format(before))


def _mysql_idle_timeout(seconds: int, *, maria: bool) -> str:
    # MySQL has no timeout for idle transactions; here a connection is never idle outside of one.
    name, off = ("idle_transaction_timeout", 0) if maria else ("wait_timeout", 28800)
    return f"SET SESSION {name} = {seconds or off}"


def packet_limit(connection: Connection) -> int:
    """How many bytes a statement of this connection may have, on MySQL and MariaDB."""
    return int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())


def require_returning(engine: Engine) -> None:
    version: tuple[int, ...] = engine.dialect.dbapi.sqlite_version_info  # type: ignore[union-attr]
    if version < (3, 35):
        raise SettingsError(
            f"SQLite {'.'.join(map(str, version))} is too old",
            why="the ledger needs 3.35 (RETURNING), and Python brings its own",
            cure="use a Python with a newer SQLite, or PostgreSQL",
        )


def prepare_sqlite(connection: DBAPIConnection, record: object) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = FULL")  # in WAL, NORMAL may lose the last commits with the power
        _write_ahead(cursor)
    finally:
        cursor.close()


def _write_ahead(cursor: DBAPICursor) -> None:
    """Let readers and the writer work side by side, from the file's first transaction on.

    This change alone SQLite refuses at once where another connection is at work, as when two processes meet a new
    file; so the waiting that is SQLite's everywhere else is done here.
    """
    cursor.execute("PRAGMA busy_timeout")
    deadline = time.monotonic() + cursor.fetchall()[0][0] / 1000
    while True:
        cursor.execute("PRAGMA journal_mode")
        if cursor.fetchall() == [("wal",)]:
            return
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("kafka_assets_begin", "BEGIN"))


def stay_in_transaction(connection: Connection, cursor: Any, statement: str, *_: object) -> None:
    """Outside of a transaction each statement of SQLite's commits by itself, and SAVEPOINT begins one that commits.

    Where a disk is full, or does not answer, SQLite ends the transaction of its own accord: nothing may follow in it.
    """
    if cursor.connection.in_transaction or statement.startswith("BEGIN"):
        return
    raise LedgerBusy(
        "the database has ended the transaction before its end",
        why="SQLite rolls a transaction back by itself after an error in writing, as when its disk is full",
        cure="the whole transaction is tried again; if it stays so, look at the error before, and at the disk",
    )
