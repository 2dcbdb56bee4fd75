"""Topics as Spark's workers read them: what live mode makes of the same records, and what is left of the reading."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException

from kafka_assets.broker.connection import Connection, consumer_config, worker_config
from kafka_assets.broker.produce import Record, transaction
from kafka_assets.errors import KafkaAssetsError, RecordsChanged
from kafka_assets.live.batch import Batch
from kafka_assets.live.decode import Decoder
from kafka_assets.records import Chunk
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark import traveling
from kafka_assets.spark.chunks import fetch_landed, plain_schema
from kafka_assets.spark.source import read
from kafka_assets.spark.transformed import fetch_transformed
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.corpus.frames import as_one
from kafka_assets_tests.integration.consuming import delete_records, new_topic
from kafka_assets_tests.integration.living import waited
from kafka_assets_tests.integration.raw_producer import Raw, produce_raw
from kafka_assets_tests.integration.settling import settled
from kafka_assets_tests.integration.test_hostile_records import ANY_TIME, NAMED, TIMES, TOO_FAR
from kafka_assets_tests.integration.test_live_decode import differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker)


def stream_of(topic: str, **attributes: Any) -> Stream:
    return declare(name="orders", topic=topic, target="orders", schema="id BIGINT NOT NULL, note STRING", **attributes)


def reading(spark: SparkSession, connection: Connection, *, at_once: int | None = None) -> Callable[..., Any]:
    return partial(read, spark, worker_config(connection), at_once=at_once)


def by_runs(spark: SparkSession, connection: Connection, stream: Stream, key: SliceKey, *, function: bool) -> Chunk:
    pieces = [Piece(stream.reads, 0, key.start, key.end, (key,))]
    given = {"read": reading(spark, connection, at_once=50), "stream": stream}
    if not function:
        return as_one(fetch_landed(pieces, **given))
    schema = plain_schema(stream)
    return as_one(fetch_transformed(pieces, **given, transform=lambda records: records, schema=schema, room=1 << 24))


def live(connection: Connection, stream: Stream, key: SliceKey, *, function: bool) -> Chunk:
    """What a live consumer makes of what its client gives."""
    consumer: Any = Consumer(consumer_config(connection))
    batch = Batch()
    try:
        consumer.assign([TopicPartition(stream.reads, 0, key.start)])
        while consumer.position([TopicPartition(stream.reads, 0)])[0].offset < key.end:
            if some := [one for one in consumer.consume(100, 0.1) if one.error() is None]:
                batch.extend(some)
    finally:
        consumer.close()
    return Decoder(stream, (lambda records: records) if function else None).chunk({key: batch})


def hostile(connection: Connection) -> SliceKey:
    """A topic of records that nobody should write, with holes among them and at its end."""
    topic = new_topic(connection, partitions=1, **ANY_TIME)
    times = [*TIMES, *TOO_FAR]
    values: list[bytes | None] = [
        b'{"id": 1, "note": "n"}',
        b"no",
        b"",
        None,
        b'{"id": null}',
        b'{"note": "\xff"}',
        b"2" * 5000,
    ]
    headers: list[Any] = [
        [],
        NAMED,
        [(b"a", None), (b"a", b"\xff"), (b"", b"")],
        [(b"h%d" % at, b"v") for at in range(50)],
    ]
    records = [
        Raw(value, key=key, headers=some, timestamp_ms=times[(at + more) % len(times)])
        for at, value in enumerate(values)
        for key in (None, b"", b"key")
        for more, some in enumerate(headers)
    ]
    for at, one in enumerate(records):
        produce_raw(connection.bootstrap_servers, topic, [one])
        if at == 40:
            aborted(connection, topic)
    aborted(connection, topic)
    return SliceKey(topic, 1, 0, 0, settled(connection, topic)[0].last_stable)


def aborted(connection: Connection, topic: str) -> None:
    with transaction(connection, topic, transactional_id=topic) as writing:
        writing.produce([Record(b'{"id": 666}', partition=0)] * 3)
        writing.abort()


def test_both_roads_make_the_same_of_a_topic_of_hostile_records(spark: SparkSession, connection: Connection) -> None:
    key = hostile(connection)
    for attributes in ({}, {"mode": "upsert", "key": ["kafka_key"]}):
        stream = stream_of(key.topic, **attributes)
        for function in (False, True):
            theirs = by_runs(spark, connection, stream, key, function=function)
            ours = live(connection, stream, key, function=function)
            none: list[bytes | None] = [None] * key.end
            assert differences(theirs, ours, none, none) == []
            assert sorted(theirs.bad, key=_offset) == sorted(ours.bad, key=_offset)
            assert theirs.seen == ours.seen
            [seen] = theirs.seen.values()
            assert seen.read == 84 < key.end == 92
            assert seen.fingerprint
            told = [one.reason for one in theirs.bad if "not valid UTF-8" in one.reason]
            # With a function such a record is bad for its headers; without one it says that they are left out.
            assert any(reason.startswith("the function is given headers") for reason in told) == function
            assert any("its headers are left out" in reason for reason in told)


def _offset(bad: Any) -> int:
    return bad.offset


def test_what_has_expired_fails_a_query_as_records_that_changed(spark: SparkSession, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=20)
    delete_records(connection, topic, 12)
    for function in (False, True):
        with pytest.raises(RecordsChanged, match=f"offset 0 of partition 0 of the topic '{topic}'"):
            by_runs(spark, connection, stream_of(topic), SliceKey(topic, 1, 0, 0, 20), function=function)


# ---- what is left ------------------------------------------------------------------------------------------


def clients(connection: Connection) -> list[int]:
    """The workers of Spark's that are connected to this broker."""
    port = int(connection.bootstrap_servers.rpartition(":")[2])
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            if "pyspark.daemon" not in process.cmdline():
                continue
            if any(one.raddr and one.raddr.port == port for one in process.net_connections("tcp")):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_worker_that_has_read_for_many_tasks_keeps_nothing_of_them(
    spark: SparkSession, connection: Connection
) -> None:
    topic = new_topic(connection, partitions=1, records=200)
    stream, key = stream_of(topic), SliceKey(topic, 1, 0, 0, 200)
    pieces = [Piece(topic, 0, 0, 200, (key,))]
    found = as_one(fetch_landed(pieces, read=reading(spark, connection, at_once=4), stream=stream))
    assert sum(one.read for one in found.seen.values()) == 200

    def threads(batches: Iterator[Any]) -> Iterator[Any]:
        named = [task.joinpath("comm").read_text() for task in Path("/proc/self/task").iterdir()]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "left": [sum("rdk:" in name for name in named)]})

    rows = spark.range(0, 4, 1, 4).mapInArrow(threads, "pid long, left long").collect()
    assert {row.left for row in rows} == {0}
    assert clients(connection) == []


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers that wait for ten minutes, so that nothing ends by itself."""
    texts = traveling._texts()
    assert "PATIENCE = 30.0" in texts["fetch"]
    texts["fetch"] = texts["fetch"].replace("PATIENCE = 30.0", "PATIENCE = 600.0")
    monkeypatch.setattr(traveling, "_texts", lambda: texts)
    traveling._packed.cache_clear()
    yield
    traveling._packed.cache_clear()


@pytest.mark.usefixtures("patient")
def test_no_worker_goes_on_reading_for_a_query_that_is_cancelled(spark: SparkSession, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=20)
    raised: list[BaseException] = []

    def reads_on() -> None:
        try:  # past the log's end, where a task waits
            by_runs(spark, connection, stream_of(topic), SliceKey(topic, 1, 0, 0, 21), function=False)
        except (PySparkException, KafkaAssetsError) as error:
            raised.append(error)

    query = threading.Thread(target=reads_on)
    query.start()
    waited(lambda: clients(connection))
    spark.interruptAll()
    query.join(60)
    assert raised
    waited(lambda: not clients(connection))
