"""The checks against a real broker: by the sensor without a run, and by hand as a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dagster as dg

from kafka_assets.assets.checks import the_health_sensor
from kafka_assets.assets.definitions import build_definitions
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK
from kafka_assets.assets.resources import KafkaResource, SparkResource
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.keeping import times_at
from kafka_assets.broker.produce import Record, transaction
from kafka_assets.broker.topics import delete_topic
from kafka_assets.ledger.engine import write
from kafka_assets.verdicts import NAMES
from kafka_assets_tests.integration.project import Landing

Declare = Callable[..., Landing]


def resources(stream: Landing) -> dict[str, Any]:
    return {
        KAFKA: KafkaResource(bootstrap_servers=stream.broker),
        SPARK: SparkResource(spark_config={"spark.remote": stream.spark_remote}),
        IO_MANAGER: SliceIOManager(database_url=stream.database_url),
    }


def judged(stream: Landing, cursor: str | None = None) -> dg.SensorResult:
    context = dg.build_sensor_context(
        instance=stream.instance,
        cursor=cursor,
        definitions=build_definitions([stream.asset]),
        resources=resources(stream),
    )
    with context:
        found = the_health_sensor().evaluate_tick(context)
    assert found.run_requests == []
    return dg.SensorResult(asset_events=found.asset_events, cursor=found.cursor)


def test_the_sensor_judges_every_asset_and_observes_its_topic_without_a_run(landing: Declare) -> None:
    stream = landing()
    stream.topic(partitions=2, **{"retention.ms": "86400000"})
    stream.produce_ids(0, 10)
    stream.land()
    first = judged(stream)
    checks = {one.check_name: one for one in first.asset_events if isinstance(one, dg.AssetCheckEvaluation)}
    assert set(checks) == set(NAMES)
    assert all(one.passed for one in checks.values())
    assert checks["exact_counts"].metadata["rows_counted"].value == 10.0
    [topic] = [one for one in first.asset_events if isinstance(one, dg.AssetObservation)]
    assert topic.asset_key == dg.AssetKey(["kafka", stream.name])
    assert (topic.metadata["partitions"].value, topic.metadata["retention_ms"].value) == (2, 86400000)
    assert judged(stream, first.cursor).asset_events == []

    with write(stream.engine) as connection:
        connection.exec_driver_sql(f"delete from {stream.name} where id = 3")
    [event] = judged(stream, first.cursor).asset_events
    assert isinstance(event, dg.AssetCheckEvaluation)
    assert (event.check_name, event.passed) == ("exact_counts", False)


def test_a_check_runs_by_hand_alone_and_with_all_the_others(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 10)
    stream.land()
    shown = build_definitions([stream.asset], resources=resources(stream))
    key = dg.AssetCheckKey(stream.asset.key, "no_gaps")
    [checks] = shown.asset_checks or []
    for selection, count in ((dg.AssetSelection.checks(key), 1), (dg.AssetSelection.all_asset_checks(), len(NAMES))):
        result = dg.materialize(
            [stream.asset, checks], selection=selection, instance=stream.instance, resources=resources(stream)
        )
        found = result.get_asset_check_evaluations()
        assert [one.passed for one in found] == [True] * count


def test_the_time_since_a_transaction_holds_records_back_is_its_first_records(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 10)
    connection = Connection(stream.broker, {})
    with transaction(connection, stream.name, transactional_id=f"{stream.name}-h") as hanging:
        hanging.produce([Record(value=b"{}", partition=0, timestamp_ms=1_767_225_600_000)])
        place = {(stream.name, 0): 10}
        assert times_at(connection, place, committed=False) == {(stream.name, 0): 1_767_225_600_000}
        assert times_at(connection, place, timeout=1.0) == {}
        stream.tick()
        events = {
            one.check_name: one for one in judged(stream).asset_events if isinstance(one, dg.AssetCheckEvaluation)
        }
        assert not events["hanging_transaction"].passed
        assert "abort" in (events["hanging_transaction"].description or "")
        hanging.abort()


def test_a_topic_that_cannot_be_read_hides_no_other_ones_times(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce(b"{}")
    places = {("nowhere", 0): 0, (stream.name, 0): 0, (stream.name, 7): 0}
    assert set(times_at(stream.connection, places)) == {(stream.name, 0)}


def test_a_topic_that_is_gone_is_said_where_its_offsets_wait_and_the_others_are_judged(landing: Declare) -> None:
    stream = landing(max_lag="1s")
    stream.topic()
    stream.produce_ids(0, 10)
    stream.tick()
    delete_topic(stream.connection, stream.name)
    time.sleep(1.1)
    events = {one.check_name: one for one in judged(stream).asset_events if isinstance(one, dg.AssetCheckEvaluation)}
    assert set(events) == set(NAMES)
    assert "create it again" in (events["lag"].description or "")
    stream.topic()
    stream.tick()
    events = {one.check_name: one for one in judged(stream).asset_events if isinstance(one, dg.AssetCheckEvaluation)}
    assert all(one.passed for one in events.values())
