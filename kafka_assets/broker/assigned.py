"""The bare client on given partitions, from their beginning: what somebody writes who needs no group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from kafka_assets.broker.admin import LOGGER, create
from kafka_assets.broker.connection import Connection, consumer_config


def assigned(connection: Connection, topic: str, partitions: Sequence[int]) -> Consumer:
    """A consumer that the caller closes; it never says that a partition ended."""
    config: dict[str, Any] = {**consumer_config(connection), "enable.partition.eof": "false"}
    consumer = create(lambda: Consumer(config, logger=LOGGER))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    return consumer
