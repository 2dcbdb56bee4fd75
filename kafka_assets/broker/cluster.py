"""The cluster itself: who answers there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from kafka_assets.broker.admin import TIMEOUT, admin, refused
from kafka_assets.broker.connection import Connection


@dataclass(frozen=True)
class Cluster:
    """A cluster's id and the addresses of its live brokers, as it gives them to clients."""

    cluster_id: str
    brokers: Sequence[str]


def describe_cluster(connection: Connection, *, timeout: float = TIMEOUT) -> Cluster:
    """Ask who is there; raises BrokerUnavailable or BrokerRefused."""
    with admin(connection, timeout=timeout) as asking:
        future = asking.client.describe_cluster(request_timeout=asking.left())
        answer: Any = asking.answers({"cluster": future})["cluster"]
    if isinstance(answer, KafkaError):
        raise refused(connection, answer)
    brokers = [f"{node.host}:{node.port}" for node in sorted(answer.nodes, key=lambda node: node.id)]
    return Cluster(str(answer.cluster_id), brokers)
