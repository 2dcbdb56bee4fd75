"""Committed rows read back on SQLite: the suite that all databases share."""

from __future__ import annotations

import pytest

from kafka_assets_tests.committed_rows_contract import CommittedRowsContract


@pytest.mark.slow
class TestCommittedRowsOnSQLite(CommittedRowsContract):
    """The engine is the unit tests' own."""
