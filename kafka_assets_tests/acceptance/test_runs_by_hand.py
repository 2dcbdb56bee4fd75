"""Runs that a person ends, executes again, or backfills in Dagster's UI, and those that Dagster tries again itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from kafka_assets.assets.reruns import PARENT_TAG, RETRY_TAG
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.acceptance.conftest import RUNS, Project

TERMINATE = """
mutation($run: String!) { terminateRun(runId: $run) { __typename ... on TerminateRunFailure { message } } }
"""
AGAIN = """
mutation($run: String!) { launchRunReexecution(reexecutionParams: {parentRunId: $run, strategy: ALL_STEPS}) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
} }
"""
KEYS = "query($name: String!) { assetNodeOrError(assetKey: {path: [$name]}) { ... on AssetNode { partitionKeys } } }"
BACKFILL = """
mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) { __typename } }
"""

HANG_WHERE_TOLD = """
import os, pathlib, time
import kafka_assets.assets.land as land
import kafka_assets.sinks.publish as publishing

land.LEASE_MS = {lease_ms}
told, hangs = pathlib.Path({told!r}), pathlib.Path({hangs!r})
verify = publishing.verify_attempts


def hang_once(connection, claims):
    if told.exists():
        told.unlink()
        hangs.write_text(str(os.getpid()))
        time.sleep(600)
    verify(connection, claims)


publishing.verify_attempts = hang_once
"""


def hanging(project: Project) -> tuple[Callable[[], None], Callable[[], int | None]]:
    """To tell the next run to hang in its transaction, with all rows inserted; and its pid, once it does."""
    told, hangs = project.folder / "told", project.folder / "hangs"

    def tell() -> None:
        hangs.unlink(missing_ok=True)
        told.touch()

    def pid() -> int | None:
        return int(hangs.read_text() or 0) if hangs.exists() else None

    return tell, pid


def declared(project: Project, name: str, *, lease_ms: int) -> None:
    told, hangs = str(project.folder / "told"), str(project.folder / "hangs")
    before = HANG_WHERE_TOLD.format(told=told, hangs=hangs, lease_ms=lease_ms)
    project.topic(name, partitions=1)
    project.declare(name, topic=name, before=before)
    project.produce(name, 0, 3_000, partitions=1)
    ensure_schema(project.engine)


def runs(project: Project) -> list[dict]:  # type: ignore[type-arg]
    """Newest first."""
    found = project.graphql(RUNS)["runsOrError"]["results"]
    return [{**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in found]


def exact(project: Project, name: str, *, attempt: int) -> None:
    assert project.sql(f"select count(*) from {name}") == 3_000
    assert project.sql(f"select count(distinct id) from {name}") == 3_000
    assert project.sql("select committed_attempt from kafka_publication") == attempt
    assert project.sql("select count(*) from kafka_gap") == 0


def test_a_run_that_is_ended_while_it_writes_gives_its_slice_back_and_the_next_lands_it_once(project: Project) -> None:
    tell, pid = hanging(project)
    declared(project, "ended", lease_ms=600_000)
    tell()
    project.start()
    project.wait(lambda: bool(pid()))
    assert project.sql("select count(*) from ended") == 0
    assert project.sql("select lease_until is not null and backend is not null from kafka_claim") == 1
    [run] = runs(project)

    answer = project.graphql(TERMINATE, run=run["runId"])["terminateRun"]
    assert answer["__typename"] == "TerminateRunSuccess", answer
    # Long before its lease would have ended, and without a step towards giving the slice up.
    project.wait(lambda: project.sql("select failure from kafka_claim") is not None, seconds=30)
    assert "ended while it landed" in project.sql("select failure from kafka_claim")
    assert project.sql("select backend from kafka_claim") is None
    assert project.sql("select failures_alone from kafka_claim") == 0
    assert project.sql("select count(*) from ended") == 0
    project.wait(lambda: {one["runId"]: one["status"] for one in runs(project)}[run["runId"]] == "CANCELED")

    project.wait(lambda: project.landed("ended", 3_000))
    exact(project, "ended", attempt=2)
    project.wait(lambda: sorted(one["status"] for one in runs(project)) == ["CANCELED", "SUCCESS"])


def test_executed_again_from_the_ui_a_run_replaces_and_so_does_dagsters_retry_of_a_backfill_that_was_killed(
    project: Project,
) -> None:
    tell, pid = hanging(project)
    declared(project, "byhand", lease_ms=600_000)
    project.start()
    project.wait(lambda: project.landed("byhand", 3_000))
    project.wait(lambda: [one["status"] for one in runs(project)] == ["SUCCESS"])
    [sensors] = runs(project)

    answer = project.graphql(AGAIN, run=sensors["runId"])["launchRunReexecution"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    project.wait(lambda: [one["status"] for one in runs(project)] == ["SUCCESS", "SUCCESS"])
    assert runs(project)[0]["tags"].items() > {PARENT_TAG: sensors["runId"]}.items()
    exact(project, "byhand", attempt=2)

    tell()
    keys = project.graphql(KEYS, name="byhand")["assetNodeOrError"]["partitionKeys"]
    project.graphql(BACKFILL, params={"assetSelection": [{"path": ["byhand"]}], "partitionNames": keys, "tags": []})
    project.wait(lambda: bool(pid()))
    os.kill(pid() or 0, signal.SIGKILL)
    # Dagster tries once more, long before the lease ends that the killed run has left behind.
    project.wait(lambda: any(RETRY_TAG in one["tags"] for one in runs(project)))
    project.wait(lambda: runs(project)[0]["status"] == "SUCCESS")
    assert [one["status"] for one in runs(project)] == ["SUCCESS", "FAILURE", "SUCCESS", "SUCCESS"]
    exact(project, "byhand", attempt=4)
