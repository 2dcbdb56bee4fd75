"""The producer inside Dagster, and the compressions measured by it."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kafka_assets import cli
from kafka_assets.assets.resources import KafkaProducerResource
from kafka_assets.broker import Connection
from kafka_assets.broker.read import read_range
from kafka_assets.broker.topics import create_topic, topic_names


def make(broker: str, **settings: Any) -> KafkaProducerResource:
    properties = {"message.max.bytes": "4000000"}
    return KafkaProducerResource(bootstrap_servers=broker, properties=properties, **settings)


@dg.asset(name="announced")
def announced(context: dg.AssetExecutionContext, kafka_producer: KafkaProducerResource) -> None:
    topic, size = context.run.tags["topic"], int(context.run.tags["size"])
    with kafka_producer.producer() as producer:
        producer.send(topic, {"id": 1, "text": "x" * size}, key="one")


def test_an_asset_writes_to_kafka_and_fails_when_its_records_did_not_arrive(broker: str) -> None:
    topic = f"announced-{os.getpid()}"
    connection = Connection(broker)
    create_topic(connection, topic, partitions=1)
    resources = {"kafka_producer": make(broker, compression="zstd")}

    def materialize(size: int) -> dg.ExecuteInProcessResult:
        tags = {"topic": topic, "size": str(size)}
        return dg.materialize([announced], resources=resources, tags=tags, raise_on_error=False)

    assert materialize(3).success
    [record] = read_range(connection, topic, 0, 0, 1)
    assert (record.key, json.loads(record.value or b"")) == (b"one", {"id": 1, "text": "xxx"})
    resources = {"kafka_producer": make(broker, compression="none")}
    failed = materialize(2_000_000)
    assert not failed.success
    [failure] = [event for event in failed.all_events if event.is_step_failure]
    assert "1 records were not delivered" in str(failure.event_specific_data)


def test_without_configuration_it_is_the_broker_of_the_settings(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"announced-default-{os.getpid()}"
    create_topic(Connection(broker), topic, partitions=1)
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", broker)
    with KafkaProducerResource().producer() as producer:
        assert producer.deliver(topic, {"id": 1}).offset == 0


def test_the_compressions_are_measured_beside_none(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", broker)
    monkeypatch.setattr(sys, "argv", ["kafka-assets", "bench", "compression", "--records", "5000", "--json"])
    monkeypatch.setattr("kafka_assets.audit.compression.ROUNDS", 1)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    figures = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert set(figures) == {
        f"{one}: {what}" for one in ("none", "gzip", "snappy", "lz4", "zstd") for what in ("rate", "size")
    }
    assert 150 < figures["none: size"]["value"] < 400
    for one in ("gzip", "snappy", "lz4", "zstd"):
        assert figures[f"{one}: size"]["ratio"] < 0.9
        assert figures[f"{one}: rate"]["against"] == "none: rate"
    assert not [name for name in topic_names(Connection(broker)) if name.startswith("bench-compression")]
