"""`dagster dev` as a user runs it: the sensor sees records, runs land them, GraphQL and SQL agree."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from kafka_assets.faults import SETTING
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.acceptance.deployment import Deployment
from kafka_assets_tests.acceptance.project import Project, lease_ends

NODE = """
query($name: String!) { assetNodeOrError(assetKey: {path: [$name]}) { ... on AssetNode {
  kinds
  partitionStats { numMaterialized numPartitions numFailed }
  assetMaterializations(limit: 1000) { partition metadataEntries { label ... on IntMetadataEntry { intValue } } }
} } }
"""
TICKS = """
{ sensorsOrError(repositorySelector: {repositoryName: "__repository__", repositoryLocationName: "%s"}) {
  ... on Sensors { results { name sensorState { status ticks(limit: 3) { status skipReason } } } } } }
"""

KEYS = "query($name: String!) { assetNodeOrError(assetKey: {path: [$name]}) { ... on AssetNode { partitionKeys } } }"
BACKFILL = """
mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  ... on LaunchBackfillSuccess { backfillId }
  ... on PythonError { message }
} }
"""
STANDING = """
query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }
"""


def test_records_land_through_sensor_and_runs_and_both_stores_agree(deployment: Deployment) -> None:
    deployment.produce("deployed_shop", 0, 4_000, bad_every=1_000)
    deployment.wait(lambda: deployment.landed("shop", 4_000))
    deployment.produce("deployed_shop", 4_000, 6_000)
    deployment.wait(lambda: deployment.landed("shop", 6_000))

    assert deployment.sql("select count(*) from shop") == 6_000 - 4
    assert deployment.sql("select count(distinct id) from shop") == 6_000 - 4
    assert deployment.sql("select count(*) from kafka_quarantine where asset = 'shop'") == 4
    assert deployment.sql("select count(*) from kafka_gap") == 0

    slices = deployment.sql("select count(*) from kafka_publication where asset = 'shop' and state = 'committed'")
    deployment.wait(lambda: _node(deployment, "shop")["partitionStats"]["numMaterialized"] == slices)
    node = _node(deployment, "shop")
    assert node["partitionStats"] == {"numMaterialized": slices, "numPartitions": slices, "numFailed": 0}
    assert "kafka" in node["kinds"]
    told = {
        one["partition"]: {entry["label"]: entry.get("intValue") for entry in one["metadataEntries"]}
        for one in node["assetMaterializations"]
    }
    assert sum(entries["landed"] or 0 for entries in told.values()) == 6_000 - 4
    assert sum(entries["quarantined"] or 0 for entries in told.values()) == 4


def test_a_run_worker_killed_inside_the_transaction_is_taken_over_exactly(deployment: Deployment) -> None:
    deployment.tell_to_hang("killed_worker")
    offsets = deployment.produce_at_once("killed_worker", 3_000)
    deployment.wait(lambda: deployment.hanging("killed_worker") is not None)
    # It sits in its open transaction with every row inserted, and none of them is visible.
    assert deployment.sql("select count(*) from killed_worker") == 0
    os.kill(deployment.hanging("killed_worker") or 0, signal.SIGKILL)
    lease_ends(deployment, "killed_worker")
    deployment.wait(lambda: deployment.landed("killed_worker", offsets))
    deployment.exact("killed_worker", rows=3_000, attempt=2)


@pytest.mark.campaign
def test_the_end_of_its_lease_alone_takes_a_killed_worker_over(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = project.folder / "told"
    monkeypatch.setenv(SETTING, f"hang@verify?{told}")
    project.topic("kill", partitions=1)
    project.declare("kill", topic="kill")
    project.produce("kill", 0, 3_000, partitions=1)
    ensure_schema(project.engine)
    _without_monitor(project)
    told.touch()
    struck = told.with_suffix(".struck")
    project.start()
    project.wait(struck.exists)
    os.kill(int(struck.read_text()), signal.SIGKILL)
    project.wait(lambda: project.landed("kill", 3_000))

    assert project.sql("select count(*) from kill") == 3_000
    assert project.sql("select count(distinct id) from kill") == 3_000
    assert project.sql("select committed_attempt from kafka_publication") == 2
    assert project.sql("select count(*) from kafka_gap") == 0


def test_a_backfill_from_the_ui_replaces_what_it_names_and_touches_nothing_else(deployment: Deployment) -> None:
    name = "backfilled"
    offsets = deployment.produce_at_once(name, 3_000, bad_every=1_000)
    deployment.wait(lambda: deployment.landed(name, offsets))
    slices = deployment.sql(f"select count(*) from kafka_publication where asset = '{name}'")
    deployment.wait(lambda: _node(deployment, name)["partitionStats"]["numMaterialized"] == slices)
    before = deployment.sql(f"select group_concat(id) from (select id from {name} order by id)")

    ordered = deployment.graphql(KEYS, name=name)["assetNodeOrError"]["partitionKeys"]
    named = [*ordered[:20], *ordered[22:40], *ordered[41:53]]
    launched = deployment.graphql(
        BACKFILL, params={"assetSelection": [{"path": [name]}], "partitionNames": named, "tags": []}
    )["launchPartitionBackfill"]
    deployment.wait(lambda: _backfill(deployment, launched["backfillId"])["status"] in {"COMPLETED_SUCCESS", "FAILED"})

    assert _backfill(deployment, launched["backfillId"])["status"] == "COMPLETED_SUCCESS"
    attempts = f"select count(*) from kafka_publication where asset = '{name}' and committed_attempt = "
    assert deployment.sql(f"{attempts} 2") == 50
    assert deployment.sql(f"{attempts} 1") == slices - 50
    assert deployment.sql(f"select group_concat(id) from (select id from {name} order by id)") == before
    assert deployment.sql(f"select count(*) from kafka_quarantine where asset = '{name}'") == 3
    assert deployment.sql("select count(*) from kafka_gap") == 0


@pytest.mark.campaign
def test_without_a_broker_the_sensor_skips_and_names_the_cure(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS")
    project.declare("lonely", topic="lonely")
    project.start()

    def skipped() -> bool:
        return any("kafka-assets up" in (tick["skipReason"] or "") for tick in _ticks(project))

    project.wait(skipped)


def _without_monitor(project: Project) -> None:
    """Dagster then believes in a dead worker for ever: what takes its slice over is the end of its lease."""
    home = project.folder / ".dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(
        "telemetry: {enabled: false}\nrun_monitoring: {enabled: false}\nrun_queue: {dequeue_interval_seconds: 1}\n"
    )


def _node(project: Project, name: str) -> dict[str, Any]:
    return project.graphql(NODE, name=name)["assetNodeOrError"]


def _backfill(project: Project, backfill: str) -> dict[str, Any]:
    return project.graphql(STANDING, id=backfill)["partitionBackfillOrError"]


def _ticks(project: Project) -> list[dict[str, Any]]:
    found = project.graphql("{ workspaceOrError { ... on Workspace { locationEntries { name } } } }")
    location = found["workspaceOrError"]["locationEntries"][0]["name"]
    sensors = project.graphql(TICKS % location)["sensorsOrError"]["results"]
    return [tick for sensor in sensors for tick in sensor["sensorState"]["ticks"]]
