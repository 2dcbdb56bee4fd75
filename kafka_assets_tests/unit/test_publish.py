"""The one transaction on SQLite: the suite that all databases share."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, event

from kafka_assets_tests.publish_contract import PublishContract


@pytest.fixture(name="engine")
def unsynced(engine: Engine) -> Engine:
    """None of these tests takes the power away, and a hundred synced commits take seconds."""

    def no_sync(connection: Any, record: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(engine, "connect", no_sync)
    return engine


class TestPublishOnSQLite(PublishContract):
    """The engine is the unit tests' own."""
