"""A ledger for each unit test: made once for the session, copied for each test."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Dialect, Engine

from kafka_assets.ledger import engine as doors
from kafka_assets.ledger.drivers import prepare_sqlite
from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.schema import ensure_schema

if TYPE_CHECKING:
    from kafka_assets_tests.ticking import Desk


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """No unit test takes the power away, and to wait for the disk at each commit takes a good part of their time."""
    prepare = doors.prepare_sqlite

    def prepared(connection: Any, record: object) -> None:
        prepare(connection, record)
        connection.execute("PRAGMA synchronous = OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doors, "prepare_sqlite", prepared)
        yield


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections as users have them."""
    monkeypatch.setattr(doors, "prepare_sqlite", prepare_sqlite)


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a ledger in which nothing is planned."""
    path = tmp_path_factory.mktemp("ledger") / "empty.db"
    made = make_engine(f"sqlite:///{path}")
    ensure_schema(made)
    made.dispose()
    return path


@contextmanager
def _open(path: Path) -> Iterator[None]:
    """A SQLite file of which one connection stays open: where the last one closes, SQLite removes the write-ahead log,
    and makes it again for the next transaction, which takes longer than most transactions.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        yield


@pytest.fixture(scope="session")
def dialect(empty_ledger: Path) -> Dialect:
    """The dialect that the ledgers of all tests share."""
    made = make_engine(f"sqlite:///{empty_ledger}")
    made.connect().close()  # it learns what this SQLite can do
    return made.dialect


@pytest.fixture(scope="session")
def compiled() -> dict[Any, Any]:
    """The statements that were compiled in it."""
    return {}


@pytest.fixture
def engine(tmp_path: Path, empty_ledger: Path, dialect: Dialect, compiled: dict[Any, Any]) -> Iterator[Engine]:
    path = tmp_path / "ledger.db"
    shutil.copy(empty_ledger, path)
    made = make_engine(f"sqlite:///{path}")
    # SQLAlchemy keeps compiled statements for each dialect: with one of its own, each test would compile them all.
    made.dialect = dialect
    made.update_execution_options(compiled_cache=compiled)
    with _open(path):
        yield made
    made.dispose()


@pytest.fixture
def anew(engine: Engine, empty_ledger: Path) -> Iterator[Callable[[], None]]:
    """Makes the ledger empty again between two rounds of one test.

    Its engines live on, with the statements that they have compiled: a new one for each round would compile them all.
    """
    path = Path(engine.url.database or "")
    with ExitStack() as opened:

        def renew() -> None:
            opened.close()
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            shutil.copy(empty_ledger, path)
            opened.enter_context(_open(path))

        yield renew


@pytest.fixture
def desk(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A sensor of the stream `orders`, with a Dagster of its own and a broker that says what it is told to."""
    import dagster as dg

    from kafka_assets_tests.ticking import Desk, answering, orders

    with dg.DagsterInstance.ephemeral() as instance:
        yield Desk(engine, instance, answering(monkeypatch), orders())
