"""Kafka and Spark as Dagster resources; what is not configured is found by the settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, cast

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from kafka_assets.broker.connection import Connection, worker_config
from kafka_assets.broker.deliveries import Delivery, Failure, Interceptor
from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.producer_config import Compression
from kafka_assets.broker.read import StoredRecord, read_range
from kafka_assets.endpoints import connect_endpoint
from kafka_assets.errors import KafkaAssetsError, SettingsError
from kafka_assets.settings import load_settings
from kafka_assets.slices import Piece
from kafka_assets.spark.connected import unanswered
from kafka_assets.spark.reached import reached
from kafka_assets.spark.session import Opened, open_session, spark_config
from kafka_assets.spark.source import OnWorkers, read
from kafka_assets.spark.worker_python import require_fit

_log = logging.getLogger(__name__)


class KafkaResource(dg.ConfigurableResource["KafkaResource"]):
    """A Kafka cluster, told once in librdkafka's words and used by Spark too."""

    bootstrap_servers: str | None = None
    properties: dict[str, str] = Field(default_factory=dict, repr=False)

    def connection(self) -> Connection:
        if self.bootstrap_servers is None:
            settings = load_settings()
            return Connection.of(settings.model_copy(update={"kafka": {**settings.kafka, **self.properties}}))
        return Connection(self.bootstrap_servers, self.properties)

    def read(self, spark: SparkSession, pieces: Sequence[Piece], *, at_once: int | None = None) -> OnWorkers:
        """The records of these ranges, for Spark's workers to read; `at_once`: offsets of one task at most."""
        return read(spark, worker_config(self.connection()), pieces, at_once=at_once)

    def stored(self, topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        """The records of one range, read by this process."""
        return read_range(self.connection(), topic, partition, start, end)

    def observe(self, topics: Sequence[str]) -> Mapping[str, TopicOffsets]:
        found: dict[str, TopicOffsets] = {}
        for topic, observed in observe(self.connection(), topics).items():
            if isinstance(observed, KafkaAssetsError):
                raise observed
            found[topic] = observed
        return found


class KafkaProducerResource(KafkaResource):
    """A producer for assets and ops that write to Kafka: `with kafka_producer.producer() as producer: …`.

    Leaving the block delivers what waits, and raises for each record that was not acknowledged, so
    that a run whose records did not arrive does not succeed.
    """

    key: str = "any"
    value: str = "json"
    partitioner: str = "key"
    compression: str | None = None
    transactional_id: str | None = None
    stop_on_first_error: bool = False
    delivery_timeout: float | None = None

    def producer(
        self,
        *,
        interceptors: Sequence[Interceptor] = (),
        on_success: Callable[[Delivery], None] | None = None,
        on_error: Callable[[Failure], None] | None = None,
    ) -> Producer:
        """A new producer; what is a function cannot be configuration, and is given here."""
        return Producer(
            self.connection(),
            key=self.key,
            value=self.value,
            partitioner=self.partitioner,
            compression=cast("Compression | None", self.compression),
            transactional_id=self.transactional_id,
            interceptors=interceptors,
            on_success=on_success,
            on_error=on_error,
            stop_on_first_error=self.stop_on_first_error,
            delivery_timeout=self.delivery_timeout,
        )


class SparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy session; without a configuration it is the Spark that the settings name.

    On Spark Connect each run has a session of its own, which the server is told to forget when the run ends.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict, repr=False)
    _opened: Opened | None = PrivateAttr(default=None)
    _told: Any = PrivateAttr(default=None)
    """The run's log, where there is a run."""

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._told = context.log

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self.close()

    def close(self) -> None:
        """Give the session back; for who takes the resource outside of a run of Dagster's."""
        opened, self._opened, self._spark_session = self._opened, None, None
        if opened is not None:
            opened.close()

    def require(self) -> None:
        """Open a session and give it back: raises `SparkUnavailable` where a run would find no Spark.

        And `WorkersUnfit` where its workers could not read or decode. A run does not ask that itself, which takes it
        0.2 s of a warm server; its first query fails in the same words, and no slice is given up for it.
        """
        alone = SparkResource(spark_config=self.spark_config)
        try:
            alone._init_session()
            with reached():
                require_fit(cast(SparkSession, alone._spark_session))
        finally:
            alone.close()

    @property
    def remote(self) -> str | None:
        """The address of the Spark Connect server; None where each process has a Spark of its own.

        Raises `SettingsError` where none is known.
        """
        if self.spark_config:
            return self.spark_config.get("spark.remote")
        settings = load_settings()
        endpoint = settings.require_spark()
        return None if settings.spark_remote is None else endpoint

    def require_known(self) -> None:
        """Raises `SettingsError` where nobody has said where Spark is: a run could only fail. Asks no Spark."""
        if not self.spark_config:
            load_settings().require_spark()

    def trouble(self, *, patience: timedelta) -> str | None:
        """Why a run would wait for its Spark Connect server, which is asked for next to nothing.

        None where it answers within the patience, and where no server is set: each run starts a Spark of its own.
        """
        try:
            remote = self.remote
        except SettingsError:
            return None
        if remote is None:
            return None
        why = unanswered(remote, patience=patience)
        if why is None:
            return None
        return (
            f"Spark at {connect_endpoint(remote)} does not answer within {patience.total_seconds():.0f} s "
            f"({why[:200]}): it is gone, full or overloaded, and runs wait for it · look at its memory and its "
            "machine's load; `kafka-assets up` starts a local one anew"
        )

    def _init_session(self) -> None:
        if self._opened is None:
            settings = load_settings()
            config = self.spark_config or spark_config(settings)
            self._opened = open_session(config, patience=settings.spark_patience, say=(self._told or _log).warning)
            self._spark_session = self._opened.session


@lru_cache(maxsize=1)
def default_resources() -> Mapping[str, object]:
    """The resources that every kafka_asset needs, from the settings; the same objects each time, so that they merge."""
    from kafka_assets.assets.io_manager import SliceIOManager
    from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK

    return {KAFKA: KafkaResource(), SPARK: SparkResource(), IO_MANAGER: SliceIOManager()}
