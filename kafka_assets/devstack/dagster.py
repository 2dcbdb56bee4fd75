"""`dagster dev` as a service of the project: webserver and daemon, on the instance in .dagster/."""

from __future__ import annotations

import errno
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_assets.devstack.ports import answers
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.service import Launch, Service
from kafka_assets.errors import ServiceError
from kafka_assets.settings import make_private

HOME = ".dagster"
MODULE = "kafka_assets.definitions"

INSTANCE = """\
# Written by kafka_assets where there was none; yours to change.
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  runs:
    max_concurrent_runs: 4
run_queue:
  dequeue_interval_seconds: 1
# A run is forked from a process that has imported everything; without these three lines each one is a Python that
# imports it anew.
run_launcher:
  module: kafka_assets.assets.launcher
  class: WarmRunLauncher
run_retries:
  enabled: true
  max_retries: 1
  retry_on_asset_or_op_failure: false
# A run worker that dies unseen is noticed; the lease in the ledger ends long before.
run_monitoring:
  enabled: true
  start_timeout_seconds: 180
  cancel_timeout_seconds: 60
  max_runtime_seconds: 7200
  poll_interval_seconds: 10
sensors:
  use_threads: true
  num_workers: 4
# Ticks are many: one in five seconds. Runs go with their keys, where a stream says keep_keys.
retention:
  sensor:
    purge_after_days:
      skipped: 1
      success: 7
      failure: 30
      started: 7
"""

HEALTH = "{ instance { daemonHealth { allDaemonStatuses { required healthy } } } }"
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
    ... on PythonError { message } } } } } }"""
UNREACHABLE = "DagsterUserCodeUnreachableError"
"""What Dagster says of a code server that was killed: it starts no other one, and no tick comes any more."""


class Dagster(Service):
    """Dagster's webserver and daemon, with the project's code location."""

    patience = 120.0
    farewell = 30.0

    def __init__(self, state: Path, *, module: str = MODULE) -> None:
        super().__init__(state, "dagster")
        self.home = state.parent / HOME
        self.module = module

    def prepare(self, ports: Mapping[str, int], progress: Progress) -> Launch:
        write_instance(self.home)
        return Launch(
            [sys.executable, "-m", "dagster", "dev", "-m", self.module, "-h", "127.0.0.1", "-p", str(ports["client"])],
            folder=self.state.parent,
            env={"DAGSTER_HOME": str(self.home)},
            whole_environment=True,
        )

    def unready(self, ports: Mapping[str, int]) -> str | None:
        if not answers(ports["client"]):
            return f"nothing listens on port {ports['client']} yet"
        try:
            found = graphql(self.url(ports), HEALTH, timeout=5)
        except _SILENT as error:
            return f"its webserver does not answer yet: {error}"
        ill = [one for one in found["instance"]["daemonHealth"]["allDaemonStatuses"] if one["required"]]
        return self.slow(ports) if all(one["healthy"] for one in ill) else "its daemon is not healthy yet"

    def slow(self, ports: Mapping[str, int]) -> str | None:
        try:
            found = graphql(self.url(ports), LOCATIONS, timeout=5)["workspaceOrError"].get("locationEntries", ())
        except _SILENT as error:
            return f"its webserver does not answer: {error}"
        for one in found:
            if UNREACHABLE in (one["locationOrLoadError"] or {}).get("message", ""):
                return f"the code server of {one['name']} is gone"
        return None

    def url(self, ports: Mapping[str, int]) -> str:
        return f"http://127.0.0.1:{ports['client']}"

    def data(self) -> list[Path]:
        return [self.home]


def graphql(url: str, query: str, *, timeout: float = 30, **variables: str) -> Any:
    """What a local Dagster's webserver answers to a query of GraphQL; never through a proxy."""
    request = urllib.request.Request(
        f"{url}/graphql",
        data=json.dumps({"query": query, "variables": variables}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout) as answered:
        return json.load(answered)["data"]


_SILENT = (urllib.error.URLError, TimeoutError, ValueError, ConnectionError)


def write_instance(home: Path) -> None:
    """A dagster.yaml with limits that suit slices, where the instance has none."""
    config = home / "dagster.yaml"
    try:
        make_private(home)
        if not config.exists():
            config.write_text(INSTANCE, encoding="utf-8")
    except OSError as error:
        raise ServiceError(
            f"the folder of the Dagster instance, {home}, cannot be made or written",
            why=str(error),
            cure="make room on its disk"
            if error.errno == errno.ENOSPC
            else "give access there, or set DAGSTER_HOME to a folder of another place",
        ) from error
