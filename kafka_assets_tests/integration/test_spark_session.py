"""Spark Connect that goes away: an error that says so, and a process that ends all the same when its work is over."""

from __future__ import annotations

import atexit
import socket
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.core import DefaultChannelBuilder, SparkConnectClient

from kafka_assets.devstack.spark import DEFAULTS, SOCKETS, spark_home
from kafka_assets.errors import SparkUnavailable
from kafka_assets.spark.reached import reached
from kafka_assets.spark.session import open_session
from kafka_assets_tests.integration.living import waited
from kafka_assets_tests.integration.project import Landing, failure_of

WORKER = """
import gc
import sys
import threading
import time

from kafka_assets.assets.resources import SparkResource

counted = SparkResource(spark_config={"spark.remote": sys.argv[1]}).spark_session.range(5).count()
while any("ThreadPoolExecutor" in thread.name for thread in threading.enumerate()):
    gc.collect()
    time.sleep(0.1)  # until what the query itself has left to say is said
print(counted, flush=True)
sys.stdin.readline()
"""
BOUNDED = {
    "spark.connect.session.manager.defaultSessionTimeout",
    "spark.connect.execute.manager.abandonedTombstonesSize",
    "spark.connect.execute.manager.detachedTimeout",
    "spark.connect.session.planCache.maxSize",
    "spark.sql.connect.ui.retainedSessions",
    "spark.sql.connect.ui.retainedStatements",
    "spark.sql.ui.retainedExecutions",
    "spark.executor.isolatedSessionCache.size",
}
"""What was seen to stay in the server's heap of each run that is over; `make soak-sessions` measures all of it."""
GIVE_UP = 120.0
"""Seconds; the client alone asks a server that is gone for ten minutes."""


class Road:
    """A port that leads to a server's, and can be watched, frozen and ended: then it is as if the server were gone."""

    def __init__(self, spark_remote: str) -> None:
        self._there = urlsplit(spark_remote).port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.port: int = self._listening.getsockname()[1]
        self.sent = 0
        """Bytes that went to the server."""
        self.open = threading.Event()
        self.open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def to(self, spark_remote: str) -> str:
        return spark_remote.replace(f":{self._there}/", f":{self.port}/")

    def end(self) -> None:
        self.open.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                there = socket.create_connection(("127.0.0.1", self._there))
                self._ends.extend((here, there))
                for pair, out in (((here, there), True), ((there, here), False)):
                    threading.Thread(target=self._carry, args=pair, kwargs={"out": out}, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, *, out: bool) -> None:
        with suppress(OSError):
            while got := source.recv(65536):
                self.open.wait()
                self.sent += len(got) if out else 0
                sink.sendall(got)


@contextmanager
def road_to(spark_remote: str) -> Iterator[Road]:
    """A road that leads to this server until the block ends."""
    road = Road(spark_remote)
    yield road
    road.end()


def known(spark_remote: str, session_id: str) -> bool:
    """Whether the server has this session, or had it and was told to forget it."""
    builder = DefaultChannelBuilder(f"{spark_remote};session_id={session_id}")
    client = SparkConnectClient(builder)
    atexit.unregister(client._on_exit)
    try:
        client.get_configs("spark.sql.session.timeZone")
    except PySparkException as error:
        assert "SESSION_CLOSED" in str(error)
        return False
    finally:
        client.close()
    return True


def test_a_session_that_is_closed_is_forgotten_by_the_server(spark_remote: str) -> None:
    opened = open_session({"spark.remote": spark_remote})
    assert opened.session.range(5).count() == 5
    assert known(spark_remote, opened.session.session_id)
    opened.close()
    assert not known(spark_remote, opened.session.session_id)


