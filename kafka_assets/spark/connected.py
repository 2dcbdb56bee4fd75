"""A session of a Spark Connect server: one's own, bounded in every wait, kept while it lives, and given back.

What pyspark alone would do, seen with 4.2.0: ask a server that is gone for ten minutes, wait for one that is frozen
without end, lose a session that says nothing for the server's timeout, and leave every session behind, with its
plans, until that timeout.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import grpc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState
from pyspark.sql.connect.logging import logger as pyspark_log
from pyspark.sql.connect.session import SparkSession as ConnectSession

from kafka_assets.endpoints import Endpoint, connect_endpoint
from kafka_assets.errors import SettingsError, SparkUnavailable
from kafka_assets.spark.reached import reached, told, unreached

if "SPARK_CONNECT_LOG_LEVEL" not in os.environ:
    # It is meant to be off, and whoever configures Python's logging, as Dagster does, puts it on again: each error that
    # is dealt with would be printed with its stack.
    pyspark_log.setLevel(logging.CRITICAL + 1)

FIRST = 5.0
"""Seconds in which a server must be there that has not answered this session yet."""
LAST = 5.0
"""Seconds that giving the session back may take."""
TOLD = 1.0
"""A wait of so many seconds is told; shorter ones are a stumble."""


class Line:
    """The line to one server: how long it may be silent, and whether it was given up."""

    def __init__(self, endpoint: Endpoint, *, patience: timedelta, say: Callable[[str], None]) -> None:
        self.endpoint = endpoint
        self.patience = patience.total_seconds()
        self.say = say
        self.hurried = False
        """Whether a query, too, must be answered within the patience."""
        self.answered = False
        self.over = threading.Event()
        """Nobody waits any more: the server was given up, or the session's work is over."""

    @property
    def left(self) -> float:
        """Seconds that a call may wait in all for a server that refuses it."""
        return self.patience if self.answered else min(FIRST, self.patience)

    def deadline(self, method: str) -> float | None:
        """Seconds for a call that asks for little; a query, and its analysis, take as long as they take."""
        if method in ("ReleaseSession", "ReleaseExecute"):
            return LAST
        if self.hurried:
            return self.patience
        return self.patience * 3 / 4 if method == "Config" else None


class Waits(DefaultPolicy):
    """What pyspark would ask again is asked again, while the line's patience lasts."""

    def __init__(self, line: Line) -> None:
        super().__init__(max_retries=None, max_backoff=5_000, max_server_retry_delay=5_000)
        self.line = line

    def to_state(self) -> RetryPolicyState:
        return _Waiting(self, self.line)


class _Waiting(RetryPolicyState):
    """The waits of one call."""

    def __init__(self, policy: Waits, line: Line) -> None:
        super().__init__(policy)
        self.line = line
        self.since: float | None = None

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        self.since = self.since or time.monotonic()
        left = self.line.left - (time.monotonic() - self.since)
        wanted = super().next_attempt(exception) or 0
        if left <= 0 or self.line.over.is_set():
            self.line.over.set()
            if exception is None:
                return None
            raise exception  # for None pyspark raises the same, after a warning on stderr
        if wanted >= TOLD * 1000:
            self.line.say(f"Spark at {self.line.endpoint} does not answer; asking again for {left:.0f} s more")
        return min(wanted, int(left * 1000))


class _Details(grpc.ClientCallDetails):
    """A call's details with a deadline."""

    def __init__(self, given: Any, timeout: float) -> None:
        self.method, self.metadata, self.credentials = given.method, given.metadata, given.credentials
        self.wait_for_ready, self.compression = given.wait_for_ready, given.compression
        self.timeout = timeout


