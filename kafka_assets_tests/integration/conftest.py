"""A stream of its own for each test, landed without a daemon."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pymysql.connections import Connection
from sqlalchemy import Engine

from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.integration.databases import emptied, ledger
from kafka_assets_tests.integration.project import Landing

DATABASES = ["postgresql", "mariadb", "mysql"]

_numbers = itertools.count(1)
_names = (f"stream_{number}" for number in itertools.count(1))


@pytest.fixture(scope="session", autouse=True)
def one_tls_context() -> Iterator[None]:
    """The driver reads all certificates of the system for each connection anew: half of a test's time."""
    name = "_create_ssl_ctx"
    make = getattr(Connection, name)
    made = make(None, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, name, lambda self, given: make(self, given) if given else made)
        yield


@pytest.fixture(scope="module", params=DATABASES)
def server(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A ledger on each real server, made once for a module."""
    with ledger(request.getfixturevalue(f"{request.param}_url"), name=f"ledger_{next(_numbers)}") as made:
        yield made


@pytest.fixture
def engine(server: Engine) -> Engine:
    """That ledger, as it was when it was new."""
    return emptied(server)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Engine]:
    """A ledger in a file of its own."""
    made = make_engine(f"sqlite:///{tmp_path / 'ledger.db'}", lock_seconds=5)
    ensure_schema(made)
    yield made
    made.dispose()


@pytest.fixture
def landing(tmp_path: Path, broker: str, spark_remote: str) -> Iterator[Callable[..., Landing]]:
    """Declares a stream with these attributes; its topic, table and asset have one name."""
    url = f"sqlite:///{tmp_path / 'warehouse.db'}"
    engine = make_engine(url)
    with dg.DagsterInstance.ephemeral() as instance:

        def declare(**attributes: Any) -> Landing:
            return Landing(
                name=next(_names),
                broker=broker,
                spark_remote=spark_remote,
                database_url=url,
                engine=engine,
                instance=instance,
                attributes=attributes,
            )

        yield declare
    engine.dispose()
