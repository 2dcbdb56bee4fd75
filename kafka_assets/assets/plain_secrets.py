"""Secrets that resources were given as they are: Dagster's UI shows a resource's configuration to all who open it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import dagster as dg

from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.resources import KafkaResource, SparkResource
from kafka_assets.masks import MASK, is_secret, masked_url


def plain_secrets(resources: Mapping[str, object]) -> list[str]:
    """What is to be said of them, a line for each; nothing of their values."""
    return [
        f"the resource {key!r} was given {name} as a plain value, and Dagster's UI shows it · give it as dg.EnvVar('…')"
        for key, resource in resources.items()
        for name, value in _given(resource)
        if not isinstance(value, dg.EnvVar) and (is_secret(name) or _has_secret(name, value))
    ]


def _given(resource: object) -> Iterator[tuple[str, object]]:
    if isinstance(resource, KafkaResource):
        yield from resource.properties.items()
    elif isinstance(resource, SparkResource):
        yield from resource.spark_config.items()
    elif isinstance(resource, SliceIOManager) and resource.database_url is not None:
        yield "database_url", resource.database_url


def _has_secret(name: str, value: object) -> bool:
    """Whether it is an address with a password or token in it."""
    return name in ("database_url", "spark.remote") and MASK in masked_url(str(value))
