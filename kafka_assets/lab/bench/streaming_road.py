"""What many would take instead: Spark's Structured Streaming with foreachBatch and JDBC, in a session of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL

from kafka_assets.devstack import artifacts, fetch
from kafka_assets.devstack.processes import tail
from kafka_assets.errors import ServiceError
from kafka_assets.lab.bench.child_processes import hear, tell
from kafka_assets.lab.bench.course import Course, Landing

BATCH = 10_000
"""Rows a batch of the driver's, which writes several of them into one INSERT."""
DIALECT = "postgresql"
"""The one database whose JDBC driver is in jars.lock, as Spark's Kafka connector is: for benchmarks alone."""


@dataclass(frozen=True)
class StreamingRoad:
    """A process with a classic session, warm from the first landing on."""

    process: subprocess.Popen[str]
    log: Path
    name: str = "Structured Streaming + JDBC"

    def land(self, course: Course) -> Landing:
        """Seconds from the query's start to its end; the session's start is in none."""
        table = course.empty_table().name
        job = {
            "bootstrap": course.connection.bootstrap_servers, "topic": course.topic, "table": table,
            "schema": course.records.shape.schema, "jdbc": jdbc_options(course.engine.url),
            "products": None if course.products is None else str(course.products),
        }  # fmt: skip
        tell(self.process, json.dumps(job))
        seconds = float(json.loads(self.heard()))
        return Landing(table, {"": seconds})

    def heard(self) -> str:
        """Its next line; ServiceError with the end of its log where it ended instead."""
        try:
            return hear(self.process)
        except ServiceError as error:
            raise ServiceError(error.what, why=tail(self.log), cure=error.cure) from error


@contextmanager
def streaming_road() -> Generator[StreamingRoad]:
    """Start it, with the connector's jars and the driver's; it ends with the block."""
    jars = fetch.fetch([*artifacts.group("spark-connector"), *artifacts.group("jdbc")])
    config = {
        "spark.master": "local[*]", "spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC", "spark.driver.memory": "2g", "spark.log.level": "ERROR",
    }  # fmt: skip
    command = [sys.executable, "-m", "kafka_assets.lab.bench.streaming_process"]
    with tempfile.NamedTemporaryFile(prefix="kafka_assets_scratch_") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.fileno(), text=True
        )
        road = StreamingRoad(process, Path(log.name))
        try:
            tell(process, json.dumps(config))
            road.heard()
            yield road
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()  # at the end of its input it ends
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def jdbc_options(url: URL) -> dict[str, str]:
    """How Spark's JDBC sink is told of this PostgreSQL; the driver writes many rows into one INSERT."""
    place = f"jdbc:postgresql://{url.host}:{url.port or 5432}/{url.database}?reWriteBatchedInserts=true"
    return {
        "url": place, "driver": "org.postgresql.Driver", "batchsize": str(BATCH),
        "user": url.username or "", "password": url.password or "",
    }  # fmt: skip