class _Deadlines(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Ends a call that a silent server would keep."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        seconds = self.line.deadline(client_call_details.method.rpartition("/")[2])
        return continuation(client_call_details if seconds is None else _Details(client_call_details, seconds), request)

    intercept_unary_stream = intercept_unary_unary


class _Pulse(threading.Thread):
    """Asks the server for next to nothing, again and again.

    The server sees that the session lives, whatever its run waits for; and we see a server that is gone or frozen,
    whatever a query of ours waits for: then the channel is closed, and the query fails.
    """

    def __init__(self, session: ConnectSession, line: Line) -> None:
        super().__init__(name="spark pulse", daemon=True)
        self.session, self.line, self.ended = session, line, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(self.line.patience / 4):
            try:
                self.session.conf.get("spark.sql.session.timeZone")
            except (PySparkException, grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed
                if unreached(error) and not self.ended.is_set():
                    self.line.over.set()
                    _hang_up(self.session)
                return  # a session that the server has lost needs no pulse, and its own calls are told so


def connect(
    url: str, options: Mapping[str, str], *, patience: timedelta, say: Callable[[str], None]
) -> tuple[SparkSession, Callable[[], None]]:
    """A new session of this server, which has answered, and how to give it back."""
    session, close = _opened(url, Line(connect_endpoint(url), patience=patience, say=say))
    # Without it, the functions of pyspark.sql would build their columns for a classic session.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    anything = cast(Any, session)
    # That which functions of this process find, if they have none.
    anything._set_default_and_active_session(session)
    if options:
        anything.conf._set_all(configs=dict(options), silent=True)
    return cast(SparkSession, session), close


@contextmanager
def asking(url: str, *, patience: timedelta) -> Generator[ConnectSession]:
    """A session for a question or two, each answered within the patience; it is not that of the process."""
    line = Line(connect_endpoint(url), patience=patience, say=lambda _: None)
    line.hurried = True
    session, close = _opened(url, line)
    try:
        yield session
    finally:
        close()


def unanswered(url: str, *, patience: timedelta) -> str | None:
    """Why a server does not answer as a run needs it, each question within the patience; None where it does."""
    try:
        with reached(), asking(url, patience=patience) as session:
            session.sql("SELECT 1").collect()
    except SparkUnavailable as error:
        return error.why
    except PySparkException as error:
        return str(error).strip().splitlines()[0]
    return None


def _opened(url: str, line: Line) -> tuple[ConnectSession, Callable[[], None]]:
    try:
        builder = DefaultChannelBuilder(url, channelOptions=_channel_options(line.endpoint))
    except PySparkException:
        raise SettingsError(
            "the parameters in the address of the Spark Connect server cannot be read",
            why="behind /; each of them is name=value, with ; between them",
            cure="write for example sc://spark.example.com:15002/;use_ssl=true;token=…",
        ) from None  # which shows them
    cast(Any, builder).add_interceptor(_Deadlines(line))
    session = ConnectSession(connection=builder)
    session.client.set_retry_policies([Waits(line)])
    # Its own farewell asks the server to drop a cache of models, which nothing here fills.
    atexit.unregister(cast(Any, session.client)._on_exit)
    pulse = _Pulse(session, line)
    closing = threading.Lock()

    def close() -> None:
        with closing:
            atexit.unregister(close)
            pulse.ended.set()
            if not session.is_stopped:
                # A server that was given up is not asked for anything.
                session.release_session_on_close = not line.over.is_set()
                line.over.set()
                session.stop()

    atexit.register(close)
    pulse.start()
    try:
        _ = session.version
    except BaseException as error:
        close()
        if not isinstance(error, PySparkException | grpc.RpcError):
            raise
        raise SparkUnavailable(
            f"the Spark server at {line.endpoint} does not answer as it should",
            why=told(error),
            cure="see that it is up, and that address and token are right (`kafka-assets doctor --deep`), "
            "or run `kafka-assets up`",
        ) from error
    line.answered = True
    return session, close


def _channel_options(endpoint: Endpoint) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = [
        # Else it looks for a server that is back only after up to two minutes.
        ("grpc.initial_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]
    if endpoint.is_here:
        # What is on this machine is not asked for through a proxy: it would see the token, and Kafka's password.
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _hang_up(session: ConnectSession) -> None:
    cast(Any, session.client)._channel.close()
