"""Real local services for users' tests: started when a test first asks, stopped when all are through."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import dagster as dg
from pyspark.sql import SparkSession
from sqlalchemy import make_url, text

from kafka_assets import devstack
from kafka_assets.assets.by_hand import plan_now
from kafka_assets.assets.folder import Declared, streams_in
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.keys import add_keys
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK
from kafka_assets.assets.resources import KafkaResource, SparkResource
from kafka_assets.assets.runner import Done, Runner
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record as Produced
from kafka_assets.broker.produce import produce
from kafka_assets.broker.topics import create_topic
from kafka_assets.errors import NotCaughtUp
from kafka_assets.ledger.engine import make_engine, parse_url
from kafka_assets.settings import Settings
from kafka_assets.spark.session import Opened, open_session
from kafka_assets.testing import Record, as_bytes

Database = Literal["sqlite", "postgresql", "mariadb", "mysql"]

_numbers = itertools.count(1)


class Services:
    """A broker, Spark and databases in one folder; each is started when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def bootstrap_servers(self) -> str:
        """A real broker."""
        servers = devstack.up(self.folder, ["kafka"]).bootstrap_servers
        assert servers
        return servers

    @cached_property
    def spark_remote(self) -> str:
        """The address of a Spark Connect server, with its token."""
        remote = devstack.up(self.folder, ["spark"]).spark_remote
        assert remote
        return remote

    @cached_property
    def spark(self) -> SparkSession:
        """A session on it."""
        return self._opened.session

    @cached_property
    def _opened(self) -> Opened:
        return open_session({"spark.remote": self.spark_remote})

    def database(self, kind: Database = "sqlite") -> str:
        """The URL of a new, empty database: a file, or one of a server's."""
        name = f"test_{os.getpid()}_{next(_numbers)}"  # workers of pytest-xdist may share a server
        if kind == "sqlite":
            return f"sqlite:///{tempfile.mkdtemp(prefix='database_', dir=self.folder)}/{name}.db"
        server = parse_url(devstack.up(self.folder, [kind]).urls[kind])
        engine = make_engine(server)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return make_url(server).set(database=name).render_as_string(hide_password=False)

    def produce(
        self,
        topic: str,
        records: Iterable[Record | Mapping[str, Any] | str | bytes | None],
        *,
        partitions: int = 1,
        partition: int | None = None,
    ) -> None:
        """Write records into a topic, which is created with so many partitions if it is not there."""
        connection = Connection(self.bootstrap_servers, {})
        create_topic(connection, topic, partitions=partitions)
        given = (one if isinstance(one, Record) else Record(one) for one in records)
        produce(
            connection,
            topic,
            (
                Produced(
                    value=as_bytes(one.value),
                    key=as_bytes(one.key),
                    partition=partition,
                    timestamp_ms=int(one.timestamp.timestamp() * 1000),
                    headers=one.headers,
                )
                for one in given
            ),
        )

    def land(self, *assets: Declared, database_url: str, patience: timedelta = timedelta(minutes=1)) -> Done:
        """Land all that is in the assets' topics now, as the sensor and its runs would: planned, claimed, committed.

        What failed stands in the answer. A second call lands what came since, and nothing twice.
        """
        settings = Settings(
            project=self.folder,
            streams=self.folder,
            bootstrap_servers=self.bootstrap_servers,
            database_url=database_url,
            spark_remote=self.spark_remote,
        )
        with (
            dg.DagsterInstance.ephemeral() as instance,
            Runner(settings, instance=instance, assets=assets, resources=self.resources(database_url)) as runner,
        ):
            return runner.until_caught_up(patience=patience)

    def plan(self, asset: dg.AssetsDefinition, *, database_url: str, instance: dg.DagsterInstance) -> list[str]:
        """Plan what is in the asset's topics now, as the sensor would; the instance gets the new keys, in order."""
        streams = streams_in([asset])
        engine = make_engine(database_url)
        try:
            planned = plan_now(engine, Connection(self.bootstrap_servers, {}), streams)
        finally:
            engine.dispose()
        if planned.troubles:
            raise NotCaughtUp("not all could be planned", why=" | ".join(planned.troubles), cure="correct what it says")
        keys = [str(one.key) for one in planned.slices if one.kind == "normal"]
        for stream in streams:
            add_keys(instance, stream, keys)
        return keys

    def resources(self, database_url: str) -> dict[str, Any]:
        """What the assets' runs need, for Dagster's own `materialize`."""
        return {
            KAFKA: KafkaResource(bootstrap_servers=self.bootstrap_servers),
            SPARK: SparkResource(spark_config={"spark.remote": self.spark_remote}),
            IO_MANAGER: SliceIOManager(database_url=database_url),
        }

    def stop(self) -> None:
        """End all that was started, and delete its data."""
        if "_opened" in self.__dict__:
            self._opened.close()
        devstack.down(self.folder, delete=True)


@contextmanager
def local_services() -> Generator[Services]:
    """Services in a folder of their own, that end with the block, and also when Python itself ends before."""
    folder = Path(tempfile.mkdtemp(prefix="kafka_assets_services-"))
    # As root, PostgreSQL runs as another user, who must be able to pass.
    folder.chmod(0o711)
    services = Services(folder)

    def end() -> None:
        services.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    try:
        yield services
    finally:
        atexit.unregister(end)
        end()