def test_what_runs_leave_in_the_server_is_bounded_by_settings_that_its_spark_knows() -> None:
    written = {line.split()[0] for line in (DEFAULTS + SOCKETS).splitlines() if line.startswith("spark.")}
    assert written >= BOUNDED
    unknown = set(written)
    for jar in (spark_home() / "jars").glob("spark-*.jar"):
        with zipfile.ZipFile(jar) as classes:
            for name in classes.namelist():
                if name.endswith(".class") and any(part in name for part in ("config", "Conf", "package")):
                    constants = classes.read(name)
                    # As a class file holds a text: its length, then itself.
                    unknown -= {one for one in unknown if struct.pack(">H", len(one)) + one.encode() in constants}
    assert unknown == set()


def test_a_query_speaks_to_its_workers_through_a_private_folder(spark: SparkSession) -> None:
    def itself(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    assert spark.range(5).mapInArrow(itself, "id long").count() == 5
    folder = Path(str(spark.conf.get("spark.python.unix.domain.socket.dir")))
    assert list(folder.glob(".*.sock"))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_run_gives_its_session_back_however_it_ends(landing: Callable[..., Landing], spark_remote: str) -> None:
    used: list[str] = []

    def transform(records: Any) -> Any:
        used.append(records.sparkSession.session_id)
        if len(set(used)) == 2:
            raise ValueError("the second run fails")
        return records

    stream = landing(transform=transform)
    stream.topic()
    for first in (0, 5):
        stream.produce_ids(first, first + 5)
        [request] = stream.tick().requests
        assert stream.run(request).success is (first == 0)
    assert len(set(used)) == 2, "each run has a session of its own"
    assert [known(spark_remote, one) for one in set(used)] == [False, False]


def test_a_session_that_asks_nothing_is_heard_of_all_the_same(spark_remote: str) -> None:
    with road_to(spark_remote) as road:
        opened = open_session({"spark.remote": road.to(spark_remote)}, patience=timedelta(seconds=2))
        before = road.sent
        for _ in range(3):
            waited(lambda at=before: road.sent > at)
            before = road.sent
        opened.close()


def test_a_server_that_goes_away_is_an_error_that_may_pass(spark_remote: str) -> None:
    told: list[str] = []
    with road_to(spark_remote) as road:
        config = {"spark.remote": road.to(spark_remote)}
        opened = open_session(config, patience=timedelta(seconds=6), say=told.append)
        assert opened.session.range(5).count() == 5
    with pytest.raises(SparkUnavailable), reached():
        opened.session.range(5).count()
    opened.close()
    assert any(f"localhost:{road.port} does not answer" in one for one in told)


def test_a_query_whose_server_falls_silent_ends(spark_remote: str) -> None:
    with road_to(spark_remote) as road:
        opened = open_session({"spark.remote": road.to(spark_remote)}, patience=timedelta(seconds=4))
        assert opened.session.range(5).count() == 5
        road.open.clear()
        with pytest.raises(SparkUnavailable), reached():
            opened.session.range(5).count()
        opened.close()


def test_a_run_whose_spark_goes_away_gives_its_slices_back(
    landing: Callable[..., Landing], spark_remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_SPARK_PATIENCE", "4s")
    road = Road(spark_remote)
    calls: list[int] = []

    def leave(records: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:  # the first is for the table's columns
            road.end()
        return records

    stream = landing(transform=leave)
    stream.topic()
    stream.produce_ids(0, 5)
    [request] = stream.tick().requests
    failed = replace(stream, spark_remote=road.to(spark_remote)).run(request)
    assert "Spark cannot be reached" in failure_of(failed)
    assert stream.sql("select state from kafka_publication") == "planned"
    assert stream.sql("select failures_alone from kafka_claim") == 0
    assert stream.run(request).success, "its claim was given back: nobody waits for the lease"


def test_a_process_whose_spark_is_gone_ends_all_the_same(spark_remote: str) -> None:
    with road_to(spark_remote) as road, ExitStack() as afterwards:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, road.to(spark_remote)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        afterwards.callback(worker.kill)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "5\n"
        ending = afterwards.pop_all()
    with worker, ending:
        worker.communicate("over\n", timeout=GIVE_UP)
        assert worker.returncode == 0
