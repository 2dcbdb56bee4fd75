"""A warm Spark Connect server: a session is there in a second, where a new JVM takes ten.

It runs code for whoever reaches it, so it listens on loopback only and asks for a token. The token travels by
environment and by a file of the owner's alone, never in a command line.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from kafka_assets.devstack.java import find_java, write_properties
from kafka_assets.devstack.logs import log4j_properties
from kafka_assets.devstack.ports import answers
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.service import Launch, Service
from kafka_assets.errors import ServiceError
from kafka_assets.settings import make_private

DEFAULTS = """\
spark.master local[*]
spark.app.name kafka_assets
spark.driver.memory 2g
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.plugins org.apache.spark.sql.connect.SparkConnectPlugin
spark.sql.artifact.isolation.enabled false
spark.sql.artifact.isolation.alwaysApplyClassloader false
spark.connect.grpc.binding.address 127.0.0.1
spark.connect.grpc.binding.port {port}
# On a taken port Spark would go on to the next one, and we would wait at the wrong door.
spark.port.maxRetries 0
spark.sql.session.timeZone UTC
spark.sql.warehouse.dir {folder}/warehouse
spark.local.dir {folder}/local
spark.pyspark.python {python}
{sockets}
spark.sql.shuffle.partitions 8
spark.ui.enabled false
spark.ui.showConsoleProgress false
# A run gives its session back. What a killed one leaves, and all that hangs on it, goes after minutes; a run that
# lives is heard of four times a minute, whatever it waits for.
spark.connect.session.manager.defaultSessionTimeout 4m
# The rows of a function are read as they are published: where the database stands still, nobody reads for as long. What
# a killed run leaves goes with its session.
spark.connect.execute.manager.detachedTimeout 1h
# Of each execution that ended with its session the whole plan would be kept, 10,000 of them.
spark.connect.execute.manager.abandonedTombstonesSize 10
# Analysed plans are used again within a chunk, and never after it.
spark.connect.session.planCache.maxSize 4
# The UI that would show them is off.
spark.sql.ui.retainedExecutions 10
spark.sql.connect.ui.retainedSessions 10
spark.sql.connect.ui.retainedStatements 10
spark.ui.retainedJobs 10
spark.ui.retainedStages 10
# Executors keep the class loaders of so many sessions, and each session is one run's.
spark.executor.isolatedSessionCache.size 16
# All of a chunk passes through the server; two of them are under way at a time.
spark.driver.maxResultSize 1g
# Its other ports, too, are for nobody else on this machine.
spark.authenticate true
# One that is out of memory is not there any more, where it would stand still: `up` starts it again.
# Packets of some megabytes are huge objects in regions of one: each would begin another look through all of the heap.
# Java's second compiler takes what runs for each record, and not what plans queries: for that, which runs some thousand
# times a query, it took more of the processors than it ever gave back.
spark.driver.extraJavaOptions -XX:+ExitOnOutOfMemoryError -XX:G1HeapRegionSize=16m \
-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=20000 -XX:Tier4CompileThreshold=300000 \
-XX:Tier4BackEdgeThreshold=400000
"""


SOCKETS = """\
# Through TCP each query waits 40 ms for a Python worker, and the worker for Spark: each holds back a small packet until
# the other has answered the one before.
spark.python.unix.domain.socket.enabled true
spark.python.unix.domain.socket.dir {folder}
"""
_LONGEST = 60
"""Bytes that the folder of the sockets may have: with a longer one Spark (4.2.0) fails each query."""

UNREADY = timedelta(seconds=45)
"""One that has not answered by then is started again: on a busy machine a server that is well may take a while."""
SLOW = timedelta(seconds=10)


class SparkConnect(Service):
    """The project's Spark Connect server."""

    patience = 180.0  # five seconds alone, and more than a minute where the machine does much else
    farewell = 15.0

    def __init__(self, state: Path, *, token: str) -> None:
        super().__init__(state, "spark")
        self.token = token

    def prepare(self, ports: Mapping[str, int], progress: Progress) -> Launch:
        home, conf = spark_home(), self.folder / "conf"
        for folder in (conf, self.folder / "local", self.folder / "warehouse"):
            folder.mkdir(parents=True, exist_ok=True)
        defaults = DEFAULTS.format(
            port=ports["client"],
            folder=self.folder,
            python=sys.executable,
            sockets=_worker_sockets(self.folder / "workers"),
        )
        # Spark's launcher and its server read this one as UTF-8, unlike Java.
        (conf / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
        write_properties(conf / "log4j2.properties", log4j_properties(self.log, level="warn"))
        return Launch(
            [
                home / "bin" / "spark-submit",
                Path(__file__).with_name("spark_application.py"),
            ],
            # Functions that users pass to Spark are imported by its Python workers from here.
            folder=self.state.parent,
            env={
                "SPARK_HOME": str(home),
                "SPARK_CONF_DIR": str(conf),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_CONNECT_AUTHENTICATE_TOKEN": self.token,
                # spark-submit looks for JAVA_HOME/bin/java, or else on PATH.
                "JAVA_HOME": str(find_java().resolve().parent.parent),
                "PYSPARK_PYTHON": sys.executable,
            },
        )

    def unready(self, ports: Mapping[str, int]) -> str | None:
        if not answers(ports["client"]):
            return f"nothing listens on port {ports['client']} yet"
        return self._asked(ports, UNREADY)

    def slow(self, ports: Mapping[str, int]) -> str | None:
        return self._asked(ports, SLOW)

    def _asked(self, ports: Mapping[str, int], patience: timedelta) -> str | None:
        from kafka_assets.spark.connected import unanswered

        return unanswered(self.url(ports), patience=patience)

    def url(self, ports: Mapping[str, int]) -> str:
        # The client speaks to `localhost` without TLS, and insists on it with 127.0.0.1.
        return f"sc://localhost:{ports['client']}/;token={self.token}"


def _worker_sockets(folder: Path) -> str:
    """How Spark's Python workers are spoken to: through a private folder's sockets, if their addresses are not too
    long. Who may open such a socket may have code run by it: it asks for no secret, as the one on TCP does."""
    if len(os.fsencode(folder)) > _LONGEST:
        return ""
    make_private(folder)
    for left in folder.glob(".*.sock"):
        left.unlink()  # of a server that was killed
    return SOCKETS.format(folder=folder)


def spark_home() -> Path:
    """The folder of the installed pyspark, which is a whole Spark."""
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec and spec.origin else None
    if home is None or not (home / "bin" / "spark-submit").exists():
        raise ServiceError(
            "pyspark was not found, or is the client alone",
            why="the Spark server runs from the installed pyspark",
            cure="install kafka-assets with its dependencies (pyspark[connect], not pyspark-client)",
        )
    return home
