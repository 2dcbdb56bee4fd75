"""The merge on SQLite: the suite that all databases share."""

from __future__ import annotations

from kafka_assets_tests.merge_contract import MergeContract


class TestMergeOnSQLite(MergeContract):
    """The engine is the unit tests' own."""
