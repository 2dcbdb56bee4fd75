"""What `doctor` says of Spark: where it listens, whether it answers, how soon, and whether its workers can work."""

from __future__ import annotations

import socket
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from typing import Any

from kafka_assets.audit.doctor import SECONDS, UP, Check
from kafka_assets.broker.connection import Connection
from kafka_assets.endpoints import connect_endpoint, endpoint_of, shown
from kafka_assets.errors import KafkaAssetsError, WorkersUnfit
from kafka_assets.settings import PREFIX, Settings

PATIENCE = timedelta(seconds=20)
"""A server that takes longer for next to nothing can land nothing."""
SLOW = 5.0
"""Seconds; one that is well and warm opens a session and answers within two."""


def spark_checks(settings: Settings, *, deep: bool) -> Sequence[Check]:
    """`deep` asks it, or starts the session that each run would start."""
    address = settings.spark_remote or settings.spark_master
    if address is None:
        cure = f"{UP}, or set {PREFIX}SPARK_REMOTE or _SPARK_MASTER"
        return [Check("spark", "info", "none is set, and none was started", cure)]
    place = connect_endpoint(address) if settings.spark_remote is not None else endpoint_of(address)
    if place is not None:
        try:
            socket.create_connection((place.host, place.port), timeout=SECONDS).close()
        except OSError as error:
            return [Check("spark", "failed", f"nothing answers at {place} ({error})", f"start it, or {UP}")]
    if not deep:
        seen = f"{place} listens" if place else f"{shown(address)}, started by each run"
        return [Check("spark", "ok", f"{seen}; not asked (--deep asks)")]
    began = time.monotonic()
    with _asked(settings) as session:
        session.sql("SELECT 1").collect()
        seconds = time.monotonic() - began
        answer = _answered(session.version, seconds, shown(address), started=settings.spark_remote is None)
        return [answer, *_workers(session, settings)]


def _workers(session: Any, settings: Settings) -> Iterator[Check]:
    """What is said of its workers, which read Kafka and decode: of their Python, and of their way to the brokers."""
    from kafka_assets.spark.worker_python import require_fit
    from kafka_assets.spark.worker_reach import brokers_reached

    try:
        found = require_fit(session)
    except WorkersUnfit as error:
        yield Check("spark workers", "failed", f"{error.what}: {error.why}", error.cure)
        return
    yield Check("spark workers", "ok", f"a worker has {found}")
    if settings.bootstrap_servers is None:
        return
    try:
        brokers = brokers_reached(session, Connection.of(settings), seconds=SECONDS)
    except KafkaAssetsError as error:
        yield Check("spark workers and kafka", "failed", f"{error.what}: {error.why}", error.cure)
        return
    yield Check("spark workers and kafka", "ok", f"a worker reaches {', '.join(brokers)}")


@contextmanager
def _asked(settings: Settings) -> Generator[Any]:
    from kafka_assets.spark.reached import reached
    from kafka_assets.spark.session import open_session, spark_config

    if settings.spark_remote is not None:
        from kafka_assets.spark.connected import asking

        with reached(), asking(settings.spark_remote, patience=PATIENCE) as session:
            yield session
        return
    session = open_session(spark_config(settings)).session
    try:
        yield session
    finally:
        session.stop()


def _answered(running: str, seconds: float, address: str, *, started: bool) -> Check:
    client = version("pyspark")
    if running != client:
        detail = f"the server is Spark {running}, the client {client}"
        return Check("spark", "failed", detail, f"use a server of Spark {client}")
    if started:
        # Its first query loads half of Spark: that is what each run pays, and no sign of trouble.
        return Check("spark", "ok", f"Spark {running} ({address}) started and answered a query in {seconds:.0f} s")
    if seconds > SLOW:
        detail = f"Spark {running} ({address}) took {seconds:.0f} s to answer next to nothing"
        return Check("spark", "info", detail, "look at its memory and its machine's load; a local one: kafka-assets up")
    return Check("spark", "ok", f"Spark {running} ({address}) answered a query")
