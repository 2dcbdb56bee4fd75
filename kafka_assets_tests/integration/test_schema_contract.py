"""The ledger's schema on real servers: the same suite as on SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, create_engine, make_url, text

from kafka_assets.ledger.engine import make_engine, parse_url, write
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.schema_contract import SchemaContract


@pytest.fixture(scope="module", params=["postgresql", "mariadb", "mysql"])
def ledger(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A migrated ledger, made once: each test's transaction is rolled back."""
    url = parse_url(request.getfixturevalue(f"{request.param}_url"))
    server = create_engine(url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text("CREATE DATABASE schema_contract"))
    engine = make_engine(make_url(url).set(database="schema_contract"))
    ensure_schema(engine)
    yield engine
    with server.connect() as connection:
        connection.execute(text("DROP DATABASE schema_contract"))
    server.dispose()


class TestSchemaOnServers(SchemaContract):
    @pytest.fixture
    def connection(self, ledger: Engine) -> Iterator[Connection]:
        with write(ledger) as connection:
            yield connection
            connection.rollback()
