"""A stream of its own for each test, landed without a daemon."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pymysql.connections import Connection
from sqlalchemy import Engine

from kafka_assets.devstack import locks
from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.integration.databases import DATABASES, LOCK_SECONDS, emptied, ledger
from kafka_assets_tests.integration.project import Landing
from kafka_assets_tests.ledgers import looked_at
from kafka_assets_tests.spark_cluster import SparkCluster, spark_cluster

_names = (f"stream_{os.getpid()}_{number}" for number in itertools.count(1))


@pytest.fixture(scope="session", autouse=True)
def one_tls_context() -> Iterator[None]:
    """The driver reads all certificates of the system for each connection anew: half of a test's time."""
    name = "_create_ssl_ctx"
    make = getattr(Connection, name)
    made = make(None, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, name, lambda self, given: make(self, given) if given else made)
        yield


@pytest.fixture(scope="session")
def ledger_on() -> Iterator[Callable[..., Engine]]:
    """The ledger of this worker on a server: made once, and kept for all that ask for one there.

    MySQL's clients speak TLS where they may, and to shake hands takes longer than most statements: `plain` connections
    do without, as MariaDB's do here.
    """
    made: dict[str, Engine] = {}
    plainly: dict[str, Engine] = {}
    with ExitStack() as stack:

        def on(server: str, *, plain: bool = False) -> Engine:
            if server not in made:
                made[server] = stack.enter_context(looked_at(stack.enter_context(ledger(server))))
            if not plain:
                return made[server]
            if server not in plainly:
                url = made[server].url.update_query_dict({"ssl_disabled": "true"})
                plainly[server] = stack.enter_context(looked_at(make_engine(url, lock_seconds=LOCK_SECONDS)))
            return plainly[server]

        yield on


@pytest.fixture(scope="module", params=DATABASES)
def server(request: pytest.FixtureRequest, ledger_on: Callable[..., Engine]) -> Engine:
    """A ledger on each real server; of MySQL with TLS in modules that say ENCRYPTED, since connections break there."""
    plain = request.param == "mysql" and not getattr(request.module, "ENCRYPTED", False)
    return ledger_on(request.getfixturevalue(f"{request.param}_url"), plain=plain)


@pytest.fixture
def whole_server(services_folder: Path) -> Iterator[None]:
    """For a test that changes what holds for a whole server, and for one that suffers by that."""
    with locks.held(services_folder / "whole_server", timeout=900, on_wait=lambda: None):
        yield


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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A real Spark cluster of two workers; it ends with the module, since it takes memory of six processes."""
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


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
