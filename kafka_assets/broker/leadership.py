"""Who leads a partition, and who is in sync with it: as one broker knows it, without asking the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_assets.broker.admin import TIMEOUT, admin
from kafka_assets.broker.connection import Connection

NOBODY = -1


@dataclass(frozen=True)
class Leadership:
    """A partition's leader (`NOBODY` while it has none) and the brokers that are in sync."""

    leader: int
    in_sync: tuple[int, ...]


def leaderships(
    connection: Connection, topics: Sequence[str], *, timeout: float = TIMEOUT
) -> dict[tuple[str, int], Leadership]:
    """By topic and partition; a topic that this broker does not know yet is not in the answer."""
    with admin(connection, timeout=timeout) as asking:
        known = asking.metadata().topics
    return {
        (topic, number): Leadership(partition.leader, tuple(sorted(partition.isrs)))
        for topic in topics
        if topic in known
        for number, partition in known[topic].partitions.items()
    }
