"""Connections to the ledger's database, and the two doors through which every transaction goes.

Nothing autocommits, every transaction that writes is READ COMMITTED (SQLite: one writer, taken at BEGIN), and
nobody waits for ever: what the database reports as busy becomes :class:`LedgerBusy`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidRequestError, NoSuchModuleError

from kafka_assets.errors import OutcomeUnknown, SettingsError
from kafka_assets.ledger.drivers import (
    begin_sqlite,
    connect_mysql,
    idle_timeout,
    keep_alive,
    keep_to_file,
    mysql_arguments,
    postgresql_arguments,
    prepare_sqlite,
    require_returning,
    sqlite_arguments,
    stay_in_transaction,
)
from kafka_assets.ledger.trouble import lost, refused_connection, remember, translate, undecided
from kafka_assets.masks import UNREADABLE, masked_url

LOCK_SECONDS = 10
"""How long a statement waits for a lock before the whole transaction is given up, to be tried again."""
IDLE_SECONDS = 30
"""How long a server keeps a transaction of a client that says nothing: a frozen one must not hold locks."""
REST_SECONDS = 1
"""How long the connection of `shared_reads` may rest between two of them: a server may have ended an older one."""

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_PACKAGES = {"postgresql": "'psycopg[binary]'", "mysql": "PyMySQL cryptography", "mariadb": "PyMySQL cryptography"}
"""What brings a driver, by the names of who makes it: ours is on no index, where anybody could take it."""


def make_engine(url: str | URL, *, lock_seconds: int = LOCK_SECONDS, idle_seconds: int = IDLE_SECONDS) -> Engine:
    """An engine on the ledger's database; connects to nothing yet.

    A connection lives as long as its transaction: it is safe across threads and forks, and its
    backend is never one that an earlier claim named. `idle_seconds=0` lets a transaction pause.
    """
    parsed = parse_url(url)
    database = parsed.get_backend_name()
    # What records say must not come out in errors: they go into logs, and into Dagster's storage.
    options: dict[str, Any] = {"poolclass": NullPool, "hide_parameters": True}
    if database == "sqlite":
        options["connect_args"] = sqlite_arguments(lock_seconds)
    elif database == "postgresql":
        parsed, options["connect_args"] = postgresql_arguments(parsed, lock_seconds, idle_seconds)
    else:
        options["connect_args"] = mysql_arguments(lock_seconds)
    if database != "sqlite":
        options["isolation_level"] = "READ COMMITTED"
    try:
        engine = create_engine(parsed, **options)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"the driver for {database} is not installed",
            why=str(error),
            cure=f"pip install {_PACKAGES[database]}",
        ) from error
    except (ArgumentError, TypeError, ValueError) as error:
        raise SettingsError(
            f"the database URL {shown(parsed)!r} is not valid", why=str(error), cure="correct KAFKA_ASSETS_DATABASE_URL"
        ) from error
    event.listen(engine, "handle_error", remember)
    if database == "sqlite":
        require_returning(engine)
        keep_to_file(engine)
        event.listen(engine, "connect", prepare_sqlite)
        event.listen(engine, "begin", begin_sqlite)
        event.listen(engine, "before_cursor_execute", stay_in_transaction)
    elif database != "postgresql":
        event.listen(engine, "do_connect", connect_mysql)
        event.listen(engine, "connect", keep_alive)
        event.listen(engine, "connect", idle_timeout(idle_seconds))
    return engine


def parse_url(url: str | URL) -> URL:
    """The URL with the driver that this package works with; refused where there is none."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SettingsError(
            "the database URL cannot be read",
            why="it is not of the form database://user:password@host:port/name",
            cure="set KAFKA_ASSETS_DATABASE_URL, for example to sqlite:///ledger.db or postgresql://me@host/name",
        ) from error
    if parsed.get_backend_name() != "sqlite" and masked_url(_rendered(parsed)) == UNREADABLE:
        # Half of a password would be taken for a host, and shown by whoever does not find that.
        raise SettingsError(
            "the database URL cannot be read",
            why="what stands before or after its @ is no name, password or host as they are written in a URL",
            cure="write an @ of the password as %40, and of : / ? # % as %3A %2F %3F %23 %25",
        )
    database = {"postgres": "postgresql"}.get(parsed.get_backend_name(), parsed.get_backend_name())
    driver = _DRIVERS.get(database)
    if driver is None or ("+" in parsed.drivername and parsed.drivername != driver):
        raise SettingsError(
            f"kafka_assets has no road to {parsed.drivername!r}",
            why=f"it lands in {', '.join(_DRIVERS)}, each through one driver ({', '.join(_DRIVERS.values())})",
            cure=f"use a URL that begins with {database + '://' if driver else 'one of these'}",
        )
    if database == "sqlite" and (not parsed.database or ":memory:" in parsed.database or "uri" in parsed.query):
        raise SettingsError(
            "the ledger needs a SQLite file by its plain name",
            why="an in-memory database is another one for each connection, and forgets",
            cure="use a file: sqlite:///ledger.db",
        )
    return parsed.set(drivername=driver)


def shown(url: URL) -> str:
    """The URL as it may be printed: without its password."""
    return masked_url(_rendered(url))


