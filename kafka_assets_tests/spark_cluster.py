"""A real Spark cluster on this machine: a standalone master, workers of one core, and a Spark Connect server on them.

Its executors are processes of their own, in folders of their own: what they know they were sent.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from kafka_assets.devstack import spark as spark_service
from kafka_assets.devstack.ports import answers
from kafka_assets.devstack.progress import Silent
from kafka_assets.devstack.spark import SparkConnect, spark_home
from kafka_assets_tests.integration.living import waited

CLUSTER = """
spark.master spark://127.0.0.1:{master}
spark.executor.memory 1g
spark.executor.cores 1
# Of a cluster every process has to know the secret; each of these is on this machine.
spark.authenticate false
# One is started again wherever there is room, and a task of one that was killed runs again elsewhere.
spark.deploy.maxExecutorRetries 100
spark.task.maxFailures 20
"""
"""What differs from the server that `up` starts."""


class SparkCluster:
    """Its processes, each of which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master, self.port = _free(), _free()
        self.token = secrets.token_urlsafe(16)
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def remote(self) -> str:
        """The address of its Spark Connect server."""
        return f"sc://localhost:{self.port}/;token={self.token}"

    def start(self, *, workers: int) -> None:
        self._class("master", "org.apache.spark.deploy.master.Master", "--port", str(self.master))
        waited(lambda: answers(self.master))
        for number in range(1, workers + 1):
            self.add_worker(f"worker-{number}")
        service = SparkConnect(self.folder, token=self.token)
        kept = spark_service.DEFAULTS
        spark_service.DEFAULTS = kept + CLUSTER.format(master=self.master)
        try:
            launch = service.prepare({"client": self.port}, Silent())
        finally:
            spark_service.DEFAULTS = kept
        self._run("connect", [str(part) for part in launch.command], env=launch.env)
        waited(lambda: service.unready({"client": self.port}) is None)

    def add_worker(self, name: str) -> None:
        """One more worker of one core; the server gets an executor on it by itself."""
        self._class(
            name,
            "org.apache.spark.deploy.worker.Worker",
            "--cores", "1", "--memory", "1500m", "--work-dir", str(self.folder / name),
            f"spark://127.0.0.1:{self.master}",
        )  # fmt: skip

    @property
    def workers(self) -> list[str]:
        """Those that have not been killed."""
        return [name for name in self._started if name not in ("master", "connect")]

    def executors(self, worker: str) -> list[psutil.Process]:
        """The executors that run on a worker now."""
        with suppress(psutil.NoSuchProcess):
            return [
                one
                for one in psutil.Process(self._started[worker].pid).children()
                if any("CoarseGrainedExecutorBackend" in word for word in one.cmdline())
            ]
        return []

    def kill_worker(self, name: str) -> None:
        """SIGKILL to a worker, and to what runs on it, as when its machine is gone."""
        process = self._started.pop(name)
        for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()

    def end(self) -> None:
        for process in reversed(self._started.values()):
            with suppress(psutil.NoSuchProcess):
                for one in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _class(self, name: str, kind: str, *words: str) -> None:
        program = str(spark_home() / "bin" / "spark-class")
        self._run(name, [program, kind, "--host", "127.0.0.1", "--webui-port", "0", *words], env={})

    def _run(self, name: str, command: list[str], *, env: Mapping[str, str]) -> None:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        # A test's own Python must not be the executors': they would find its packages by it.
        given = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
        given |= {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1", **env}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._started[name] = subprocess.Popen(
                command, env=given, stdout=log, stderr=log, cwd=self.folder / name, start_new_session=True
            )


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2) -> Generator[SparkCluster]:
    """A cluster that ends with the block."""
    cluster = SparkCluster(folder)
    try:
        cluster.start(workers=workers)
        yield cluster
    finally:
        cluster.end()


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port
