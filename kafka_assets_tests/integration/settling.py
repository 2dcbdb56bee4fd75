"""Waiting for the markers of transactions that ended: a commit is promised first, and seen a moment later."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import PartitionOffsets, TopicOffsets, observe


def seen(connection: Connection, topic: str) -> Mapping[int, PartitionOffsets]:
    found = observe(connection, [topic])[topic]
    assert isinstance(found, TopicOffsets)
    return found.partitions


def settled(connection: Connection, topic: str, *, patience: float = 120.0) -> Mapping[int, PartitionOffsets]:
    """The offsets when no transaction is open in the topic any more, or as they are after so many seconds."""
    deadline = time.monotonic() + patience
    while True:
        found = seen(connection, topic)
        if all(part.last_stable == part.high_watermark for part in found.values()) or time.monotonic() > deadline:
            return found
        time.sleep(0.05)
