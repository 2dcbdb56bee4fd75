"""A publisher as a process of its own, that stops where it is told to; its parent freezes or kills it there.

It prints `at WHERE` when it is there and goes on after a line on stdin. At its end it prints what became of it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import psycopg
from sqlalchemy import Engine

from kafka_assets.errors import KafkaAssetsError
from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.mysql_connection import MySQLConnection
from kafka_assets.sinks import publish
from kafka_assets.slices import SliceKey
from kafka_assets_tests.forked import Forked
from kafka_assets_tests.freezing import freeze
from kafka_assets_tests.ledgers import Attempt, chunk_of


class Frozen:
    """A publisher that stands still at a point, whatever happens around it."""

    def __init__(self, engine: Engine, where: str, keys: Sequence[SliceKey], *, module: str = __name__) -> None:
        url = engine.url.render_as_string(hide_password=False)
        self.process = Forked(module, url, where, *map(str, keys))
        assert self.process.stdout.readline() == f"at {where}\n"
        freeze(self.process.pid)

    def __enter__(self) -> Frozen:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def woken(self) -> str:
        """Let it go on, and what it says at its end."""
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = self.process.stdout.read()
        self.process.wait(60)
        return said.strip()


def main(url: str, where: str, *keys: str) -> None:
    engine = make_engine(url, lock_seconds=2)
    wanted = [SliceKey.parse(key) for key in keys]
    # A lease that has ended: whoever comes next need not wait for it.
    attempt = Attempt(engine, wanted, run_id="frozen", replaces=True).claim(force=True, lease_ms=-1)
    stop = once(where)
    if where == "copy":
        stop_in_rows(stop)
    elif where != "between":
        name = {"verified": "verify_attempts", "advanced": "_advance"}[where]
        setattr(publish, name, followed(getattr(publish, name), stop))
    try:
        chunks = [chunk_of(key, note="frozen") for key in wanted]
        published = attempt.publish(*chunks, between=stop if where == "between" else lambda: None)
        said = f"committed {[one.attempt for one in published]}"
    except KafkaAssetsError as error:
        said = type(error).__name__
    print(said, flush=True)


def stop_in_rows(stop: Callable[[], None]) -> None:
    """In the middle of what the drivers send, where no server's timeout fires."""
    psycopg.Copy.write = followed(psycopg.Copy.write, stop)
    MySQLConnection.load = in_packets(MySQLConnection.load, stop)


def once(where: str) -> Callable[[], None]:
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            print(f"at {where}", flush=True)
            sys.stdin.readline()

    return stop


def followed(step: Callable[..., Any], stop: Callable[[], None]) -> Callable[..., Any]:
    def then(*given: Any, **more: Any) -> None:
        step(*given, **more)
        stop()

    return then


def in_packets(load: Callable[..., Any], stop: Callable[[], None]) -> Callable[..., Any]:
    def then(connection: Any, *given: Any) -> Any:
        connection.write_packet = followed(connection.write_packet, stop)
        return load(connection, *given)

    return then
