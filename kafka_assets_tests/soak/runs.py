"""The runs of a project's Dagster: how many there were, which are under way, and one of them killed."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from pathlib import Path

import psutil

from kafka_assets.devstack.processes import MARK
from kafka_assets.lab.bench.run_cost import is_run

ASK = "{ runsOrError { ... on Runs { count } } }"


class Runs:
    """Seen from outside: by Dagster's webserver, and as processes."""

    def __init__(self, dagster: str, state: Path) -> None:
        self._url, self._mark = dagster, f"dagster@{state}"
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def made(self) -> int:
        """How many Dagster knows, queued ones included."""
        request = urllib.request.Request(
            f"{self._url}/graphql", json.dumps({"query": ASK}).encode(), {"Content-Type": "application/json"}
        )
        with self._open(request, timeout=60) as answer:
            return int(json.load(answer)["data"]["runsOrError"]["count"])

    def workers(self) -> set[int]:
        """The processes of runs: what the code server spawns, a fresh interpreter for each, or a nursery forks."""
        found: set[int] = set()
        for process in psutil.process_iter():
            try:
                if is_run(process.cmdline()) and process.environ().get(MARK) == self._mark:
                    found.add(process.pid)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def kill_one(self, *, after: float) -> bool:
        """SIGKILL to one of them, so many seconds after it was seen; whether it was still there."""
        there = self.workers()
        if not there:
            return False
        pid = random.choice(sorted(there))
        time.sleep(after)
        if pid not in self.workers():
            return False
        psutil.Process(pid).kill()
        return True
