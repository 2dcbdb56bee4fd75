"""The checks, from numbers alone and from SQLite: each says no where something is wrong, and what to do."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from kafka_assets.assets import checks, judging
from kafka_assets.assets.checks import _evaluation, _news, the_health_sensor
from kafka_assets.assets.decorator import kafka_asset
from kafka_assets.assets.definitions import build_definitions
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.judging import judge
from kafka_assets.assets.names import IO_MANAGER, SPARK
from kafka_assets.assets.resources import SparkResource, default_resources
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import PartitionOffsets, TopicOffsets
from kafka_assets.errors import LedgerBusy, SettingsError
from kafka_assets.ledger.claims import record_failure
from kafka_assets.ledger.health import Health
from kafka_assets.verdicts import (
    HANGING_MS,
    NAMES,
    UNSEEN_MS,
    Place,
    Recent,
    Verdict,
    exact_counts,
    hanging_transaction,
    lag,
    planning,
    quarantine_ratio,
    retention_headroom,
)
from kafka_assets_tests.downstream_contract import changed
from kafka_assets_tests.health_contract import HealthContract, landed
from kafka_assets_tests.ledgers import ASSET, Attempt, plan
from kafka_assets_tests.ticking import KEY, orders

PLACE = Place("orders", 0, 20, 10, log_start=0, last_stable=20, high_watermark=20, tail_offsets=10, tail_end=20,
              tail_uncommitted_from=10, waits_ms=5000)  # fmt: skip
UNKNOWN = {"lag", "retention_headroom", "hanging_transaction", "planning"}
"""What nobody knows while the broker does not answer."""


class TestHealthOnSQLite(HealthContract):
    """The engine is the unit tests' own."""


def test_what_is_bad_is_counted_by_its_kind_and_not_by_reasons_that_quote_values() -> None:
    one = Recent("orders:0:0-10", records_read=10, quarantined=5, rows_written=5, rows_found=5, quarantine_found=5)
    said = quarantine_ratio([one], max_bad_ratio=0.01).said
    assert "`kafka-assets quarantine list`" in said
    assert "group by reason" not in said


