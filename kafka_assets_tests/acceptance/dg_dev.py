"""`dg dev` on a project, as its user starts it; asked by GraphQL, and ended as by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_assets.devstack import ports
from kafka_assets.devstack.dagster import write_instance

Ask = Callable[[str], Any]
WAIT = 240.0
"""Seconds for webserver, daemon and code server on a machine that does much else."""

_SERVED = """{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
  __typename
  ... on PythonError { message }
  ... on RepositoryLocation { repositories { name assetNodes { assetKey { path } } sensors { name } } }
} } } } }"""
_TICKS = """{ sensorsOrError(repositorySelector: {repositoryName: "%s", repositoryLocationName: "%s"}) {
  ... on Sensors { results { name sensorState { ticks(limit: 5) { status skipReason error { message } } } } } } }"""


@contextmanager
def dg_dev(folder: Path, home: Path, env: Mapping[str, str]) -> Generator[Ask]:
    """`dg dev` in a project's folder, on an instance of its own in `home`."""
    [port] = ports.choose(["dg"], remembered={}, taken=set()).values()
    write_instance(home)
    log = home / "dg_dev.log"
    with log.open("wb") as said:
        started = subprocess.Popen(
            [Path(sys.executable).with_name("dg"), "dev", "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env={**env, "DAGSTER_HOME": str(home), "DG_CLI_DISABLE_TELEMETRY": "1"},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )

    def ask(query: str) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/graphql",
            data=json.dumps({"query": query}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["data"]

    try:
        deadline = time.monotonic() + WAIT
        while not ports.answers(port):
            if started.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"`dg dev` does not answer; it said:\n{log.read_text()[-5000:]}")
            time.sleep(0.3)
        yield ask
    finally:
        started.send_signal(signal.SIGINT)
        try:
            assert started.wait(timeout=180) == 0, log.read_text()[-3000:]
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


def served(ask: Ask) -> dict[str, Any]:
    """The one repository of the one code location: its assets and sensors, once they are loaded."""
    deadline = time.monotonic() + WAIT
    while True:
        try:
            [location] = ask(_SERVED)["workspaceOrError"]["locationEntries"]
        except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
            location = {"locationOrLoadError": None}
        found = location["locationOrLoadError"]
        if found is not None:
            assert found["__typename"] == "RepositoryLocation", found
            [repository] = found["repositories"]
            return {
                "location": location["name"],
                "repository": repository["name"],
                "assets": {"/".join(one["assetKey"]["path"]) for one in repository["assetNodes"]},
                "sensors": {one["name"] for one in repository["sensors"]},
            }
        assert time.monotonic() < deadline, "the code location does not load"
        time.sleep(0.5)


def first_ticks(ask: Ask, location: Mapping[str, Any], sensor: str) -> list[dict[str, Any]]:
    """What became of a sensor's first ticks: the daemon runs, and evaluates it."""
    deadline = time.monotonic() + WAIT
    while True:
        results = ask(_TICKS % (location["repository"], location["location"]))["sensorsOrError"]["results"]
        [ticks] = [one["sensorState"]["ticks"] for one in results if one["name"] == sensor]
        if done := [one for one in ticks if one["status"] != "STARTED"]:
            return done
        assert time.monotonic() < deadline, f"the sensor {sensor} does not tick"
        time.sleep(0.5)
