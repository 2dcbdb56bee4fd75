"""A real Spark cluster on this machine: a standalone master, workers of one core, and a Spark Connect server on them.

Its executors are processes of their own, in folders of their own: what they know they were sent.
"""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from kafka_assets.devstack import spark as spark_service
from kafka_assets.devstack.ports import answers, choose
from kafka_assets.devstack.progress import Silent
from kafka_assets.devstack.spark import SparkConnect, spark_home
from kafka_assets_tests.integration.living import waited
from kafka_assets_tests.java_options import QUICKLY_COMPILED
from kafka_assets_tests.spark_tasks import LOGGED, Told, told

CLUSTER = """
spark.master spark://127.0.0.1:{master}
spark.executor.memory 1g
spark.executor.cores 1
spark.executor.extraJavaOptions {options}
spark.driver.extraJavaOptions -XX:+ExitOnOutOfMemoryError {options}
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
        ports = choose(("master", "client"), remembered={}, taken=set())
        self.master, self.port = ports["master"], ports["client"]
        self.token = secrets.token_urlsafe(16)
        self._service = SparkConnect(self.folder, token=self.token)
        self._names = (f"worker-{number}" for number in itertools.count(1))
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def remote(self) -> str:
        """The address of its Spark Connect server."""
        return f"sc://localhost:{self.port}/;token={self.token}"

    def start(self, *, workers: int) -> None:
        """The processes, each as soon as those are there that it asks; returns when the server answers queries."""
        self._class("master", "org.apache.spark.deploy.master.Master", "--port", str(self.master))
        waited(lambda: answers(self.master))
        for _ in range(workers):
            self.add_worker()
        kept = spark_service.DEFAULTS
        spark_service.DEFAULTS = kept + CLUSTER.format(master=self.master, options=QUICKLY_COMPILED)
        try:
            launch = self._service.prepare({"client": self.port}, Silent())
        finally:
            spark_service.DEFAULTS = kept
        with (self._service.folder / "conf" / "log4j2.properties").open("a", encoding="ascii") as configuration:
            configuration.write(LOGGED)
        self._run("connect", [str(part) for part in launch.command], env=launch.env)
        waited(lambda: self._service.unready({"client": self.port}) is None, SparkConnect.patience)

    def add_worker(self) -> str:
        """One more worker of one core, by its name; the server gets an executor on it by itself, in a while."""
        name = next(self._names)
        self._class(
            name,
            "org.apache.spark.deploy.worker.Worker",
            "--cores", "1", "--memory", "1500m", "--work-dir", str(self.folder / name),
            f"spark://127.0.0.1:{self.master}",
        )  # fmt: skip
        return name

    def fill_up(self, *, workers: int) -> None:
        """As many workers as that, each with an executor that the server knows."""
        while len(self.workers) < workers:
            self.add_worker()
        waited(lambda: all(self.executor_on(name) is not None for name in self.workers))

    @property
    def workers(self) -> list[str]:
        """Those that have not been killed."""
        return [name for name in self._started if name not in ("master", "connect")]

    @property
    def told(self) -> Told:
        """What the server says of its executors and tasks."""
        return told(self._service.log)

    def worker_of(self, executor: int) -> str:
        """Where an executor ran, or runs."""
        return next(found.parts[-3] for found in self.folder.glob(f"worker-*/app-*/{executor}"))

    def executor_on(self, worker: str) -> int | None:
        """The executor that runs on a worker now, if the server knows it already."""
        return next((number for number in self.executors(worker) if number in self.told.executors), None)

    def signalled(self, executor: int, what: signal.Signals) -> None:
        """The executor's process gets that signal."""
        self.executors(self.worker_of(executor))[executor].send_signal(what)

    def kill_worker(self, name: str) -> None:
        """SIGKILL to a worker, and to what runs on it, as when its machine is gone."""
        process = self._started.pop(name)
        for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
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

    def executors(self, worker: str) -> Mapping[int, psutil.Process]:
        """The executors' processes on a worker, by their numbers."""
        found: dict[int, psutil.Process] = {}
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self._started[worker].pid).children():
                with suppress(psutil.NoSuchProcess):
                    words = one.cmdline()
                    if "--executor-id" in words:
                        found[int(words[words.index("--executor-id") + 1])] = one
        return found

    def _class(self, name: str, kind: str, *words: str) -> None:
        program = str(spark_home() / "bin" / "spark-class")
        self._run(
            name,
            [program, kind, "--host", "127.0.0.1", "--webui-port", "0", *words],
            env={"SPARK_DAEMON_JAVA_OPTS": QUICKLY_COMPILED},
        )

    def _run(self, name: str, command: list[str], *, env: Mapping[str, str]) -> None:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        # A test's own Python must not be the executors': they would find its packages by it. And where a test before
        # has had a session of Spark Connect, PySpark has written down here that there is no other kind.
        own = ("PYTHON", "PYSPARK", "SPARK_")
        given = {key: value for key, value in os.environ.items() if not key.startswith(own)}
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
