"""From a compacted topic to an upsert table: real broker, real Spark, SQLite."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import NewPartitions

from kafka_assets.broker.admin import admin
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import describe_topic
from kafka_assets_tests.integration.project import Landing, failure_of

Declare = Callable[..., Landing]


def send(stream: Landing, *records: tuple[str | bytes | None, str | None], partition: int = 0) -> None:
    """Keys and values; None as a value is a tombstone."""

    def as_bytes(value: str | bytes | None) -> bytes | None:
        return value.encode() if isinstance(value, str) else value

    given = [Record(key=as_bytes(key), value=as_bytes(value), partition=partition) for key, value in records]
    produce(stream.connection, stream.name, given)


def standing(stream: Landing) -> list[tuple[object, ...]]:
    return stream.rows(f"select id, note from {stream.name} order by id")


def counts(stream: Landing) -> list[tuple[object, ...]]:
    listed = "records_read, landed, superseded, filtered, quarantined, tombstoned"
    return stream.rows(f"select {listed} from kafka_publication order by id")


def test_a_compacted_topic_with_tombstones_becomes_a_table_of_its_keys(landing: Declare) -> None:
    stream = landing(mode="upsert", key=["id"], max_bad_ratio=1.0)
    stream.topic(**{"cleanup.policy": "compact"})
    send(stream, *((f"{n}", f'{{"id": {n}, "note": "a"}}') for n in range(5)))
    stream.land()
    # A later version; deletes by a plain value, by a JSON object, and of nothing; and what deletes cannot tell.
    send(stream, ("1", '{"id": 1, "note": "b"}'), ("2", None), ('{"id": 3, "more": [1]}', None), ("99", None))
    send(stream, ("three", None), (b"\xff", None), ("4", "{cut"))
    stream.land()
    assert standing(stream) == [(0, "a"), (1, "b"), (4, "a")]
    assert counts(stream) == [(5, 5, 0, 0, 0, 0), (7, 1, 0, 0, 3, 3)]
    reasons = [row[0] for row in stream.rows("select reason from kafka_quarantine order by kafka_offset")]
    assert [reason.startswith("a tombstone whose key does not tell") for reason in reasons] == [True, True, False]
    assert stream.sql("select count(*) from kafka_tombstone") == 3
    # The slice with the rows comes again: what was deleted since stays so.
    assert stream.replay(stream.keys()[0]).success
    assert standing(stream) == [(0, "a"), (1, "b"), (4, "a")]
    assert counts(stream)[0] == (5, 2, 3, 0, 0, 0)
    send(stream, ("2", '{"id": 2, "note": "back"}'))
    stream.land()
    assert standing(stream) == [(0, "a"), (1, "b"), (2, "back"), (4, "a")]
    assert stream.sql("select sum(next_offset) from kafka_committed_offset") == 13
    assert stream.sql("select count(*) from kafka_gap") == 0


def test_the_record_s_own_key_may_be_the_table_s(landing: Declare) -> None:
    stream = landing(mode="upsert", key=["kafka_key"], order_by="kafka_timestamp", schema="note STRING")
    stream.topic(partitions=2)
    send(stream, ("a", '{"note": "1"}'), (b"\xff\x00", '{"note": "2"}'), (None, '{"note": "3"}'), (None, None))
    stream.land()
    send(stream, ("a", '{"note": "later"}'), (b"\xff\x00", None), partition=1)
    stream.land()
    assert stream.rows(f"select kafka_key, note from {stream.name}") == [(b"a", "later")]
    assert stream.rows("select reason from kafka_quarantine order by kafka_offset") == [
        ("the row has no value in kafka_key, its key or order",),
        ("a tombstone without a key",),
    ]
    assert sum(int(str(row[4])) for row in counts(stream)) == 2


def test_a_text_key_is_taken_as_it_stands_or_as_json(landing: Declare) -> None:
    stream = landing(mode="upsert", key=["id"], schema="id STRING, note STRING")
    stream.topic()
    names = ["plain", 'quo\\"ted', "{brace", "7"]
    send(stream, *((None, f'{{"id": "{name}", "note": "a"}}') for name in names))
    send(stream, ("plain", None), ('"quo\\"ted"', None), ("{brace", None), ('{"id": "7"}', None))
    stream.land()
    assert standing(stream) == []
    assert counts(stream) == [(8, 0, 4, 0, 0, 4)]


def test_a_key_in_another_partition_fails_the_slice_until_a_value_orders(landing: Declare) -> None:
    stream = landing(mode="upsert", key=["id"])
    stream.topic(partitions=2)
    send(stream, ("1", '{"id": 1, "note": "a"}'))
    stream.land()
    send(stream, ("1", '{"id": 1, "note": "b"}'), partition=1)
    [request] = stream.tick().requests
    result = stream.run(request)
    assert not result.success
    assert "was met in partition 1" in failure_of(result)
    assert standing(stream) == [(1, "a")]


def test_several_columns_and_an_order_come_from_a_json_key(landing: Declare) -> None:
    stream = landing(
        mode="upsert",
        key=["region", "day"],
        order_by="changed",
        schema="region STRING, day DATE, changed TIMESTAMP, note STRING",
        max_bad_ratio=1.0,
    )
    stream.topic(partitions=2)

    def put(region: str, at: str | None, note: str) -> tuple[None, str]:
        changed = "null" if at is None else f'"2026-01-01T00:00:{at}Z"'
        return None, f'{{"region": "{region}", "day": "2026-02-03", "changed": {changed}, "note": "{note}"}}'

    def gone(region: str, at: str) -> tuple[str, None]:
        return f'{{"region": "{region}", "day": "2026-02-03", "changed": "2026-01-01T00:00:{at}Z"}}', None

    send(stream, put("a", "10", "p0"), put("b", "10", "p0"), put("c", "10", "p0"), put("d", None, "when?"))
    send(stream, put("a", "05", "earlier"), gone("b", "11"), gone("c", "09"), ("b", None), partition=1)
    stream.land()
    held = f"select region, note, kafka_partition from {stream.name} order by region"
    assert stream.rows(held) == [("a", "p0", 0), ("c", "p0", 0)]
    reasons = [row[0] for row in stream.rows("select reason from kafka_quarantine order by kafka_partition")]
    assert reasons[0] == "the row has no value in changed, its key or order"
    assert reasons[1].startswith("a tombstone whose key does not tell what it deletes: the key is not valid JSON")
    assert [sum(int(str(row[column])) for row in counts(stream)) for column in range(6)] == [8, 2, 3, 0, 2, 1]
    # Told again in the other order, it comes to the same.
    for key in reversed(stream.keys()):
        assert stream.replay(key).success
    assert stream.rows(held) == [("a", "p0", 0), ("c", "p0", 0)]


def test_a_transform_that_drops_the_key_is_refused_before_any_work(landing: Declare) -> None:
    stream = landing(mode="upsert", key=["nothing"], transform=lambda records: records)
    stream.topic()
    stream.produce_ids(0, 3)
    [request] = stream.tick().requests
    assert "the transform gives no nothing" in failure_of(stream.run(request))
    assert stream.sql("select count(*) from kafka_target") == 0


@pytest.mark.parametrize("order_by", ["offset", "kafka_timestamp"])
def test_keys_that_move_when_partitions_are_added_fail_the_slice_unless_time_orders(
    landing: Declare, order_by: str
) -> None:
    stream = landing(mode="upsert", key=["id"], order_by=order_by)
    stream.topic()

    def send_all(note: str, stamp: int) -> None:
        """Each with its key alone: which partition it goes to, the producer decides."""
        value = '{"id": %d, "note": "%s"}'
        given = [Record(key=b"%d" % n, value=(value % (n, note)).encode(), timestamp_ms=stamp + n) for n in range(30)]
        produce(stream.connection, stream.name, given)

    send_all("first", 1_700_000_000_000)
    stream.land()
    with admin(stream.connection) as asking:
        asking.answers(asking.client.create_partitions([NewPartitions(stream.name, 3)]))
    deadline = time.monotonic() + 120
    while describe_topic(stream.connection, stream.name).partitions < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    send_all("second", 1_700_000_001_000)
    runs = [stream.run(request) for request in stream.tick().requests]
    moved = stream.sql("select count(*) from kafka_slice s where s.partition > 0")
    assert moved, "some keys go to the new partitions"
    if order_by == "kafka_timestamp":
        assert all(run.success for run in runs)
        assert standing(stream) == [(n, "second") for n in range(30)]
        return
    said = " ".join(failure_of(run) for run in runs if not run.success)
    assert "KeyMoved" in said
    assert "was met in partition" in said
    assert "order_by: kafka_timestamp" in said
    assert stream.sql(f"select count(*) from {stream.name} where kafka_partition > 0") == 0
