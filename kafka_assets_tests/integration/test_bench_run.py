"""`kafka-assets bench run`: every road lands what was produced, and the figures are of its form; never how fast."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafka_assets.audit.bulk import means_of
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.topics import topic_names
from kafka_assets.lab.bench.record_function import GIVES, values_maker, write_products
from kafka_assets.lab.bench.record_shapes import produced
from kafka_assets.lab.bench.run_roads import Asked, bench_run, machine_load
from kafka_assets.lab.bench.spark_function import paid
from kafka_assets.settings import Settings

RECORDS = 3_001


@pytest.fixture
def settings(tmp_path: Path, broker: str, spark_remote: str) -> Settings:
    return Settings(
        project=tmp_path,
        streams=tmp_path / "defs",
        bootstrap_servers=broker,
        database_url=f"sqlite:///{tmp_path / 'w.db'}",
        spark_remote=spark_remote,
    )


def measured(settings: Settings, url: str, asked: Asked, *, state: Path) -> list[dict[str, Any]]:
    figures = bench_run(settings, url, asked, state=state, before=machine_load())
    found: list[dict[str, Any]] = json.loads(json.dumps([asdict(figure) for figure in figures]))
    for one in found:
        assert set(one) == {"name", "value", "unit", "against", "ratio"}
        assert (one["against"] is None) == (one["ratio"] is None)
        assert one["against"] is None or one["against"] in {other["name"] for other in found}
        assert one["value"] > 0 or "load average" in one["name"]
    assert not [name for name in topic_names(Connection(settings.require_broker())) if name.startswith("bench-")]
    return found


def beside(found: list[dict[str, Any]], name: str) -> set[str]:
    return {one["against"] for one in found if one["name"] == name}


@pytest.mark.campaign
def test_every_road_to_sqlite_lands_the_same_records(settings: Settings, services_folder: Path) -> None:
    asked = Asked(RECORDS, "decimals", rounds=1, warm_ups=0)
    found = measured(settings, settings.database_url, asked, state=services_folder)
    loops = {"msgspec + executemany, 1 process", "msgspec + executemany, tuned client, 1 process"}
    rivals = loops | {"limit: executemany of prebuilt tuples"}
    assert beside(found, "Spark road: publish clock") == rivals
    assert beside(found, "Spark road: whole command") == rivals
    names = {one["name"] for one in found}
    assert {"Spark road: CPU of the client", "Spark road: CPU of the Spark server", "load average before, 1 minute",
            "Spark road: peak PSS of the client", "Spark road: before its first transaction",
            "Spark road: after its last COMMIT"} <= names  # fmt: skip
    assert beside(found, "Spark road: CPU") == {"msgspec + executemany, 1 process: CPU"}


@pytest.mark.campaign
@pytest.mark.parametrize("shape", ["plain", "decimals", "wide"])
@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_every_road_to_a_server_lands_the_same_records(
    database: str, shape: str, settings: Settings, services_folder: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    found = measured(settings, url, Asked(RECORDS, shape, rounds=1, warm_ups=0), state=services_folder)
    by_hand = "msgspec + COPY BINARY" if database == "postgresql" else "msgspec + LOAD DATA"
    rivals = {f"{by_hand}{how}" for how in (", 1 process", ", 2 processes", ", tuned client, 2 processes")}
    assert rivals <= beside(found, "Spark road: publish clock")
    others = (
        {"Structured Streaming + JDBC", "Kafka Connect + Debezium JDBC"} if database == "postgresql" else set[str]()
    )
    assert beside(found, "Spark road: whole command") == rivals | others | {f"limit: {means_of(database)}"}
    assert any(one["name"] == "Spark road: CPU of the database" for one in found)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("database", "by_hand"),
    [
        ("sqlite", "msgspec + executemany, replacing, 1 process"),
        ("postgresql", "msgspec + COPY BINARY + ON CONFLICT, 2 processes"),
        ("mariadb", "msgspec + executemany, replacing, 2 processes"),
    ],
)
def test_an_upsert_stands_beside_the_same_appended_and_loops_that_replace(
    database: str, by_hand: str, settings: Settings, services_folder: Path, request: pytest.FixtureRequest
) -> None:
    url = settings.database_url if database == "sqlite" else request.getfixturevalue(f"{database}_url")
    asked = Asked(RECORDS, "decimals", rounds=1, mode="upsert", warm_ups=0)
    found = measured(settings, url, asked, state=services_folder)
    for clock in ("publish clock", "whole command"):
        assert {f"Spark road: {clock}", by_hand} <= beside(found, f"Spark road, upsert: {clock}")


def test_spark_makes_the_same_rows_of_the_records_as_the_loops(spark: SparkSession, tmp_path: Path) -> None:
    products = tmp_path / "products.parquet"
    write_products(products)
    [records] = produced("decimals", 500).tables()
    made = paid(spark.createDataFrame(records), str(products)).toArrow().sort_by("id")
    by_hand = values_maker()
    [rows] = produced("decimals", 500).chunks()
    assert made.select(list(GIVES.columns)).to_pylist() == [
        dict(zip(GIVES.columns, row, strict=True)) for record in rows if (row := by_hand(record)) is not None
    ]
    places = made.select(["id", "kafka_offset"]).to_pylist()
    assert all(place["kafka_offset"] == place["id"] // 2 for place in places)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("database", "rivals"),
    [
        ("sqlite", {"msgspec + executemany, 1 process"}),
        (
            "postgresql",
            {
                "msgspec + COPY BINARY, 1 process",
                "msgspec + COPY BINARY, 2 processes",
                "Structured Streaming + JDBC",
            },
        ),
        ("mariadb", {"msgspec + LOAD DATA, 1 process", "msgspec + LOAD DATA, 2 processes"}),
    ],
)
def test_every_road_lands_what_the_function_makes(
    database: str, rivals: set[str], settings: Settings, services_folder: Path, request: pytest.FixtureRequest
) -> None:
    url = settings.database_url if database == "sqlite" else request.getfixturevalue(f"{database}_url")
    asked = Asked(RECORDS, "decimals", rounds=1, function=True, warm_ups=0)
    found = measured(settings, url, asked, state=services_folder)
    for clock in ("publish clock", "whole command"):
        assert beside(found, f"Spark road: {clock}") == rivals
