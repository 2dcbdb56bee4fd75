"""Whether a broker answers a real request: the only question the devstack asks of it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient


def answering_brokers(bootstrap_servers: str, *, timeout: float) -> set[int]:
    """The node ids of the cluster behind this address; none when nobody answered in time."""
    # The stubs do not say what a cluster's description holds.
    client: Any = AdminClient(
        {
            "bootstrap.servers": bootstrap_servers,
            "socket.timeout.ms": max(int(timeout * 1000), 100),
            # A broker that is still starting is no news, and librdkafka tells it on stderr.
            "log_level": 0,
        }
    )
    try:
        cluster = client.describe_cluster(request_timeout=timeout).result(timeout=timeout + 1)
    except (KafkaException, TimeoutError):
        return set()
    return {node.id for node in cluster.nodes}
