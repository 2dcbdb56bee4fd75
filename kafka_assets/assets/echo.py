"""Telling Dagster what the ledger knows and Dagster does not: a run that died between COMMIT and its event."""

from __future__ import annotations

import dagster as dg
from sqlalchemy import Engine

from kafka_assets.assets.metadata import metadata_of
from kafka_assets.ledger.publications import committed_rows, results
from kafka_assets.streams import Stream

TOLD_PER_TICK = 100


def missed_materializations(
    engine: Engine, stream: Stream, *, instance: dg.DagsterInstance
) -> list[dg.AssetMaterialization]:
    """Materializations of committed slices that Dagster has not heard of, a bounded number of them.

    A run that is still going on tells its own. Keys that Dagster lost are added again first.
    """
    asset = dg.AssetKey(stream.name)
    told = instance.get_materialized_partitions(asset)
    untold = {key: found for key, found in committed_rows(engine, asset=stream.asset).items() if str(key) not in told}
    running = _unfinished(instance, {run_id for _, run_id in untold.values() if run_id}) if untold else set[str]()
    mine = [(key, row_id) for key, (row_id, run_id) in untold.items() if run_id not in running][:TOLD_PER_TICK]
    if not mine:
        return []
    instance.add_dynamic_partitions(stream.partitions_name, [str(key) for key, _ in mine])
    rows = results(engine, [row_id for _, row_id in mine])
    return [
        dg.AssetMaterialization(
            asset_key=asset,
            partition=str(key),
            description="told again from the ledger",
            metadata=metadata_of(rows[row_id], stream),
        )
        for key, row_id in mine
    ]


def _unfinished(instance: dg.DagsterInstance, run_ids: set[str]) -> set[str]:
    records = instance.get_run_records(dg.RunsFilter(run_ids=sorted(run_ids)))
    return {record.dagster_run.run_id for record in records if not record.dagster_run.is_finished}
