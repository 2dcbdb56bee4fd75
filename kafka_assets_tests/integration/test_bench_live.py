"""`kafka-assets bench live`: every road lands all records once, and live mode is told beside its rival."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets.audit.scratch import scratch_ledger
from kafka_assets.broker.connection import Connection
from kafka_assets.lab.bench.live_roads import bench_live

RECORDS = 3_001


@pytest.mark.campaign
@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mariadb"])
def test_all_roads_land_the_same_records(
    database: str, broker: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}" if database == "sqlite" else request.getfixturevalue(f"{database}_url")
    with scratch_ledger(url) as engine:
        measured = bench_live(Connection(broker), engine, records=RECORDS, rounds=1)
    live = [road for road in measured.rates if road.by == "live"]
    assert [road.processes for road in live] == ([1] if database == "sqlite" else [1, 2])
    assert all(measured.median(road) > 0 for road in measured.rates)
    assert all(measured.against[road].processes == road.processes for road in live)
