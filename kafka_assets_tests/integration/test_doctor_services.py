from __future__ import annotations

from pathlib import Path

from kafka_assets.audit.doctor import Check, examine


def checks(project: Path, **environ: str) -> dict[str, Check]:
    return {check.check: check for check in examine(project, environ=environ, deep=True)}


def test_running_services_are_well(tmp_path: Path, broker: str, spark_remote: str) -> None:
    found = checks(tmp_path, KAFKA_ASSETS_BOOTSTRAP_SERVERS=broker, KAFKA_ASSETS_SPARK_REMOTE=spark_remote)
    assert (found["broker"].status, broker in found["broker"].detail) == ("ok", True)
    assert (found["spark"].status, "answered a query" in found["spark"].detail) == ("ok", True)
    assert found["artifacts"].status == "ok"


def test_a_spark_that_listens_and_refuses_the_token_is_found_by_asking(tmp_path: Path, spark_remote: str) -> None:
    address, _, _token = spark_remote.partition("token=")
    found = checks(tmp_path, KAFKA_ASSETS_SPARK_REMOTE=f"{address}token=wrong")
    assert found["spark"].status == "failed"
