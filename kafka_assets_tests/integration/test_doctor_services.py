from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets.audit.doctor import Check, examine
from kafka_assets.broker import admin


def checks(project: Path, **environ: str) -> dict[str, Check]:
    return {check.check: check for check in examine(project, environ=environ, deep=True)}


def test_running_services_are_well(tmp_path: Path, broker: str, spark_remote: str) -> None:
    found = checks(tmp_path, KAFKA_ASSETS_BOOTSTRAP_SERVERS=broker, KAFKA_ASSETS_SPARK_REMOTE=spark_remote)
    assert (found["broker"].status, broker in found["broker"].detail) == ("ok", True)
    assert (found["spark"].status, "answered a query" in found["spark"].detail) == ("ok", True)
    assert (found["spark workers"].status, "confluent-kafka " in found["spark workers"].detail) == ("ok", True)
    assert found["spark workers and kafka"] == Check("spark workers and kafka", "ok", f"a worker reaches {broker}")
    assert found["artifacts"].status == "ok"


def test_an_address_that_workers_do_not_reach_is_told_with_the_way_there(
    tmp_path: Path, spark_remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "ALL_DOWN_GRACE", 0.1)
    nowhere = "127.0.0.1:1"
    found = checks(tmp_path, KAFKA_ASSETS_BOOTSTRAP_SERVERS=nowhere, KAFKA_ASSETS_SPARK_REMOTE=spark_remote)
    assert (found["spark"].status, found["spark workers"].status) == ("ok", "ok")
    unreached = found["spark workers and kafka"]
    assert unreached.status == "failed"
    assert f"does not reach Kafka at {nowhere}" in unreached.detail and "Connection refused" in unreached.detail
    assert "advertised.listeners" in unreached.cure


def test_without_a_broker_workers_are_asked_for_their_python_alone(tmp_path: Path, spark_remote: str) -> None:
    found = checks(tmp_path, KAFKA_ASSETS_SPARK_REMOTE=spark_remote)
    assert found["spark workers"].status == "ok"
    assert "spark workers and kafka" not in found


def test_a_spark_that_listens_and_refuses_the_token_is_found_by_asking(tmp_path: Path, spark_remote: str) -> None:
    address, _, _token = spark_remote.partition("token=")
    found = checks(tmp_path, KAFKA_ASSETS_SPARK_REMOTE=f"{address}token=wrong")
    assert found["spark"].status == "failed"
