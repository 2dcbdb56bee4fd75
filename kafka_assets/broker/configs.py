"""What may be changed of a topic that is there: its configuration, and the number of its partitions, upwards."""

# pyright: reportPrivateImportUsage=false
# confluent_kafka.admin is where these are documented to be; it only lacks an __all__.
from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import KafkaError
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from kafka_assets.broker.admin import TIMEOUT, Admin, admin, topic_error
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.topics import Topic, describe_topic
from kafka_assets.errors import BrokerRefused, BrokerUnavailable, KafkaAssetsError

_WRONG = {KafkaError.INVALID_CONFIG, KafkaError.INVALID_REQUEST}
_DESTROYING = (
    "cleanup.policy",
    "delete.retention.ms",
    "local.retention.",
    "remote.log.delete.on.disable",
    "retention.",
    "unclean.leader.election.enable",
)


@dataclass(frozen=True)
class Setting:
    """One entry of a topic's configuration, and whether the topic itself says so."""

    value: str | None
    own: bool


def can_destroy(name: str) -> bool:
    """Whether records that are there may be gone after this entry of a configuration was changed."""
    return name.startswith(_DESTROYING)


def topic_config(connection: Connection, topic: str, *, timeout: float = TIMEOUT) -> dict[str, Setting]:
    """A topic's configuration, by name; raises TopicMissing."""
    with admin(connection, timeout=timeout) as asking:
        return _config(asking, topic)


def alter_config(
    connection: Connection, topic: str, changes: Mapping[str, str | None], *, timeout: float = TIMEOUT
) -> dict[str, Setting]:
    """Set these entries, or give them back to the broker's default (None); the others stay as they are.

    Returns what stands when a broker says that it is so; what it refuses changes nothing. BrokerUnavailable: it
    was taken, and is not seen yet.
    """
    entries = [
        ConfigEntry(
            name,
            cast(str, value),
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in changes.items()
    ]
    with admin(connection, timeout=timeout) as asking:
        wanted = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        futures = asking.client.incremental_alter_configs([wanted], request_timeout=asking.left())
        [answer] = asking.answers(cast("dict[Any, Future[None]]", futures)).values()
        if isinstance(answer, KafkaError):
            raise _config_error(connection, topic, answer)
        while True:
            now = _config(asking, topic)
            if all(stands(now.get(name), value) for name, value in changes.items()):
                return now
            if time.monotonic() > asking.deadline:
                raise _not_yet(f"the configuration of {topic!r} was changed", topic)
            time.sleep(0.02)


def refuse_fewer(before: Topic, total: int) -> None:
    """Kafka only adds partitions."""
    if total <= before.partitions:
        raise BrokerRefused(
            f"the topic {before.name!r} has {before.partitions} partitions, and cannot be given {total}",
            why="Kafka adds partitions and never takes one away",
            cure=f"ask for more than {before.partitions}, or make another topic",
        )


def add_partitions(connection: Connection, topic: str, total: int, *, timeout: float = TIMEOUT) -> Topic:
    """Give a topic more partitions, `total` in all, and wait until they are there; fewer are refused.

    BrokerUnavailable: they were granted, and are not seen yet.
    """
    refuse_fewer(describe_topic(connection, topic, leaderless=True, timeout=timeout), total)
    with admin(connection, timeout=timeout) as asking:
        futures = asking.client.create_partitions(
            [NewPartitions(topic, total)], request_timeout=asking.left(), operation_timeout=asking.left()
        )
        answer = asking.answers(cast("dict[str, Future[None]]", futures))[topic]
        if isinstance(answer, KafkaError):
            raise topic_error(connection, topic, answer)
        while True:
            now = describe_topic(connection, topic, leaderless=True, timeout=max(asking.left(), 1.0))
            if now.partitions >= total:
                return now
            if time.monotonic() > asking.deadline:
                raise _not_yet(f"the topic {topic!r} was given partitions, {total} in all", topic)
            time.sleep(0.02)


def _config(asking: Admin, topic: str) -> dict[str, Setting]:
    wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic)]
    futures = asking.client.describe_configs(wanted, request_timeout=asking.left())
    [answer] = asking.answers(cast("dict[Any, Future[dict[str, ConfigEntry]]]", futures)).values()
    if isinstance(answer, KafkaError):
        raise topic_error(asking.connection, topic, answer)
    return {
        name: Setting(None if entry.value is None else str(entry.value), own=not entry.is_default and _is_own(entry))
        for name, entry in sorted(answer.items())
    }


def _is_own(entry: Any) -> bool:
    """DYNAMIC_TOPIC_CONFIG: what a broker's own file says is no default either, to librdkafka."""
    return int(entry.source) == 1


def stands(setting: Setting | None, value: str | None) -> bool:
    """Whether this is what was wanted; None is the broker's default."""
    if value is None:
        return setting is None or not setting.own
    return setting is not None and setting.own and _plain(setting.value or "") == _plain(value)


def _plain(value: str) -> str | float | list[str]:
    """A value as the broker understands it: it gives `0.50` back as 0.5, and `compact, delete` without the blank."""
    try:
        return float(value)
    except ValueError:
        return [one.strip().lower() for one in value.split(",")]


def _not_yet(what: str, topic: str) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"{what}, and no broker shows it yet",
        why="the cluster takes longer than we wait",
        cure=f"`kafka-assets topics describe {topic}` shows what stands; if that stays, do it again",
    )


def _config_error(connection: Connection, topic: str, error: KafkaError) -> KafkaAssetsError:
    if error.code() in _WRONG:
        return BrokerRefused(
            f"the broker at {connection.bootstrap_servers} does not take this configuration of {topic!r}",
            why=error.str(),
            cure=f"`kafka-assets topics describe {topic} --all` lists the names, and the values that stand",
        )
    return topic_error(connection, topic, error)
