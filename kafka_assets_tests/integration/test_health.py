"""The checks on real servers: the suite that all databases share."""

from __future__ import annotations

from kafka_assets_tests.health_contract import HealthContract


class TestHealthOnServers(HealthContract):
    """The engine is of each server."""
