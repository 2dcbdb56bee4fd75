"""Skipping and importing on SQLite: the suite that all databases share."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, event

from kafka_assets_tests.skip_contract import SkipContract


@pytest.fixture(name="engine")
def unsynced(engine: Engine) -> Engine:
    """None of these tests takes the power away, and synced commits take most of their time."""

    def no_sync(connection: Any, record: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(engine, "connect", no_sync)
    return engine


@pytest.mark.slow  # all of them together
class TestSkipOnSQLite(SkipContract):
    """The engine is the unit tests' own."""
