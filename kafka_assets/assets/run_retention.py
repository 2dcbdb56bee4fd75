"""Runs whose keys Dagster has forgotten are forgotten, too: their events, their logs, and on SQLite their files.

Dagster keeps every run for ever, and on SQLite each is a file of some 200 kB. A run may go when `keep_keys` has let
its keys go: before that, its events are what says that they are materialized.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.dagster_run import FINISHED_STATUSES

from kafka_assets.assets.names import STREAM_TAG
from kafka_assets.streams import Stream

if TYPE_CHECKING:
    from dagster._core.storage.event_log import SqliteEventLogStorage

RUNS_PER_TICK = 10
"""So many are deleted in one tick, of one stream: at five seconds a tick faster than any sensor makes them."""

MARGIN = timedelta(days=1)
"""A key is as old as its commit, a run as its creation; and the sweep that forgets keys takes its time."""


def forget_runs(instance: dg.DagsterInstance, stream: Stream) -> int:
    """Delete the oldest runs of a stream that are over and whose keys `keep_keys` has let go; how many it were."""
    if stream.keep_keys is None:
        return 0
    from dagster._core.storage.event_log import SqliteEventLogStorage  # it brings Alembic

    past = dg.RunsFilter(
        tags={STREAM_TAG: stream.name},
        statuses=FINISHED_STATUSES,
        created_before=datetime.now(UTC) - stream.keep_keys - MARGIN,
    )
    runs = instance.get_runs(past, limit=RUNS_PER_TICK, ascending=True)
    for run in runs:
        # The run goes last: killed before that, the next tick finds it again.
        instance.compute_log_manager.delete_logs(prefix=[run.run_id])
        instance.delete_run(run.run_id)
        storage = instance.event_log_storage
        if isinstance(storage, SqliteEventLogStorage):
            for file in _files(storage, run.run_id):
                file.unlink(missing_ok=True)
    return len(runs)


def _files(storage: SqliteEventLogStorage, run_id: str) -> list[Path]:
    """What Dagster leaves of a run's events on SQLite: an empty database, and what goes with it."""
    path = storage.path_for_shard(run_id)
    return [Path(path + ending) for ending in ("", "-wal", "-shm", "-journal")]
