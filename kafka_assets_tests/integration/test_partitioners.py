"""Where records land: as Kafka's own Java producer puts them, and by each of the other ways."""

from __future__ import annotations

import os
import random
from collections import Counter
from itertools import count, pairwise

import pytest

from kafka_assets.broker import Connection, Producer
from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.broker.partitioners import murmur2, partition_of_key
from kafka_assets.broker.read import StoredRecord, read_range
from kafka_assets.broker.topics import create_topic
from kafka_assets.errors import RecordRefused, UsageError
from kafka_assets_tests.integration.java_producer import produce_by_java

KEYS = 10_000
PARTITIONS = 7
_numbers = count(1)


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker)


def fresh_topic(connection: Connection, *, partitions: int = PARTITIONS) -> str:
    name = f"placed-{os.getpid()}-{next(_numbers)}"
    create_topic(connection, name, partitions=partitions)
    return name


def stored(connection: Connection, topic: str) -> list[StoredRecord]:
    found = observe(connection, [topic])[topic]
    assert isinstance(found, TopicOffsets)
    return [
        record
        for partition, ends in found.partitions.items()
        for record in read_range(connection, topic, partition, ends.log_start, ends.last_stable)
    ]


def drawn_keys() -> list[str]:
    """Keys of all lengths modulo four, the empty one, and text that is not ASCII, each once."""
    draw = random.Random(11)
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789-_/äöü漢字🙂"
    keys = {"".join(draw.choices(alphabet, k=draw.randrange(25))) for _ in range(KEYS + 1000)}
    return ["", *draw.sample(sorted(keys - {""}), KEYS - 1)]


def test_ten_thousand_keys_land_where_kafkas_own_java_producer_puts_them(connection: Connection) -> None:
    keys = drawn_keys()
    assert len(keys) == KEYS
    by_java, by_us, in_order = (fresh_topic(connection) for _ in range(3))
    produce_by_java(connection.bootstrap_servers, by_java, keys)
    with Producer(connection) as producer:
        for key in keys:
            producer.send(by_us, key, key=key)
    java = {record.value: record.partition for record in stored(connection, by_java)}
    ours = {record.value: record.partition for record in stored(connection, by_us)}
    assert len(java) == KEYS
    assert ours == java
    assert {key.encode(): partition_of_key(key.encode(), PARTITIONS) for key in keys} == java
    assert len(set(java.values())) == PARTITIONS
    # With stop_on_first_error the partition is known before the record goes: the same one.
    with Producer(connection, stop_on_first_error=True) as producer:
        for key in keys[:200]:
            producer.send(in_order, key, key=key)
    assert all(java[record.value] == record.partition for record in stored(connection, in_order))


def test_murmur2_gives_the_hashes_of_kafkas_own_tests() -> None:
    java = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in java} == {key: hashed & 0xFFFFFFFF for key, hashed in java.items()}


def test_records_without_a_key_fill_all_partitions_and_stay_with_one_for_a_while(connection: Connection) -> None:
    topic = fresh_topic(connection, partitions=3)
    with Producer(connection) as producer:
        for number in range(60_000):
            producer.send(topic, b"%0100d" % number)
    placed = {int(record.value or b""): record.partition for record in stored(connection, topic)}
    changes = sum(placed[number] != placed[number + 1] for number in range(59_999))
    assert len(set(placed.values())) == 3
    assert changes < 6_000  # each in its own turn at random would be 40,000


def placed_by(connection: Connection, partitioner: str, *, records: int = 3_000) -> list[int]:
    topic = fresh_topic(connection, partitions=3)
    with Producer(connection, partitioner=partitioner) as producer:
        for number in range(records):
            producer.send(topic, b"%0100d" % number, key=b"always the same")
    placed = {int(record.value or b""): record.partition for record in stored(connection, topic)}
    return [placed[number] for number in range(records)]


def test_round_robin_gives_each_partition_its_turn_whatever_the_key(connection: Connection) -> None:
    assert placed_by(connection, "round-robin", records=300) == [0, 1, 2] * 100


def test_random_gives_each_partition_about_as_much(connection: Connection) -> None:
    placed = placed_by(connection, "random")
    assert all(800 < number < 1_200 for number in Counter(placed).values())
    assert sum(one != other for one, other in pairwise(placed)) > 1_500


def test_sticky_fills_a_batch_for_one_partition_and_then_takes_another(connection: Connection) -> None:
    placed = placed_by(connection, "sticky")
    runs = [1]
    for one, other in pairwise(placed):
        if one == other:
            runs[-1] += 1
        else:
            runs.append(1)
    # 16 KiB in records of 115 bytes, key and value; the last run is cut short.
    assert set(runs[:-1]) == {143}


def test_explicit_takes_what_names_its_partition_and_nothing_else(connection: Connection) -> None:
    topic = fresh_topic(connection, partitions=3)
    with Producer(connection, partitioner="explicit") as producer:
        producer.send(topic, b"here", key=b"k", partition=2)
        with pytest.raises(RecordRefused, match="names no partition"):
            producer.send(topic, b"where?", key=b"k")
    assert [(record.partition, record.value) for record in stored(connection, topic)] == [(2, b"here")]


def test_a_function_of_ones_own_decides_and_may_leave_it_to_the_hash(connection: Connection) -> None:
    topic = fresh_topic(connection, partitions=3)

    def vip_first(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int | None:
        return 0 if key == b"vip" else None if key == b"other" else partitions

    with Producer(connection, partitioner=vip_first) as producer:
        producer.send(topic, "v", key="vip")
        producer.send(topic, "o", key="other")
        with pytest.raises(RecordRefused, match="no partition 3"):
            producer.send(topic, "x", key="elsewhere")
    placed = {record.key: record.partition for record in stored(connection, topic)}
    assert placed == {b"vip": 0, b"other": partition_of_key(b"other", 3)}


def test_a_partition_that_was_added_is_used_when_it_is_named(connection: Connection) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic = fresh_topic(connection, partitions=1)
    with Producer(connection) as producer:
        producer.deliver(topic, "before")
        with pytest.raises(RecordRefused, match="it has 1, numbered from 0"):
            producer.deliver(topic, "too early", partition=1)
        admin = AdminClient({"bootstrap.servers": connection.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
        while True:  # the broker that is asked may not know for a moment
            try:
                assert producer.deliver(topic, "after", partition=1).partition == 1
                break
            except RecordRefused:
                continue


def test_a_partitioner_that_does_not_exist_is_said_with_those_that_do(connection: Connection) -> None:
    with pytest.raises(UsageError, match="round-robin"):
        Producer(connection, partitioner="robin")
