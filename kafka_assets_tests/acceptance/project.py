"""A project as a user has it: its own folder, its own Dagster, on the run's broker and Spark."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from kafka_assets import devstack
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic
from kafka_assets.ledger.engine import read, write

STREAM = """
from kafka_assets import kafka_asset

{before}

@kafka_asset(
    topic="{topic}", target="{name}", schema="id BIGINT NOT NULL, note STRING",
    slices={{"max_delay": "1s", "max_records": {max_records}}}, {attributes},
)
def {name}(records):
    return {body}
"""

RUNS = """{ runsOrError { ... on Runs { results { runId status tags { key value } } } } }"""
"""Newest first."""
_TOPICS: set[str] = set()


@dataclass
class Project:
    """A project's folder, and what a test asks of it."""

    folder: Path
    broker: str
    engine: Engine
    dagster: str = ""

    def declare(
        self,
        name: str,
        *,
        topic: str,
        before: str = "",
        max_records: int = 500_000,
        attributes: str = "max_bad_ratio=1.0",
        body: str = "records",
    ) -> None:
        (self.folder / "defs").mkdir(exist_ok=True)
        declared = STREAM.format(
            name=name, topic=topic, before=before, max_records=max_records, attributes=attributes, body=body
        )
        (self.folder / "defs" / f"{name}.py").write_text(declared)

    def topic(self, name: str, *, partitions: int = 3) -> None:
        """A new one: the session's broker is every test's, and another's records would land here, too."""
        assert name not in _TOPICS, f"another test has a topic {name!r}"
        _TOPICS.add(name)
        create_topic(Connection(self.broker, {}), name, partitions=partitions)

    def produce(self, topic: str, first: int, last: int, *, partitions: int = 3, bad_every: int = 10**9) -> None:
        produce(
            Connection(self.broker, {}),
            topic,
            numbered(first, last, partitions=partitions, bad_every=bad_every),
        )

    def start(self) -> None:
        """`dagster dev`, webserver and daemon, with this project's streams."""
        self.dagster = devstack.up(self.folder / ".kafka_assets", ["dagster"]).urls["dagster"]

    def sql(self, statement: str) -> Any:
        with read(self.engine) as connection:
            return connection.scalar(text(statement))

    def graphql(self, query: str, **variables: Any) -> Any:
        request = urllib.request.Request(
            f"{self.dagster}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]

    def wait(self, until: Callable[[], bool], *, seconds: float = 400, log: Path | None = None) -> None:
        """Wait for something that must come; what the log says last is told when it does not."""
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                log = log or self.folder / ".kafka_assets" / "logs" / "dagster.log"
                pytest.fail(f"it did not come\n{self.state()}\nthe log says:\n{telling(log)[-6000:]}")
            time.sleep(0.5)

    def state(self) -> str:
        """Dagster's runs and the ledger's claims, for a test that fails."""
        told: list[Any] = []
        if self.dagster:
            told += self.graphql(RUNS)["runsOrError"]["results"]
        with read(self.engine) as connection:
            told += connection.execute(text("select * from kafka_claim")).mappings()
            told += connection.execute(text("select * from kafka_publication")).mappings()
        return "\n".join(map(str, told))

    def landed(self, name: str, offsets: int) -> bool:
        """Whether everything of a topic with so many offsets is committed."""
        through = self.sql(
            "select coalesce(sum(committed_through), 0) from kafka_committed "
            f"where asset = '{name}' and committed_through > 0"
        )
        return through == offsets


def numbered(first: int, last: int, *, partitions: int, bad_every: int = 10**9) -> Iterator[Record]:
    """Records with these numbers, dealt out to the partitions; one in so many is broken."""
    for number in range(first, last):
        value = b"{broken" if number % bad_every == bad_every - 1 else b'{"id": %d, "note": "n"}' % number
        yield Record(value=value, partition=number % partitions)


def telling(log: Path) -> str:
    """A log of Dagster without what its sensors say at each tick that finds nothing to do."""
    chatter = ("Checking for new runs", "skipped: ")
    return "\n".join(line for line in log.read_text().splitlines() if not any(one in line for one in chatter))


def lease_ends(project: Project, name: str) -> None:
    """The time passes in which nobody takes over what this asset's dead workers held, or were asked for."""
    with write(project.engine) as connection:
        connection.exec_driver_sql(
            "update kafka_claim set lease_until = lease_until - 600000, not_before = not_before - 600000"
            " where publication_id in"
            f" (select id from kafka_publication where asset = '{name}')"
        )
