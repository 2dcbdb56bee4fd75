"""The resources of docs/assets.md, as they stand there: secrets come from the environment, when a run starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kafka_assets.assets.definitions import build_definitions
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK
from kafka_assets.assets.resources import KafkaResource, SparkResource
from kafka_assets_tests.unit.test_component import ORDERS, project_of_dg, written
from kafka_assets_tests.unit.test_docs import ROOT, blocks


def _built(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dg.RepositoryDefinition:
    monkeypatch.setenv("KAFKA_ASSETS_STREAMS", str(written(tmp_path, orders_yaml=ORDERS)))
    made: dict[str, Any] = {}
    exec(compile(example, "docs/assets.md", "exec"), made)
    defs: dg.Definitions = made["defs"]
    return defs.get_repository_def()


def test_the_examples_take_their_secrets_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built, in_dg = [one for one in blocks(ROOT / "docs" / "assets.md", "python") if "EnvVar" in one]
    repositories = [_built(built, tmp_path, monkeypatch), project_of_dg(orders__defs_yaml=ORDERS, own_py=in_dg)]
    assert "plain value" not in caplog.text
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    monkeypatch.setenv("WAREHOUSE_URL", f"sqlite:///{tmp_path / 'warehouse.db'}")
    configs: list[dict[str, str]] = []
    for repository in repositories:
        assert dg.AssetKey("orders") in repository.asset_graph.get_all_asset_keys()
        with dg.build_resources(repository.get_top_level_resources()) as given:
            connection = given.kafka_assets_broker.connection()
            assert connection.bootstrap_servers == "kafka1.example.com:9093"
            assert connection.properties == {"security.protocol": "SASL_SSL", "sasl.password": "secret"}
            assert given.kafka_assets_io.engine.url.database == str(tmp_path / "warehouse.db")
            configs.append(given.kafka_assets_spark.spark_config)
    assert configs == [{"spark.remote": "sc://spark.example.com:15002"}, {}]


def test_a_secret_that_the_ui_would_show_is_said_when_the_code_location_loads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    build_definitions(
        [],
        resources={
            KAFKA: KafkaResource(properties={"sasl.username": "me", "sasl.password": "CANARY"}),
            SPARK: SparkResource(spark_config={"spark.remote": "sc://h/;token=CANARY", "spark.app.name": "shop"}),
            IO_MANAGER: SliceIOManager(database_url="postgresql://me:CANARY@h/d"),
        },
    )
    said = [one for one in caplog.messages if "plain value" in one]
    assert [one.partition(" as a plain value")[0].split()[-1] for one in said] == [
        "sasl.password",
        "spark.remote",
        "database_url",
    ]
    assert "CANARY" not in caplog.text
