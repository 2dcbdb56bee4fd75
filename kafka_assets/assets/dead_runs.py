"""Runs whose process died together with what watched it: Dagster would believe in them for minutes or hours.

A run's process is watched by the code server that started it, or by the nursery that it was forked from. Where that is
killed, too, as by a machine that goes down, Dagster keeps the run STARTING for minutes and STARTED until its longest
time is over, and each takes the place of one that could land.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg
from dagster._core.storage.tags import GRPC_INFO_TAG

from kafka_assets.assets.run_process import LAUNCHER_TAG, RunProcess

UNHELD = {dg.DagsterRunStatus.STARTING: timedelta(seconds=20), dg.DagsterRunStatus.STARTED: timedelta(minutes=5)}
"""A run that stays so for longer without a lease in the ledger, and that nobody watches, has no process any more.

One that was to start is told of its process by who starts it: where that is gone, hardly any process came to be.
One that has started may have landed, and be telling Dagster of a hundred keys.
"""


def end_dead(instance: dg.DagsterInstance, records: Sequence[dg.RunRecord], *, holding: Collection[str]) -> set[str]:
    """Tell Dagster which of these runs are dead; their ids. `holding` are those that hold a live lease.

    Where one lives after all, nothing is lost: Dagster's states are an echo. One that lands tells its own at its end,
    and one that starts only now finds that it has failed, and ends.
    """
    dead = [record.dagster_run for record in records if record.dagster_run.run_id not in holding and _dead(record)]
    for run in dead:
        instance.report_run_failed(run, "the run's process was killed, and the code server that watched it, too")
    return {run.run_id for run in dead}


def look_dead(records: Sequence[dg.RunRecord]) -> bool:
    """Whether one of these is dead, unless it holds a lease."""
    return any(_dead(record) for record in records)


def _dead(record: dg.RunRecord) -> bool:
    run, since = record.dagster_run, record.update_timestamp
    if run.status is dg.DagsterRunStatus.STARTED and record.start_time is not None:
        since = datetime.fromtimestamp(record.start_time, UTC)
    patience = UNHELD.get(run.status)
    return patience is not None and now() - since > patience and not _watched(run)


def _watched(run: dg.DagsterRun) -> bool:
    """Whether somebody would notice that the run's process dies."""
    if run.remote_job_origin is None:
        return False  # it was carried out by whoever asked for it, as `kafka-assets run` does
    if (process := RunProcess.of(run)) is not None:
        return process.may_live
    path = json.loads(run.tags.get(GRPC_INFO_TAG, "{}")).get("socket")
    if path is None and (launcher := RunProcess.of(run, LAUNCHER_TAG)) is not None:
        return launcher.may_live  # it has not got as far as a process of the run's own
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
