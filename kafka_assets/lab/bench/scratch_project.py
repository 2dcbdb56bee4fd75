"""A project of its own, for measuring: topics, a ledger, declared streams and a Dagster; gone afterwards."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from kafka_assets import devstack
from kafka_assets.audit.scratch import PREFIX as SCRATCH
from kafka_assets.audit.scratch import scratch_environment, scratch_ledger
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.settings import STATE, Settings

SERVICE = "dagster"


@dataclass(frozen=True)
class ScratchProject:
    """What a measurement works with: everything runs as in use, and nobody else uses it."""

    connection: Connection
    engine: Engine
    dagster: str
    """The address of its webserver."""
    pid: int
    """Of the process that all of the Dagster's come from."""
    log: Path


@contextmanager
def scratch_project(
    settings: Settings, url: str, declared: Mapping[str, str], *, say: Callable[[str], None]
) -> Generator[ScratchProject]:
    """A topic of one partition for each stream, a ledger beside this database, and the Dagster that `up` starts.

    `declared`: by its topic, each stream's YAML. Broker and Spark are those of the settings. It is gone when the block
    ends, however it ends; what was made last goes first.
    """
    connection = Connection.of(settings)
    settings.require_spark()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=SCRATCH, ignore_cleanup_errors=True)))
        engine = stack.enter_context(scratch_ledger(url))
        (folder / "defs").mkdir()
        for topic, stream in declared.items():
            create_topic(connection, topic, partitions=1)
            stack.callback(delete_topic, connection, topic)
            (folder / "defs" / f"{topic}.yaml").write_text(stream, encoding="utf-8")
        stack.enter_context(_environment(scratch_environment(settings, engine, folder)))
        state = folder / STATE
        stack.callback(devstack.down, state)  # also what was only about to start
        say("starting a Dagster of its own")
        running = devstack.up(state, [SERVICE])
        [service] = running.services
        yield ScratchProject(connection, engine, running.urls[SERVICE], service.pid, service.log)


@contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    """Set for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
