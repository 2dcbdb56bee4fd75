"""Target tables on SQLite: the suite that all databases share."""

from __future__ import annotations

from kafka_assets_tests.tables_contract import TablesContract


class TestTablesOnSQLite(TablesContract):
    """The engine is the unit tests' own."""
