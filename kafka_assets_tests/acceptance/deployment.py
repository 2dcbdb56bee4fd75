"""One `dagster dev` for the tests of a whole run: a project with a stream for each of them, on one ledger.

Which worker needs it first makes and starts it; the others find it. What a test asks of the ledger, it asks of its own
stream: its neighbours land at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_assets import devstack
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import transaction
from kafka_assets.devstack import locks
from kafka_assets.faults import SETTING
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.acceptance.project import Project, numbered


@dataclass(frozen=True)
class Landed:
    """A stream of one test, and its topic."""

    name: str
    partitions: int = 1
    max_records: int = 500_000

    @property
    def topic(self) -> str:
        """Of a name that no other test gives to its own: the broker is everybody's."""
        return f"deployed_{self.name}"


STREAMS = [
    Landed("shop", partitions=3),
    Landed("backfilled", partitions=3, max_records=50),
    Landed("killed_worker"),
    Landed("ended"),
    Landed("byhand"),
    Landed("forked"),
    Landed("changed"),
]
"""A run of one hangs before it verifies its attempts, once, when it is told to."""

RUNS = """{ runsOrError { ... on Runs { results { runId status tags { key value } assetSelection { path } } } } }"""


class Deployment(Project):
    """The project that all tests of a run share."""

    def begin(self, patch: pytest.MonkeyPatch) -> None:
        """See that it is there and runs; the first who asks makes it."""
        patch.setenv(SETTING, ",".join(f"hang@verify:{one.name}?{self._told(one.name)}" for one in STREAMS))
        with locks.held(self.folder / "made_by_one", timeout=900, on_wait=lambda: None):
            state = self.folder / ".kafka_assets"
            if not (running := devstack.status(state)):
                ensure_schema(self.engine)
                for one in STREAMS:
                    self.topic(one.topic, partitions=one.partitions)
                    self.declare(one.name, topic=one.topic, max_records=one.max_records)
                self.start()
            else:
                [self.dagster] = [one.url for one in running]

    def produce_at_once(self, name: str, count: int, *, bad_every: int = 10**9) -> int:
        """So many records, of which the sensor sees all or none; how many offsets its partitions then have."""
        [stream] = [one for one in STREAMS if one.name == name]
        with transaction(Connection(self.broker), stream.topic, transactional_id=stream.topic) as sending:
            sending.produce(list(numbered(0, count, partitions=stream.partitions, bad_every=bad_every)))
            sending.commit()
        return count + stream.partitions  # the transaction's end is a record, too

    def runs(self, name: str) -> list[dict[str, Any]]:
        """Those of one stream, newest first."""
        found = self.graphql(RUNS)["runsOrError"]["results"]
        return [
            {**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}}
            for run in found
            if {"path": [name]} in run["assetSelection"]
        ]

    def tell_to_hang(self, name: str) -> None:
        """The next run of this stream hangs in its transaction, with all rows inserted."""
        self._struck(name).unlink(missing_ok=True)
        self._told(name).touch()

    def hanging(self, name: str) -> int | None:
        """The process that hangs as it was told to, once it does."""
        return int(self._struck(name).read_text()) if self._struck(name).exists() else None

    def exact(self, name: str, *, rows: int, attempt: int) -> None:
        """Whether its one slice is there once, as this attempt committed it."""
        assert self.sql(f"select count(*) from {name}") == rows
        assert self.sql(f"select count(distinct id) from {name}") == rows
        assert self.sql(f"select group_concat(committed_attempt) from kafka_publication where asset = '{name}'") == str(
            attempt
        )
        assert self.sql("select count(*) from kafka_gap") == 0

    def _told(self, name: str) -> Path:
        return self.folder / f"hang_{name}"

    def _struck(self, name: str) -> Path:
        return self.folder / f"hang_{name}.struck"