def _rendered(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@contextmanager
def read(engine: Engine) -> Generator[Connection]:
    """A transaction that only reads."""
    reads = _reads_of_this_thread().get(engine)
    with _transaction(engine, begin="BEGIN", reads=reads) as connection:
        yield connection


@contextmanager
def shared_reads(engine: Engine) -> Generator[None]:
    """In this block the thread's reads take turns on one connection: for who asks many small questions in a row.

    Each is a transaction of its own, as ever. Writes are not among them: a publisher's backend is named in its claims,
    and on MySQL what a transaction sets for itself stays with its connection.
    """
    known = _reads_of_this_thread()
    if engine in known:
        yield
        return
    known[engine] = reads = _Reads()
    try:
        yield
    finally:
        del known[engine]
        reads.close()


@contextmanager
def snapshot(engine: Engine) -> Generator[Connection]:
    """A transaction that only reads, and whose statements all see the same moment: what they say may be compared."""
    level = None if engine.dialect.name == "sqlite" else "REPEATABLE READ"  # SQLite's readers never see another
    with _transaction(engine, begin="BEGIN", level=level) as connection:
        yield connection


@contextmanager
def write(engine: Engine, *, before: Callable[[Connection], None] | None = None) -> Generator[Connection]:
    """A transaction that commits at the end of the block; rolled back by any exception.

    `before` is called with its connection before the transaction begins.

    On SQLite it holds the one write lock from its BEGIN on: a transaction that reads first and
    writes later would fail at once when another wrote between, whatever the timeout.
    """
    with _transaction(engine, begin="BEGIN IMMEDIATE", before=before) as connection:
        yield connection


class _Reads:
    """The connection of one thread's reads, while none of them has it."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._used = 0.0

    def taken(self) -> Connection | None:
        if time.monotonic() - self._used > REST_SECONDS:
            self.close()
        connection, self._connection = self._connection, None
        return connection

    def given_back(self, connection: Connection) -> None:
        self.close()  # of two reads, one within the other, each had its own
        self._connection, self._used = connection, time.monotonic()

    def close(self) -> None:
        if self._connection is not None:
            _close(self._connection)
            self._connection = None


_here = threading.local()


def _reads_of_this_thread() -> dict[Engine, _Reads]:
    return vars(_here).setdefault("reads", {})


class Kept:
    """A connection that is kept from one transaction to the next, for whoever commits often; of one thread.

    The first error drops it, and so does a pause: a server may have ended it meanwhile. One that SQLAlchemy has
    connected again by itself, or would, is dropped, too: `opened` was called with another backend.
    """

    def __init__(
        self, engine: Engine, *, opened: Callable[[Connection], None], pause_seconds: float = IDLE_SECONDS / 2
    ) -> None:
        self._engine, self._opened, self._pause = engine, opened, pause_seconds
        self._connection: Connection | None = None
        self._used = 0.0
        self._raw: object = None
        """The driver's own connection, which `opened` was called with."""

    @contextmanager
    def write(self) -> Generator[Connection]:
        """As `write`: committed at the end of the block, rolled back by any exception."""
        if time.monotonic() - self._used > self._pause:
            self.close()
        kept, self._connection = self._connection, None
        connection = kept or _connect(self._engine)
        ended = False
        try:
            with _said():
                if kept is None:
                    self._opened(connection)
                    self._raw = connection.connection.dbapi_connection
                    connection.rollback()
                    connection = connection.execution_options(kafka_assets_begin="BEGIN IMMEDIATE")
                connection.begin()
                yield connection
                if connection.in_transaction():  # else the caller has rolled it back
                    _commit(connection)
            ended = self._is_same(connection)
        finally:
            if ended:
                self._connection, self._used = connection, time.monotonic()
            else:
                _close(connection)

    def _is_same(self, connection: Connection) -> bool:
        if connection.closed or connection.invalidated:
            return False
        return connection.connection.dbapi_connection is self._raw

    def close(self) -> None:
        if self._connection is not None:
            _close(self._connection)
            self._connection = None


@contextmanager
def _transaction(
    engine: Engine,
    *,
    begin: str,
    before: Callable[[Connection], None] | None = None,
    level: Literal["REPEATABLE READ"] | None = None,
    reads: _Reads | None = None,
) -> Generator[Connection]:
    connection = (reads and reads.taken()) or _connect(engine)
    ended = False
    try:
        with _said():
            if before is not None:
                before(connection)
                connection.rollback()
            connection = connection.execution_options(kafka_assets_begin=begin)
            if level is not None:
                connection = connection.execution_options(isolation_level=level)
            connection.begin()
            yield connection
            if connection.in_transaction():  # else the caller has rolled it back
                _commit(connection)
        ended = not connection.closed and not connection.invalidated
    finally:
        if reads is not None and ended:
            reads.given_back(connection)
        else:
            _close(connection)


@contextmanager
def _said() -> Generator[None]:
    """What the driver reports, as this package's errors."""
    try:
        yield
    except DBAPIError as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


def _close(connection: Connection) -> None:
    try:
        connection.close()
    except DBAPIError as error:
        if not lost(error):
            raise
        # The server rolls back what has no client: that must not hide why the block was left.


def _connect(engine: Engine) -> Connection:
    try:
        return engine.connect()
    except DBAPIError as error:
        raise refused_connection(engine, error) from error
    except (InvalidRequestError, NoSuchModuleError) as error:  # for example: MySQL behind a mariadb:// URL
        raise SettingsError(
            f"the database at {shown(engine.url)} is not what its URL says", why=str(error), cure="correct the URL"
        ) from error
    except OSError as error:
        raise refused_connection(engine, error) from error
    except (TypeError, ValueError, RuntimeError) as error:  # for example: an option that the driver does not know
        raise SettingsError(
            f"the database at {shown(engine.url)} cannot be connected to as its URL says",
            why=str(error),
            cure="correct KAFKA_ASSETS_DATABASE_URL",
        ) from error


def _commit(connection: Connection) -> None:
    try:
        connection.commit()
    except DBAPIError as error:
        if not undecided(error):
            raise
        raise OutcomeUnknown(
            "the connection to the database was lost during COMMIT",
            why=f"whether it committed is not known ({str(error.orig).strip()})",
            cure="ask the ledger under its lock before anything is done again",
        ) from error
