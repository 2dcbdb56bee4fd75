"""What many would take instead: Kafka Connect, with Debezium's JDBC sink, in a worker of its own.

The worker is a standalone one, on loopback. Its converter is told the records' schema once, by its configuration, so
that it reads the same topic as all other roads: without that, each record would have to bring its schema along.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from kafka_assets.devstack import artifacts, fetch, ports
from kafka_assets.devstack.java import find_java, write_properties
from kafka_assets.devstack.logs import log4j_properties
from kafka_assets.devstack.processes import environment, tail
from kafka_assets.errors import ServiceError
from kafka_assets.lab.bench.course import Course, Landing
from kafka_assets.lab.bench.record_shapes import PARTITIONS, Kind, Shape
from kafka_assets.lab.bench.streaming_road import BATCH, jdbc_options
from kafka_assets.ledger.engine import write
from kafka_assets.records import OFFSET, PARTITION

TASKS = 2
PATIENCE = 600.0
"""Seconds that a landing may take."""
_START = 60.0
"""Seconds that the worker may take to answer."""
_LOOK, _ASK = 0.02, 1.0
"""Seconds from one look into the table to the next, and from one question how the tasks are to the next."""
_FETCHED = 16 * 1024 * 1024
"""Bytes of a partition in one answer of the broker: its own default holds no batch of so many records."""
_WORKER = """\
bootstrap.servers={bootstrap}
listeners=http://127.0.0.1:{port}
plugin.path=plugins
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename=offsets
"""
_TYPES: dict[Kind, dict[str, Any]] = {
    "BIGINT": {"type": "int64"},
    "DOUBLE": {"type": "double"},
    "STRING": {"type": "string"},
    "DECIMAL(12,2)": {
        "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": {"scale": "2"},
    },
    "TIMESTAMP": {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1},
}  # fmt: skip


@dataclass(frozen=True)
class ConnectRoad:
    """A worker, warm from the first landing on; each landing is a connector of its own, which goes again."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    name: str = "Kafka Connect + Debezium JDBC"

    def land(self, course: Course) -> Landing:
        """Seconds from the request for the connector to its last commit; the worker's start is in none."""
        table = _empty_table(course)
        began = time.monotonic()
        self._ask("POST", "/connectors", {"name": table, "config": connector(course, table)})
        self._wait(course, table, until=began + PATIENCE)
        seconds = time.monotonic() - began
        self._ask("DELETE", f"/connectors/{table}")
        _rename_places(course.engine, table)
        return Landing(table, {"": seconds})

    def _wait(self, course: Course, table: str, *, until: float) -> None:
        """Until the last record of each partition is there: one task after the other commits in order."""
        places = [
            f"(__connect_topic = '{course.topic}' AND __connect_partition = {partition}"
            f" AND __connect_offset = {course.records.in_partition(partition) - 1})"
            for partition in range(PARTITIONS)
        ]
        last = text(f"SELECT count(*) FROM {table} WHERE {' OR '.join(places)}")
        asked = time.monotonic()
        with course.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while connection.execute(last).scalar_one() < PARTITIONS:
                now = time.monotonic()
                if now > until:
                    raise self._trouble(f"it landed less than was produced within {PATIENCE:.0f} s")
                if now > asked + _ASK:
                    asked = now
                    self._require_tasks(table)
                time.sleep(_LOOK)

    def _require_tasks(self, connector: str) -> None:
        told = self._ask("GET", f"/connectors/{connector}/status")
        for part in (told["connector"], *told["tasks"]):
            if part["state"] == "FAILED":
                raise self._trouble(str(part.get("trace", "it does not say why"))[:2_000])

    def started(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + _START
        while True:
            try:
                self._ask("GET", "/health")
                return
            except (OSError, ServiceError) as error:  # it answers before all of it is there
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise self._trouble(f"the worker did not start: {tail(self.log)}") from error
                time.sleep(0.2)

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """A request to the worker, and the JSON that it answers."""
        asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            sent = None if body is None else json.dumps(body)
            asking.request(method, path, body=sent, headers={"Content-Type": "application/json"})
            answer = asking.getresponse()
            said = answer.read()
        finally:
            asking.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise self._trouble(f"{method} {path}: {answer.status} {said.decode(errors='replace')[:2_000]}")
        return json.loads(said) if said else None

    def _trouble(self, why: str) -> ServiceError:
        return ServiceError(
            "Kafka Connect did not land the topic", why=why, cure="correct it, and run the benchmark again"
        )


def connector(course: Course, table: str) -> dict[str, str]:
    """The configuration of Debezium's sink: it appends, and a row's key is its place in the topic."""
    jdbc = jdbc_options(course.engine.url)
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": str(TASKS),
        "topics": course.topic,
        "collection.name.format": table,
        "connection.url": jdbc["url"],
        "connection.username": jdbc["user"],
        "connection.password": jdbc["password"],
        "insert.mode": "insert",
        "primary.key.mode": "kafka",
        "schema.evolution": "none",
        "batch.size": str(BATCH),
        "consumer.override.max.poll.records": str(BATCH),
        "consumer.override.max.partition.fetch.bytes": str(_FETCHED),
        "consumer.override.isolation.level": "read_committed",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": json.dumps(connect_schema(course.records.shape)),
    }


def connect_schema(shape: Shape) -> dict[str, Any]:
    """The shape's columns as Connect's JSON converter is told them."""
    fields = [{"field": name, "optional": True, **_TYPES[kind]} for name, kind in shape.columns.items()]
    return {"type": "struct", "optional": False, "fields": fields}


def _empty_table(course: Course) -> str:
    """A new table with the columns that the sink fills: a record's place under Connect's names is its key."""
    places = {"__connect_topic": "TEXT", "__connect_partition": "INTEGER", "__connect_offset": "BIGINT"}
    return course.table_by_hand(places, key=list(places))


def _rename_places(engine: Engine, table: str) -> None:
    """Afterwards a row's place has the names that it has in the other roads' tables, for the comparison."""
    with write(engine) as connection:
        for theirs, ours in (("__connect_partition", PARTITION), ("__connect_offset", OFFSET)):
            connection.exec_driver_sql(f"ALTER TABLE {table} RENAME COLUMN {theirs} TO {ours}")


@contextmanager
def connect_road(bootstrap: str) -> Generator[ConnectRoad]:
    """Start a worker with Debezium's sink, whose jars are fetched where they are missing; it ends with the block."""
    runtime = fetch.fetch([*artifacts.group("connect"), *artifacts.group("kafka")])
    sink = fetch.fetch([*artifacts.group("debezium-jdbc"), *artifacts.group("jdbc")])
    with tempfile.TemporaryDirectory(prefix="kafka_assets_scratch_") as scratch:
        folder = Path(scratch)
        plugin, log = folder / "plugins" / "debezium-jdbc", folder / "connect.log"
        plugin.mkdir(parents=True)
        for jar in sink:
            (plugin / jar.name).symlink_to(jar)
        port = ports.choose(["rest"], remembered={}, taken=set())["rest"]
        write_properties(folder / "worker.properties", _WORKER.format(bootstrap=bootstrap, port=port))
        write_properties(folder / "log4j2.properties", log4j_properties(log, level="warn"))
        classes = ":".join(dict.fromkeys(map(str, runtime)))
        (folder / "classpath").write_text(f'-cp "{classes}"\n', encoding="utf-8")
        command = [
            find_java(), "@classpath", "-Xmx2g", "-Dlog4j2.configurationFile=log4j2.properties",
            "org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties",
        ]  # fmt: skip
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            road = ConnectRoad(process, port, log)
            road.started()
            yield road
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