def test_what_waits_and_expires_soon_or_already_is_said() -> None:
    hour = 3_600_000
    kept = {"orders": hour}
    late = retention_headroom([PLACE], retention_ms=kept, oldest_ms={"orders:0": 0}, now_ms=hour - 1000)
    assert (late.passed, late.numbers["headroom_seconds"]) == (False, 1)
    assert retention_headroom([PLACE], retention_ms=kept, oldest_ms={"orders:0": 0}, now_ms=hour // 2).passed
    unasked = retention_headroom([PLACE], retention_ms=kept, oldest_ms={}, now_ms=9 * hour)
    assert "of 1 partitions the broker did not tell" in unasked.said
    assert retention_headroom([PLACE], retention_ms={"orders": None}, oldest_ms={"orders:0": 0}, now_ms=9 * hour).passed
    gone = retention_headroom([replace(PLACE, log_start=12)], retention_ms=kept, oldest_ms={}, now_ms=0)
    assert (gone.passed, gone.numbers["expired_offsets"]) == (False, 2)


def test_a_transaction_is_hanging_once_it_is_older_than_kafka_allows() -> None:
    held = [replace(PLACE, high_watermark=25)]
    assert hanging_transaction(held, since_ms={"orders:0": 0}, now_ms=HANGING_MS).passed
    old = hanging_transaction(held, since_ms={"orders:0": 0}, now_ms=HANGING_MS + 1)
    assert (old.passed, old.numbers["held_back_offsets"]) == (False, 5)


def test_counts_of_an_upsert_table_are_its_books_and_quarantine() -> None:
    one = Recent("orders:0:0-10", 10, 1, 9, rows_found=None, quarantine_found=1)
    assert exact_counts([one]).passed
    assert not exact_counts([replace(one, quarantine_found=0)]).passed


def test_offsets_of_a_topic_that_is_gone_say_what_can_be_done() -> None:
    late = lag([PLACE], max_lag_ms=1000, gone={"orders"})
    assert not late.passed
    assert "10 of them are of orders, which the broker does not show" in late.said
    assert "create it again" in late.said
    assert "create it again" not in lag([PLACE], max_lag_ms=1000, gone={"others"}).said


def test_who_should_look_and_does_not_is_said() -> None:
    late = UNSEEN_MS + 1
    assert planning([replace(PLACE, looked_ms=5000)]).passed
    off = planning([replace(PLACE, looked_ms=late)])
    assert (off.passed, off.known) == (False, True)
    assert "nobody has looked at orders for 120 s" in off.said
    assert "the sensor kafka_slices is off" in off.said
    assert planning([replace(PLACE, looked_ms=late)], max_lag_ms=900_000).passed, "cron looks every few minutes"
    # Of the partitions of a topic one is enough: those that are being committed are left out.
    assert planning([replace(PLACE, looked_ms=late), replace(PLACE, partition=1)]).passed
    other = replace(PLACE, topic="returns", looked_ms=late)
    assert "looked at returns" in planning([PLACE, other]).said
    away = planning([replace(PLACE, looked_ms=late)], silent="no Kafka broker answered")
    assert (away.passed, away.known) == (False, True)
    assert "no Kafka broker answered" in away.said
    assert not planning([PLACE], silent="no Kafka broker answered").known
    gone = planning([PLACE, other], gone={"orders"})
    assert (gone.passed, gone.known, gone.numbers["topics_gone"]) == (False, True, 1)
    assert "does not show orders" in gone.said
    assert not planning([]).known


def test_what_nobody_has_seen_is_a_lag_by_the_brokers_true_end(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensor was switched off when all was landed; then records came."""
    [key] = plan(engine, slices=[(0, 10)])
    Attempt(engine, [key]).claim().publish()
    produced = int(time.time() * 1000)

    def told(end: int, *, topic_id: str = "id-1", oldest: int | None = None) -> dict[str, Verdict]:
        seen = {"orders": TopicOffsets("orders", topic_id, {0: PartitionOffsets(0, end, end)})}
        monkeypatch.setattr(judging, "observe", lambda connection, topics: seen)
        monkeypatch.setattr(judging, "keeping", lambda connection, topics: {})
        waiting = {} if oldest is None else {("orders", 0): oldest}
        monkeypatch.setattr(judging, "times_at", lambda connection, places, **_: waiting if places else {})
        found = judge(engine, lambda: Connection("nowhere:1"), [orders(max_lag="10s")])
        return {one.name: one for one in found.verdicts[ASSET]}

    def passed(verdicts: dict[str, Verdict]) -> dict[str, bool]:
        return {name: verdicts[name].passed for name in ("lag", "planning")}

    assert passed(told(10)) == {"lag": True, "planning": True}
    assert told(15)["lag"].passed  # somebody has just looked
    changed(engine, "update kafka_progress set observed_at = '2020-01-01 00:00:00.000000'")
    changed(engine, "update kafka_committed set updated_at = '2020-01-01 00:00:00.000000'")
    assert passed(told(10)) == {"lag": True, "planning": False}
    late = told(15)
    assert (late["lag"].passed, late["lag"].numbers["lag_offsets"]) == (False, 5)
    assert told(15, oldest=produced - 60_000)["lag"].numbers["waited_seconds"] < 3600
    assert told(15, oldest=produced)["lag"].passed
    # Of a topic that was created again this source has nothing.
    assert told(15, topic_id="id-2")["lag"].numbers["lag_offsets"] == 0


def test_without_a_broker_the_ledger_is_judged_and_the_rest_is_not_known(engine: Engine) -> None:
    landed(engine)
    changed(engine, "delete from orders where kafka_offset = 5")
    found = judge(engine, _nobody, [orders(max_bad_ratio=1.0)])
    told = {one.name: one for one in found.verdicts[ASSET]}
    assert {name for name, one in told.items() if not one.known} == UNKNOWN
    assert not told["retention_headroom"].passed
    assert "no Kafka broker is known" in told["retention_headroom"].said
    assert {name for name, one in told.items() if one.known and not one.passed} == {"exact_counts"}
    assert found.down
    assert _evaluation(KEY, told["retention_headroom"]).severity == dg.AssetCheckSeverity.WARN
    assert _evaluation(KEY, told["exact_counts"]).severity == dg.AssetCheckSeverity.ERROR


def test_what_the_ledger_knows_to_have_expired_is_said_without_a_broker(engine: Engine) -> None:
    plan(engine, slices=[(0, 10)])
    changed(engine, "update kafka_progress set log_start = 5")
    [late] = [one for one in judge(engine, _nobody, [orders()]).verdicts[ASSET] if one.name == "retention_headroom"]
    assert (late.passed, late.known, late.numbers["expired_offsets"]) == (False, True, 5)


@pytest.mark.parametrize(
    "trouble", [LedgerBusy("the database was busy"), OperationalError("select", {}, Exception("no such operator"))]
)
def test_one_streams_trouble_hides_no_other_ones_checks(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    landed(engine)
    asked = judging.health

    def busy(engine: Engine, *, asset: str, target: str, counted: bool) -> Health:
        if asset == "payments":
            raise trouble
        return asked(engine, asset=asset, target=target, counted=counted)

    monkeypatch.setattr(judging, "health", busy)
    found = judge(engine, _nobody, [orders(name="payments", target="payments", topic="payments"), orders()])
    assert list(found.verdicts) == [ASSET]
    assert found.troubles[0].startswith("payments: the database")


def test_the_sensor_judges_the_ledger_without_a_broker(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(engine)
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", str(engine.url))
    monkeypatch.delenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", raising=False)
    declared: Any = kafka_asset(name=ASSET, topic="orders", target="orders", schema="id BIGINT", max_bad_ratio=1.0)
    defs = build_definitions([declared(lambda records: records)])

    def told(cursor: str | None) -> tuple[set[str], Any]:
        with (
            dg.DagsterInstance.ephemeral() as instance,
            dg.build_sensor_context(
                instance=instance, definitions=defs, resources=default_resources(), cursor=cursor
            ) as context,
        ):
            found = the_health_sensor().evaluate_tick(context)
        events = [one for one in found.asset_events if isinstance(one, dg.AssetCheckEvaluation)]
        return {one.check_name for one in events if not one.passed}, found

    failed, found = told(None)
    assert failed == UNKNOWN
    assert len(found.asset_events) == len(NAMES)
    failed, found = told(found.cursor)
    assert (failed, found.asset_events) == (set(), [])
    assert "no Kafka broker is known" in str(found.skip_message)


@pytest.mark.slow
def test_a_lag_says_that_spark_does_not_answer_and_what_the_last_run_said(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setattr(checks, "SPARK_PATIENCE", timedelta(seconds=1))
    [key] = plan(engine, slices=[(0, 10)])
    claims = Attempt(engine, [key]).claim().claims
    record_failure(engine, claims, reason="Spark cannot be reached", max_attempts=5, counts=False)
    changed(engine, "update kafka_slice set created_at = '2020-01-01 00:00:00.000000'")
    declared: Any = kafka_asset(name=ASSET, topic="orders", target="orders", schema="id BIGINT")
    defs = build_definitions([declared(lambda records: records)])

    def lag_by(spark: SparkResource) -> str:
        resources = {**default_resources(), SPARK: spark, IO_MANAGER: SliceIOManager(database_url=str(engine.url))}
        with (
            dg.DagsterInstance.ephemeral() as instance,
            dg.build_sensor_context(instance=instance, definitions=defs, resources=resources) as context,
        ):
            found = the_health_sensor().evaluate_tick(context)
        told = {one.check_name: one for one in found.asset_events if isinstance(one, dg.AssetCheckEvaluation)}
        assert not told["lag"].passed
        return str(told["lag"].description)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        said = lag_by(SparkResource(spark_config={"spark.remote": f"sc://localhost:{port}/;token=hunter2"}))
    assert f"Spark at localhost:{port} does not answer within 1 s (DEADLINE_EXCEEDED: " in said
    assert "a run of it failed: Spark cannot be reached" in said
    assert "hunter2" not in said
    assert "does not answer within" not in lag_by(SparkResource(spark_config={"spark.master": "local[2]"}))


def test_spark_is_asked_once_and_only_where_something_waits_too_long(engine: Engine) -> None:
    plan(engine, slices=[(0, 10)])
    asked: list[int] = []

    def trouble() -> str:
        asked.append(1)
        return "it is full"

    assert judge(engine, _nobody, [orders()], spark=trouble).verdicts
    assert asked == []
    changed(engine, "update kafka_slice set created_at = '2020-01-01 00:00:00.000000'")
    judge(engine, _nobody, [orders(), orders()], spark=trouble)
    assert asked == [1]


def _nobody() -> Connection:
    raise SettingsError("no Kafka broker is known")


def test_that_nobody_knows_is_another_answer_than_no() -> None:
    unknown = Verdict("lag", True, "said").unless("it is down")
    _, cursor = _news([_evaluation(KEY, unknown)], None)
    assert _news([_evaluation(KEY, unknown)], cursor)[0] == []
    assert len(_news([_evaluation(KEY, Verdict("lag", False, "said"))], cursor)[0]) == 1


def test_dagster_is_told_what_changed_and_the_rest_now_and_then() -> None:
    def event(passed: bool) -> dg.AssetCheckEvaluation:
        return _evaluation(dg.AssetKey("orders"), Verdict("lag", passed, "said", {"lag_offsets": 1}))

    told, cursor = _news([event(True)], None)
    assert len(told) == 1
    told, cursor = _news([event(True)], cursor)
    assert told == []
    told, cursor = _news([event(False)], cursor)
    assert len(told) == 1
    long_ago = cursor.replace(cursor.partition("[false, ")[2].partition("]")[0], "1.0")
    assert len(_news([event(False)], long_ago)[0]) == 1
