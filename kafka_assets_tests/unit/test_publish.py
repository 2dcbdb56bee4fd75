"""The one transaction on SQLite: the suite that all databases share."""

from __future__ import annotations

from kafka_assets_tests.publish_contract import PublishContract


class TestPublishOnSQLite(PublishContract):
    """The engine is the unit tests' own."""
