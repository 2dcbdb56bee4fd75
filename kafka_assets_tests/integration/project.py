"""Runs of one stream without a daemon: the sensor's tick, and its requests carried out here."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
from sqlalchemy import Engine, text

from kafka_assets import kafka_asset
from kafka_assets.assets.decorator import as_they_come, stream_of
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK
from kafka_assets.assets.resources import KafkaResource, SparkResource
from kafka_assets.assets.tick import Tick, tick
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic
from kafka_assets.ledger.engine import read
from kafka_assets_tests.integration.settling import settled


@dataclass
class Landing:
    """One topic, one stream, one ledger, one Dagster instance."""

    name: str
    broker: str
    spark_remote: str
    database_url: str
    engine: Engine
    instance: dg.DagsterInstance
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    cursor: str | None = None
    """The sensor's, as Dagster keeps it from tick to tick."""

    def __post_init__(self) -> None:
        declared: dict[str, Any] = {
            **({} if "topics" in self.attributes else {"topic": self.name}),
            "target": self.name,
            "schema": "id BIGINT NOT NULL, note STRING",
            "slices": {"max_delay": "0ms"},
            **self.attributes,
        }

        transform = declared.pop("transform", None)

        def land(records: Any) -> Any:
            return transform(records)

        self.asset = kafka_asset(**{"name": self.name, **declared})(land if transform else as_they_come)
        self.stream = stream_of(self.asset)
        self.connection = Connection(self.broker, {})

    def declared_again(self, **attributes: Any) -> Landing:
        """The same stream as somebody changed its declaration."""
        return replace(self, attributes={**self.attributes, **attributes})

    def topic(self, partitions: int = 1, *, name: str | None = None, **config: str) -> None:
        create_topic(self.connection, name or self.name, partitions=partitions, config=config)

    def produce(self, *values: bytes | None, partition: int = 0, topic: str | None = None) -> None:
        produce(self.connection, topic or self.name, (Record(value=value, partition=partition) for value in values))

    def produce_ids(self, first: int, last: int, partition: int = 0, topic: str | None = None) -> None:
        values = (b'{"id": %d, "note": "n"}' % number for number in range(first, last))
        self.produce(*values, partition=partition, topic=topic)

    def settle(self) -> None:
        """Wait until the markers of transactions that ended are written: `commit` returns a moment before."""
        settled(self.connection, self.name)

    def tick(self) -> Tick:
        assert self.stream is not None
        found = tick(
            [self.stream],
            engine=self.engine,
            connection=self.connection,
            instance=self.instance,
            log=logging.getLogger(),
            cursor=self.cursor,
        )
        self.cursor = found.cursor
        return found

    def run(self, request: dg.RunRequest | None = None, **tags: str) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [self.asset],
            instance=self.instance,
            tags={**(request.tags if request else {}), **tags},
            raise_on_error=False,
            resources={
                KAFKA: KafkaResource(bootstrap_servers=self.broker),
                SPARK: SparkResource(spark_config={"spark.remote": self.spark_remote}),
                IO_MANAGER: SliceIOManager(database_url=self.database_url),
            },
        )

    def run_elsewhere(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """The same run under another Dagster, that shares nothing with this one but the ledger."""
        with dg.DagsterInstance.ephemeral() as instance:
            instance.add_dynamic_partitions(f"kafka_{self.name}", self.keys())
            return replace(self, instance=instance).run(request)

    def land(self) -> Tick:
        """A tick, and all the runs that it asked for."""
        found = self.tick()
        for request in found.requests:
            assert self.run(request).success
        return found

    def keys(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions(f"kafka_{self.name}"))

    def replay(self, key: str, **tags: str) -> dg.ExecuteInProcessResult:
        """What a backfill or a manual materialization of one key does."""
        return self.run(
            **{"dagster/asset_partition_range_start": key, "dagster/asset_partition_range_end": key}, **tags
        )

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with read(self.engine) as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    def sql(self, statement: str) -> Any:
        with read(self.engine) as connection:
            return connection.scalar(text(statement))


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """Why a run failed, in the words that the UI shows."""
    [event] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    data: Any = event.event_specific_data
    return f"{data.user_failure_data} {data.error}"
