"""From a topic to rows: real broker, real Spark, SQLite."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import dagster as dg
from pyspark.sql import SparkSession
from sqlalchemy import text

from kafka_assets.assets import land
from kafka_assets.assets.reruns import PARENT_TAG, RETRY_TAG, ROOT_TAG
from kafka_assets.assets.resources import KafkaResource
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, transaction
from kafka_assets.broker.topics import delete_topic
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.fences import Held
from kafka_assets.sinks import publish as publishing
from kafka_assets.slices import Piece
from kafka_assets.spark.decode import decode, good
from kafka_assets_tests.integration.project import Landing, failure_of

Declare = Callable[..., Landing]


def test_every_record_lands_once_and_the_bad_ones_wait_in_quarantine(landing: Declare) -> None:
    stream = landing(max_bad_ratio=1.0)
    stream.topic(partitions=2)
    stream.produce_ids(0, 500)
    stream.produce_ids(500, 800, partition=1)
    stream.produce(b"{cut", b'{"id": "seven"}', None, partition=1)
    stream.land()
    assert stream.sql(f"select count(*) from {stream.name}") == 800
    assert stream.sql(f"select count(distinct id) from {stream.name}") == 800
    assert stream.sql("select count(*) from kafka_quarantine") == 3
    assert stream.sql("select value from kafka_quarantine order by kafka_offset limit 1") == b"{cut"
    assert stream.sql("select sum(next_offset) from kafka_committed_offset") == 803
    assert stream.sql("select count(*) from kafka_gap") == 0
    assert stream.tick().requests == []


def test_a_partitions_end_is_read_at_once_however_long_others_would_wait_there(
    landing: Declare, spark: SparkSession
) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 10)
    seconds = 25  # within those in which Kafka's client asks anew
    for properties in ({}, {"fetch.wait.max.ms": f"{seconds}000"}):  # the first is not counted: it may find Spark cold
        kafka = KafkaResource(bootstrap_servers=stream.broker, properties=properties)
        began = time.monotonic()
        raw = kafka.read(spark, [Piece(stream.name, 0, 0, 10, ())])
        assert good(decode(raw, stream.stream), stream.stream).count() == 10
    assert time.monotonic() - began < seconds


def test_aborted_records_never_land_and_an_open_transaction_waits(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    connection = Connection(stream.broker, {})
    stream.produce_ids(0, 10)
    with transaction(connection, stream.name, transactional_id=f"{stream.name}-a") as aborted:
        aborted.produce([Record(value=b'{"id": 666}', partition=0)])
        aborted.abort()
    with transaction(connection, stream.name, transactional_id=f"{stream.name}-b") as committed:
        committed.produce([Record(value=b'{"id": 10}', partition=0)])
        committed.commit()
    stream.settle()
    stream.land()
    assert stream.sql(f"select count(*) from {stream.name}") == 11
    assert stream.sql(f"select count(*) from {stream.name} where id = 666") == 0
    assert stream.sql("select sum(holes) from kafka_publication") == 3
    with transaction(connection, stream.name, transactional_id=f"{stream.name}-c") as hanging:
        hanging.produce([Record(value=b'{"id": 11}', partition=0)])
        assert stream.tick().planned == 0
        assert stream.sql("select hanging > 0 from kafka_lag") == 1
        hanging.abort()


def test_a_replay_replaces_and_a_second_run_of_the_sensor_does_nothing(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 50)
    [request] = stream.land().requests
    assert stream.run(request).success
    assert stream.sql("select committed_attempt from kafka_publication") == 1
    assert stream.replay(stream.keys()[0]).success
    assert stream.sql("select committed_attempt from kafka_publication") == 2
    assert stream.sql(f"select count(*) from {stream.name}") == 50


def test_whoever_executes_the_sensors_run_again_by_hand_replaces_and_an_automatic_retry_does_not(
    landing: Declare,
) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 50)
    found = stream.tick()
    [request] = found.requests
    sensors = stream.run(request)
    # The tags as Dagster copies and sets them: see DagsterInstance.create_reexecuted_run.
    parent = {PARENT_TAG: sensors.run_id, ROOT_TAG: sensors.run_id}

    def attempt() -> object:
        return stream.sql("select committed_attempt from kafka_publication")

    assert stream.run(request, **parent, **{RETRY_TAG: "1"}).success
    assert attempt() == 1
    by_hand = stream.run(request, **parent)
    assert by_hand.success
    assert attempt() == 2
    # Dagster tries a run again that has committed, and was killed before it could tell.
    mine = {PARENT_TAG: by_hand.run_id, ROOT_TAG: sensors.run_id}
    assert stream.run(request, **mine, **{RETRY_TAG: "2"}).success
    assert attempt() == 2
    assert stream.sql(f"select count(*) from {stream.name}") == 50


def test_an_automatic_retry_of_a_backfill_replaces_unless_the_backfill_has(landing: Declare, monkeypatch) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 50)
    stream.land()
    [key] = stream.keys()

    def fails(*given: object) -> None:
        raise RuntimeError("killed before its COMMIT")

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "verify_attempts", fails)
        died = stream.replay(key)
    assert not died.success
    retry = stream.replay(key, **{PARENT_TAG: died.run_id, ROOT_TAG: died.run_id, RETRY_TAG: "1"})
    assert retry.success
    assert stream.rows("select committed_attempt, run_id from kafka_publication") == [(3, retry.run_id)]
    again = stream.replay(key, **{PARENT_TAG: retry.run_id, ROOT_TAG: died.run_id, RETRY_TAG: "2"})
    assert again.success
    assert stream.rows("select committed_attempt, run_id from kafka_publication") == [(3, retry.run_id)]
    assert stream.sql(f"select count(*) from {stream.name}") == 50


def test_two_copies_of_one_run_at_the_same_time_land_it_once(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 200)
    [request] = stream.tick().requests
    results: list[bool] = []
    copy = threading.Thread(target=lambda: results.append(stream.run_elsewhere(request).success))
    copy.start()
    results.append(stream.run(request).success)
    copy.join()
    assert True in results
    assert stream.sql(f"select count(*) from {stream.name}") == 200
    assert stream.sql("select count(*) from kafka_publication where state = 'committed'") == 1
    assert stream.sql("select count(*) from kafka_gap") == 0


def test_a_forced_copy_beside_a_paused_one_fences_it(landing: Declare, monkeypatch) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 100)
    [request] = stream.tick().requests
    paused, go = threading.Event(), threading.Event()
    spool = publishing.retried

    def wait_once(transaction):
        # Only the first run pauses: everything is read, and its transaction has not begun.
        if not paused.is_set():
            paused.set()
            go.wait(60)
        return spool(transaction)

    monkeypatch.setattr(publishing, "retried", wait_once)
    monkeypatch.setattr(land, "LEASE_MS", 1000)
    monkeypatch.setattr(land, "kept_alive", _not_kept_alive)
    zombies = []
    # Without the sensor's token, as from the UI: such a run replaces, and finding the slice committed is no excuse.
    by_hand = dg.RunRequest(tags={name: value for name, value in request.tags.items() if name.startswith("dagster/")})
    zombie = threading.Thread(target=lambda: zombies.append(stream.run_elsewhere(by_hand)))
    zombie.start()
    assert paused.wait(60)
    time.sleep(1.2)
    heir = stream.run(request)
    go.set()
    zombie.join()
    assert heir.success
    assert not zombies[0].success
    assert "taken over" in failure_of(zombies[0])
    assert stream.sql(f"select count(*) from {stream.name}") == 100
    assert stream.sql("select committed_attempt from kafka_publication") == 2


def test_a_topic_that_was_created_again_is_landed_from_its_beginning(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 20)
    stream.land()
    stream.produce_ids(20, 30)
    stream.tick()
    delete_topic(stream.connection, stream.name)
    stream.topic()
    stream.produce_ids(100, 105)
    stream.land()
    assert stream.sql(f"select count(*) from {stream.name} where id >= 100") == 5
    assert stream.sql("select sum(end_offset - start_offset) from kafka_slice where kind = 'lost'") == 10
    assert stream.keys()[-1].endswith(":2")
    assert stream.sql("select count(*) from kafka_gap") == 0


def test_what_dagster_did_not_hear_of_is_told_again(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 10)
    stream.land()
    stream.instance.wipe_assets([stream.asset.key])
    [event] = stream.tick().events
    assert event.partition == stream.keys()[0]
    assert event.metadata["landed"].value == 10


def test_an_incompatible_table_is_refused_before_any_work(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 10)
    with write(stream.engine) as connection:
        connection.execute(text(f"create table {stream.name} (id text)"))
    [request] = stream.tick().requests
    result = stream.run(request)
    assert not result.success
    assert "column 'id' is TEXT, the stream delivers INTEGER" in failure_of(result)


class _not_kept_alive:  # noqa: N801 - it stands in for a context manager
    def __init__(self, *given: object, **more: object) -> None: ...

    def __enter__(self) -> Held:
        return Held()

    def __exit__(self, *error: object) -> None: ...
