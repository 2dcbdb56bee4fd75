"""The broker room: the only one that imports confluent_kafka. It knows the pure rooms, and nobody else."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_assets.broker.connection import Connection
    from kafka_assets.broker.deliveries import Delivery, Failure, Interceptor, Outgoing
    from kafka_assets.broker.partitioners import murmur2, partition_of_key
    from kafka_assets.broker.producer import Producer

__all__ = [
    "Connection",
    "Delivery",
    "Failure",
    "Interceptor",
    "Outgoing",
    "Producer",
    "murmur2",
    "partition_of_key",
]

_HOMES = {
    "Connection": "connection",
    "Delivery": "deliveries",
    "Failure": "deliveries",
    "Interceptor": "deliveries",
    "Outgoing": "deliveries",
    "Producer": "producer",
    "murmur2": "partitioners",
    "partition_of_key": "partitioners",
}


def __getattr__(name: str) -> Any:
    """Load librdkafka only when somebody asks for what needs it: settings and the command line start without."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
