"""Skipping and importing on the real servers: the suite that all databases share."""

from __future__ import annotations

from kafka_assets_tests.skip_contract import SkipContract


class TestSkipOnServers(SkipContract):
    """The engine is of each server."""
