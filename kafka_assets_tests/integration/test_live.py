"""Live consumers on real servers: the suite that all databases share."""

from __future__ import annotations

from kafka_assets_tests.live_contract import LiveContract


class TestLiveOnServers(LiveContract):
    """The engine is of each server."""
