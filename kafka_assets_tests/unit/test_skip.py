"""Skipping and importing on SQLite: the suite that all databases share."""

from __future__ import annotations

import pytest

from kafka_assets_tests.skip_contract import SkipContract


@pytest.mark.slow  # all of them together
class TestSkipOnSQLite(SkipContract):
    """The engine is the unit tests' own."""
