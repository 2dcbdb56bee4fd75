"""A ledger for each unit test: made once for the session, copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event

from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.schema import ensure_schema

if TYPE_CHECKING:
    from kafka_assets_tests.ticking import Desk


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a ledger in which nothing is planned."""
    path = tmp_path_factory.mktemp("ledger") / "empty.db"
    made = make_engine(f"sqlite:///{path}")
    ensure_schema(made)
    made.dispose()
    return path


@pytest.fixture
def engine(tmp_path: Path, empty_ledger: Path) -> Iterator[Engine]:
    shutil.copy(empty_ledger, tmp_path / "ledger.db")
    made = make_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield made
    made.dispose()


@pytest.fixture
def anew(engine: Engine, empty_ledger: Path) -> Callable[[], None]:
    """Makes the ledger empty again between two rounds of one test.

    Its engines live on, with the statements that they have compiled: a new one for each round would compile them all.
    """
    path = Path(engine.url.database or "")

    def renew() -> None:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        shutil.copy(empty_ledger, path)

    return renew


@pytest.fixture
def unsynced(engine: Engine) -> None:
    """For suites that take no power away: a hundred synced commits take seconds."""

    def no_sync(connection: Any, record: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(engine, "connect", no_sync)


@pytest.fixture
def desk(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A sensor of the stream `orders`, with a Dagster of its own and a broker that says what it is told to."""
    import dagster as dg

    from kafka_assets_tests.ticking import Desk, answering, orders

    with dg.DagsterInstance.ephemeral() as instance:
        yield Desk(engine, instance, answering(monkeypatch), orders())
