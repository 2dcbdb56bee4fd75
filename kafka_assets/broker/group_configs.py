"""What the broker is told of a group of the new protocol (KIP-848), where it, and no member, decides."""

# pyright: reportPrivateImportUsage=false
# confluent_kafka.admin is where these are documented to be; it only lacks an __all__.
from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import KafkaError
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kafka_assets.broker.admin import TIMEOUT, admin
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import BrokerRefused


def set_group_config(
    connection: Connection, group: str, entries: Mapping[str, str], *, timeout: float = TIMEOUT
) -> None:
    """Set these entries, as `consumer.session.timeout.ms`; the broker's own limits hold. The group need not exist."""
    changes = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in entries.items()]
    with admin(connection, timeout=timeout) as asking:
        wanted = ConfigResource(ResourceType.GROUP, group, incremental_configs=changes)
        futures = asking.client.incremental_alter_configs([wanted], request_timeout=asking.left())
        [answer] = asking.answers(cast("dict[Any, Future[None]]", futures)).values()
    if isinstance(answer, KafkaError):
        raise BrokerRefused(
            f"the broker at {connection.bootstrap_servers} does not take this configuration of the group {group!r}",
            why=answer.str(),
            cure="stay within the broker's group.consumer.min and max settings, which only its own file changes",
        )
