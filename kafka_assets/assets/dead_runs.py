"""Runs whose process died together with what watched it: Dagster would believe in them for hours.

A run's process is watched by the code server that started it. Where that is killed, too, as by a machine that goes
down, Dagster keeps the run STARTED until its longest time is over, and each takes the place of one that could land.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg
from dagster._core.storage.tags import GRPC_INFO_TAG

UNHELD = timedelta(minutes=5)
"""A run that goes on for so long without a lease in the ledger, and that nobody watches, has no process any more."""


def end_dead(instance: dg.DagsterInstance, records: Sequence[dg.RunRecord], *, holding: Collection[str]) -> int:
    """Tell Dagster which of these runs are dead; how many it were. `holding` are those that hold a live lease.

    Where one lives after all, nothing is lost: Dagster's states are an echo, and the run tells its own at its end.
    """
    dead = [record.dagster_run for record in records if record.dagster_run.run_id not in holding and _dead(record)]
    for run in dead:
        instance.report_run_failed(run, "the run's process was killed, and the code server that watched it, too")
    return len(dead)


def _dead(record: dg.RunRecord) -> bool:
    run = record.dagster_run
    if run.status is not dg.DagsterRunStatus.STARTED or record.start_time is None:
        return False
    return now() - datetime.fromtimestamp(record.start_time, UTC) > UNHELD and not _watched(run)


def _watched(run: dg.DagsterRun) -> bool:
    """Whether somebody would notice that the run's process dies."""
    if run.remote_job_origin is None:
        return False  # it was carried out by whoever asked for it, as `kafka-assets run` does
    path = json.loads(run.tags.get(GRPC_INFO_TAG, "{}")).get("socket")
    if path is None:
        return True  # by a launcher of another kind, or by a server elsewhere
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(1)
        try:
            server.connect(path)
        except OSError:
            return False
    return True


def now() -> datetime:
    """By this machine's clock, as Dagster's storage has it: minutes count here."""
    return datetime.now(UTC)
