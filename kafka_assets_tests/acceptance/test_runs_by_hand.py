"""Runs that a person ends, executes again, or backfills in Dagster's UI, and those that Dagster tries again itself."""

from __future__ import annotations

import os
import signal
from typing import Any

from kafka_assets.assets.reruns import PARENT_TAG, RETRY_TAG
from kafka_assets_tests.acceptance.deployment import Deployment

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


def test_a_run_that_is_ended_while_it_writes_gives_its_slice_back_and_the_next_lands_it_once(
    deployment: Deployment,
) -> None:
    def claim(columns: str) -> Any:
        of = "where publication_id in (select id from kafka_publication where asset = 'ended')"
        return deployment.sql(f"select {columns} from kafka_claim {of}")

    deployment.tell_to_hang("ended")
    offsets = deployment.produce_at_once("ended", 3_000)
    deployment.wait(lambda: deployment.hanging("ended") is not None)
    assert deployment.sql("select count(*) from ended") == 0
    assert claim("lease_until is not null and backend is not null") == 1
    [run] = deployment.runs("ended")

    answer = deployment.graphql(TERMINATE, run=run["runId"])["terminateRun"]
    assert answer["__typename"] == "TerminateRunSuccess", answer
    # By the run itself, not when its lease had ended, and without a step towards giving the slice up.
    deployment.wait(lambda: claim("failure") is not None)
    assert "ended while it landed" in claim("failure")
    assert claim("backend") is None
    assert claim("failures_alone") == 0
    assert deployment.sql("select count(*) from ended") == 0
    deployment.wait(
        lambda: {one["runId"]: one["status"] for one in deployment.runs("ended")}[run["runId"]] == "CANCELED"
    )

    deployment.wait(lambda: deployment.landed("ended", offsets))
    deployment.exact("ended", rows=3_000, attempt=2)
    deployment.wait(lambda: sorted(one["status"] for one in deployment.runs("ended")) == ["CANCELED", "SUCCESS"])


def test_executed_again_from_the_ui_a_run_replaces_and_so_does_dagsters_retry_of_a_backfill_that_was_killed(
    deployment: Deployment,
) -> None:
    def statuses() -> list[str]:
        return [one["status"] for one in deployment.runs("byhand")]

    offsets = deployment.produce_at_once("byhand", 3_000)
    deployment.wait(lambda: deployment.landed("byhand", offsets))
    deployment.wait(lambda: statuses() == ["SUCCESS"])
    [sensors] = deployment.runs("byhand")

    answer = deployment.graphql(AGAIN, run=sensors["runId"])["launchRunReexecution"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    deployment.wait(lambda: statuses() == ["SUCCESS", "SUCCESS"])
    assert deployment.runs("byhand")[0]["tags"].items() > {PARENT_TAG: sensors["runId"]}.items()
    deployment.exact("byhand", rows=3_000, attempt=2)

    deployment.tell_to_hang("byhand")
    keys = deployment.graphql(KEYS, name="byhand")["assetNodeOrError"]["partitionKeys"]
    deployment.graphql(BACKFILL, params={"assetSelection": [{"path": ["byhand"]}], "partitionNames": keys, "tags": []})
    deployment.wait(lambda: deployment.hanging("byhand") is not None)
    os.kill(deployment.hanging("byhand") or 0, signal.SIGKILL)
    # Dagster tries once more, long before the lease ends that the killed run has left behind.
    deployment.wait(lambda: any(RETRY_TAG in one["tags"] for one in deployment.runs("byhand")))
    deployment.wait(lambda: statuses()[0] == "SUCCESS")
    assert statuses() == ["SUCCESS", "FAILURE", "SUCCESS", "SUCCESS"]
    deployment.exact("byhand", rows=3_000, attempt=4)
