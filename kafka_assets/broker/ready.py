"""Whether a broker answers a real request: the only question the devstack asks of it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient


def answering_brokers(bootstrap_servers: str, *, timeout: float) -> int:
    """How many brokers the cluster behind this address says it has; 0 when nobody answered in time."""
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
        return 0
    return len(cluster.nodes)
