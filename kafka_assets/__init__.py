"""Kafka topics land in SQL tables exactly once, through Spark, as Dagster assets."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_assets.assets.component import KafkaStreams, KafkaTopic
    from kafka_assets.assets.decorator import kafka_asset
    from kafka_assets.assets.definitions import build_definitions
    from kafka_assets.assets.downstream import slice_asset
    from kafka_assets.assets.folder import load_assets
    from kafka_assets.assets.sensor import build_sensor
    from kafka_assets.broker.consumer import Consumer
    from kafka_assets.broker.in_transaction import InTransaction
    from kafka_assets.broker.stopping import stopped_by_signals
    from kafka_assets.broker.threads import run_in_threads
    from kafka_assets.broker.workers import Workers
    from kafka_assets.live.consumer import LiveConsumer
    from kafka_assets.live.in_ledger import InLedger
    from kafka_assets.live.listener import kafka_listener
    from kafka_assets.live.listening import run_listeners

__all__ = [
    "Consumer",
    "InLedger",
    "InTransaction",
    "KafkaStreams",
    "KafkaTopic",
    "LiveConsumer",
    "Workers",
    "build_definitions",
    "build_sensor",
    "kafka_asset",
    "kafka_listener",
    "load_assets",
    "run_in_threads",
    "run_listeners",
    "slice_asset",
    "stopped_by_signals",
]

_HOMES = {
    "LiveConsumer": "kafka_assets.live.consumer",
    "KafkaStreams": "kafka_assets.assets.component",
    "KafkaTopic": "kafka_assets.assets.component",
    "kafka_asset": "kafka_assets.assets.decorator",
    "build_definitions": "kafka_assets.assets.definitions",
    "load_assets": "kafka_assets.assets.folder",
    "slice_asset": "kafka_assets.assets.downstream",
    "build_sensor": "kafka_assets.assets.sensor",
    "Consumer": "kafka_assets.broker.consumer",
    "InLedger": "kafka_assets.live.in_ledger",
    "InTransaction": "kafka_assets.broker.in_transaction",
    "Workers": "kafka_assets.broker.workers",
    "run_in_threads": "kafka_assets.broker.threads",
    "stopped_by_signals": "kafka_assets.broker.stopping",
    "kafka_listener": "kafka_assets.live.listener",
    "run_listeners": "kafka_assets.live.listening",
}


_DECORATORS = {"kafka_asset", "slice_asset"}
"""Whoever imports one of them may make UDFs in the next line."""


def __getattr__(name: str) -> Any:
    """Load Dagster and Spark only when somebody asks for what needs them: the command line starts at once."""
    if name in _HOMES:
        from importlib import import_module

        if name in _DECORATORS:
            import_module("kafka_assets.spark.parcels").install()
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """With the lazy ones: `dg` finds the component by looking through the names of this module."""
    return sorted({*globals(), *__all__})
