"""Spark Connect that goes away: an error that says so, and a process that ends all the same when its work is over."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import retries

from kafka_assets.errors import SparkUnavailable
from kafka_assets.spark.reached import reached
from kafka_assets.spark.session import leave_quietly

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
GIVE_UP = 120.0
"""Seconds; the client alone asks a server that is gone for ten minutes."""


@contextmanager
def road_to(port: int) -> Iterator[int]:
    """A port that leads to another one, until the block ends: then it is as if the server behind it were gone."""
    ends: list[socket.socket] = []

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while got := source.recv(65536):
                sink.sendall(got)

    def accept() -> None:
        with suppress(OSError):
            while True:
                here, _ = listening.accept()
                there = socket.create_connection(("127.0.0.1", port))
                ends.extend((here, there))
                for source, sink in ((here, there), (there, here)):
                    threading.Thread(target=carry, args=(source, sink), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_a_server_that_goes_away_is_an_error_that_may_pass(spark_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # It would ask for ten minutes first.
    monkeypatch.setattr(retries.DefaultPolicy, "can_retry", lambda self, error: False)
    port = urlsplit(spark_remote).port
    assert port is not None
    with road_to(port) as elsewhere:
        session = SparkSession.builder.remote(spark_remote.replace(f":{port}/", f":{elsewhere}/")).create()
        leave_quietly(session)
        assert session.range(5).count() == 5
    with pytest.raises(SparkUnavailable), reached():
        session.range(5).count()


def test_a_process_whose_spark_is_gone_ends_all_the_same(spark_remote: str) -> None:
    port = urlsplit(spark_remote).port
    assert port is not None
    with road_to(port) as elsewhere, ExitStack() as afterwards:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, spark_remote.replace(f":{port}/", f":{elsewhere}/")],
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
