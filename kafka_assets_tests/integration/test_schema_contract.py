"""The ledger's schema on real servers: the same suite as on SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine

from kafka_assets.ledger.engine import write
from kafka_assets_tests.integration.databases import emptied
from kafka_assets_tests.schema_contract import SchemaContract


@pytest.fixture(scope="module")
def bare(server: Engine) -> Engine:
    """It stays empty: each test's transaction is rolled back."""
    return emptied(server)


class TestSchemaOnServers(SchemaContract):
    @pytest.fixture
    def connection(self, bare: Engine) -> Iterator[Connection]:
        with write(bare) as connection:
            yield connection
            connection.rollback()
