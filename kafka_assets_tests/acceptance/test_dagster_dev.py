"""`dagster dev` as a user runs it: the sensor sees records, runs land them, GraphQL and SQL agree."""

from __future__ import annotations

import os
import signal

from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.acceptance.conftest import Project

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

DIE_IN_THE_TRANSACTION = """
import os, pathlib, time
import kafka_assets.assets.land as land
import kafka_assets.sinks.publish as publishing

land.LEASE_MS = 6000
flag = pathlib.Path({flag!r})
verify = publishing.verify_attempts


def hang_once(connection, claims):
    if not flag.exists():
        flag.write_text(str(os.getpid()))
        time.sleep(600)
    verify(connection, claims)


publishing.verify_attempts = hang_once
"""


def test_records_land_through_sensor_and_runs_and_both_stores_agree(project: Project) -> None:
    project.topic("shop")
    project.declare("shop", topic="shop")
    project.produce("shop", 0, 4_000, bad_every=1_000)
    ensure_schema(project.engine)
    project.start()
    project.wait(lambda: project.landed("shop", 4_000))
    project.produce("shop", 4_000, 6_000)
    project.wait(lambda: project.landed("shop", 6_000))

    assert project.sql("select count(*) from shop") == 6_000 - 4
    assert project.sql("select count(distinct id) from shop") == 6_000 - 4
    assert project.sql("select count(*) from kafka_quarantine") == 4
    assert project.sql("select count(*) from kafka_gap") == 0

    slices = project.sql("select count(*) from kafka_publication where state = 'committed'")
    project.wait(lambda: _node(project, "shop")["partitionStats"]["numMaterialized"] == slices)
    node = _node(project, "shop")
    assert node["partitionStats"] == {"numMaterialized": slices, "numPartitions": slices, "numFailed": 0}
    assert "kafka" in node["kinds"]
    told = {
        one["partition"]: {entry["label"]: entry.get("intValue") for entry in one["metadataEntries"]}
        for one in node["assetMaterializations"]
    }
    assert sum(entries["landed"] or 0 for entries in told.values()) == 6_000 - 4
    assert sum(entries["quarantined"] or 0 for entries in told.values()) == 4


def test_a_run_worker_killed_inside_the_transaction_is_taken_over_exactly(project: Project) -> None:
    flag = project.folder / "hangs"
    project.topic("kill", partitions=1)
    project.declare("kill", topic="kill", before=DIE_IN_THE_TRANSACTION.format(flag=str(flag)))
    project.produce("kill", 0, 3_000, partitions=1)
    ensure_schema(project.engine)
    _without_monitor(project)
    project.start()
    project.wait(flag.exists)
    # It sits in its open transaction with every row inserted, and none of them is visible.
    assert project.sql("select count(*) from kill") == 0
    os.kill(int(flag.read_text()), signal.SIGKILL)
    project.wait(lambda: project.landed("kill", 3_000))

    assert project.sql("select count(*) from kill") == 3_000
    assert project.sql("select count(distinct id) from kill") == 3_000
    assert project.sql("select committed_attempt from kafka_publication") == 2
    assert project.sql("select count(*) from kafka_gap") == 0


def test_a_backfill_from_the_ui_replaces_what_it_names_and_touches_nothing_else(project: Project) -> None:
    project.topic("backfilled")
    project.declare("backfilled", topic="backfilled", max_records=50)
    project.produce("backfilled", 0, 3_000, bad_every=1_000)
    ensure_schema(project.engine)
    project.start()
    project.wait(lambda: project.landed("backfilled", 3_000))
    assert project.sql("select count(*) from kafka_publication") == 60
    project.wait(lambda: _node(project, "backfilled")["partitionStats"]["numMaterialized"] == 60)
    before = project.sql("select group_concat(id) from (select id from backfilled order by id)")

    ordered = project.graphql(KEYS, name="backfilled")["assetNodeOrError"]["partitionKeys"]
    named = [*ordered[:20], *ordered[22:40], *ordered[41:53]]
    launched = project.graphql(
        BACKFILL, params={"assetSelection": [{"path": ["backfilled"]}], "partitionNames": named, "tags": []}
    )["launchPartitionBackfill"]
    project.wait(lambda: _backfill(project, launched["backfillId"])["status"] in {"COMPLETED_SUCCESS", "FAILED"})

    assert _backfill(project, launched["backfillId"])["status"] == "COMPLETED_SUCCESS"
    assert project.sql("select count(*) from kafka_publication where committed_attempt = 2") == 50
    assert project.sql("select count(*) from kafka_publication where committed_attempt = 1") == 10
    assert project.sql("select group_concat(id) from (select id from backfilled order by id)") == before
    assert project.sql("select count(*) from kafka_quarantine") == 3
    assert project.sql("select count(*) from kafka_gap") == 0


def test_without_a_broker_the_sensor_skips_and_names_the_cure(project: Project, monkeypatch) -> None:
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


def _node(project: Project, name: str) -> dict:  # type: ignore[type-arg]
    return project.graphql(NODE, name=name)["assetNodeOrError"]


def _backfill(project: Project, backfill: str) -> dict:  # type: ignore[type-arg]
    return project.graphql(STANDING, id=backfill)["partitionBackfillOrError"]


def _ticks(project: Project) -> list[dict]:  # type: ignore[type-arg]
    found = project.graphql("{ workspaceOrError { ... on Workspace { locationEntries { name } } } }")
    location = found["workspaceOrError"]["locationEntries"][0]["name"]
    sensors = project.graphql(TICKS % location)["sensorsOrError"]["results"]
    return [tick for sensor in sensors for tick in sensor["sensorState"]["ticks"]]
