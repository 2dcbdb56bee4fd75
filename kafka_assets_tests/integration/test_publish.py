"""The one transaction on real servers: the suite that all databases share."""

from __future__ import annotations

from kafka_assets_tests.publish_contract import PublishContract


class TestPublishOnServers(PublishContract):
    """The engine is of each server."""
