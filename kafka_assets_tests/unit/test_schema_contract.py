"""The ledger's schema on SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine

from kafka_assets.ledger.engine import write
from kafka_assets_tests.schema_contract import SchemaContract


class TestSchemaOnSqlite(SchemaContract):
    @pytest.fixture
    def connection(self, engine: Engine) -> Iterator[Connection]:
        with write(engine) as connection:
            yield connection
            connection.rollback()
