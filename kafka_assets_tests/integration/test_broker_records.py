"""Topics are made, records go in and come out, and what fails is said."""

from __future__ import annotations

import itertools
import os
import time

import pytest
from confluent_kafka import TopicPartition

from kafka_assets.broker.admin import admin
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.broker.produce import Record, produce, transaction
from kafka_assets.broker.read import StoredRecord, read_range
from kafka_assets.broker.topics import create_topic, delete_topic, describe_topic, topic_names
from kafka_assets.errors import BrokerRefused, BrokerUnavailable, OffsetsExpired, SettingsError, TopicMissing

_numbers = itertools.count(1)


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker)


@pytest.fixture
def topic(connection: Connection) -> str:
    name = f"records-{os.getpid()}-{next(_numbers)}"
    create_topic(connection, name, partitions=2)
    return name


def values(connection: Connection, topic: str, start: int, end: int) -> list[bytes | None]:
    return [record.value for record in read_range(connection, topic, 0, start, end)]


def numbered(first: int, end: int) -> list[Record]:
    return [Record(b"%d" % number, partition=0) for number in range(first, end)]


def test_a_topic_is_created_once_and_found_the_second_time(connection: Connection) -> None:
    name = f"topics-{os.getpid()}"
    first = create_topic(connection, name, partitions=3)
    second = create_topic(connection, name, partitions=3)
    assert (first.existed, second.existed) == (False, True)
    assert first == second == describe_topic(connection, name)
    assert (first.partitions, first.replication_factor) == (3, 1)
    assert name in topic_names(connection)


def test_a_topic_with_another_number_of_partitions_is_refused(connection: Connection, topic: str) -> None:
    with pytest.raises(BrokerRefused, match="exists with 2 partitions, not 3"):
        create_topic(connection, topic, partitions=3)


def test_what_the_broker_does_not_accept_is_said_in_its_words(connection: Connection) -> None:
    with pytest.raises(BrokerRefused, match=r"no\.such\.option"):
        create_topic(connection, "refused", partitions=1, config={"no.such.option": "1"})
    with pytest.raises(BrokerRefused, match=r"(?i)replication factor"):
        create_topic(connection, "refused", partitions=1, replication_factor=3)
    with pytest.raises(BrokerRefused, match="Topic name is invalid"):
        create_topic(connection, "not a name", partitions=1)


def test_a_deleted_topic_is_gone_when_the_call_returns(connection: Connection, topic: str) -> None:
    delete_topic(connection, topic)
    assert topic not in topic_names(connection)
    with pytest.raises(TopicMissing):
        describe_topic(connection, topic)
    with pytest.raises(TopicMissing):
        delete_topic(connection, topic)


def test_a_record_comes_back_with_all_its_parts(connection: Connection, topic: str) -> None:
    headers = (("trace", b"\x00\xff"), ("trace", b"again"), ("empty", None))
    sent = Record(b"value", key=b"key", partition=1, timestamp_ms=1_700_000_000_123, headers=headers)
    assert produce(connection, topic, [sent, Record(None, key=b"key", partition=1)]) == 2
    first, tombstone = read_range(connection, topic, 1, 0, 2)
    assert first == StoredRecord(topic, 1, 0, b"key", b"value", 1_700_000_000_123, headers)
    assert (tombstone.offset, tombstone.value, tombstone.headers) == (1, None, ())


def test_a_key_finds_the_partition_that_the_java_client_gives_it(connection: Connection, topic: str) -> None:
    # The hashes that Apache Kafka's own tests give for its murmur2.
    java = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    produce(connection, topic, [Record(b"", key=key) for key in java])
    found = observe(connection, [topic])[topic]
    assert isinstance(found, TopicOffsets)
    placed = {
        record.key: partition
        for partition, ends in found.partitions.items()
        for record in read_range(connection, topic, partition, 0, ends.last_stable)
    }
    assert placed == {key: (hashed & 0x7FFFFFFF) % 2 for key, hashed in java.items()}


def test_more_records_than_the_queue_holds_are_all_delivered(broker: str, topic: str) -> None:
    small = Connection(broker, {"queue.buffering.max.messages": "1000"})
    assert produce(small, topic, numbered(0, 20_000)) == 20_000
    assert values(small, topic, 19_990, 20_000) == [b"%d" % number for number in range(19_990, 20_000)]


def test_an_aborted_transaction_and_the_markers_are_holes(connection: Connection, topic: str) -> None:
    produce(connection, topic, numbered(0, 3))  # 0..2
    for number, end in enumerate(("abort", "commit", "abort")):  # 3..6, 7..10, 11..14
        with transaction(connection, topic, transactional_id=f"{topic}-{number}") as writing:
            writing.produce(numbered(10 * number, 10 * number + 3))
            getattr(writing, end)()
    assert values(connection, topic, 0, 15) == [b"0", b"1", b"2", b"10", b"11", b"12"]
    assert values(connection, topic, 3, 7) == []
    assert values(connection, topic, 5, 9) == [b"10", b"11"]
    assert values(connection, topic, 11, 15) == []
    assert values(connection, topic, 7, 7) == []


def test_reading_into_an_open_transaction_raises_and_is_not_cut_short(connection: Connection, topic: str) -> None:
    produce(connection, topic, numbered(0, 3))
    with transaction(connection, topic, transactional_id=topic) as writing:
        writing.produce(numbered(3, 6))
        assert values(connection, topic, 0, 3) == [b"0", b"1", b"2"]
        with pytest.raises(BrokerUnavailable, match="could be read to 3, not to 4"):
            list(read_range(connection, topic, 0, 0, 4, timeout=1))


@pytest.mark.parametrize("start", [0, 100])
def test_an_offset_that_is_not_there_raises_and_is_never_jumped(connection: Connection, topic: str, start: int) -> None:
    produce(connection, topic, numbered(0, 10))
    with admin(connection) as asking:
        asking.answers(asking.client.delete_records([TopicPartition(topic, 0, 6)]))
    with pytest.raises(OffsetsExpired, match=f"offset {start} of partition 0"):
        list(read_range(connection, topic, 0, start, 200))
    assert values(connection, topic, 6, 8) == [b"6", b"7"]


def test_a_missing_topic_is_told_at_once(connection: Connection) -> None:
    began = time.monotonic()
    with pytest.raises(TopicMissing):
        produce(connection, "no-such-topic", numbered(0, 1))
    with pytest.raises(TopicMissing):
        list(read_range(connection, "no-such-topic", 0, 0, 1))
    assert time.monotonic() - began < 30


def test_a_record_that_the_broker_refuses_raises_with_the_counts(broker: str, topic: str) -> None:
    large = Connection(broker, {"message.max.bytes": "4000000"})
    with pytest.raises(BrokerRefused, match=r"1 records for the topic .* failed, 2 were"):
        produce(large, topic, [*numbered(0, 2), Record(b"x" * 3_000_000, partition=0)])


def test_a_producer_whose_transactional_id_another_took_is_refused(connection: Connection, topic: str) -> None:
    with (
        pytest.raises(BrokerRefused, match="fenced"),
        transaction(connection, topic, transactional_id=topic) as zombie,
    ):
        zombie.produce(numbered(0, 1))
        with transaction(connection, topic, transactional_id=topic) as newer:
            newer.produce(numbered(1, 2))
            newer.commit()
        zombie.produce(numbered(2, 3))


def test_a_transaction_ends_once(connection: Connection, topic: str) -> None:
    with (
        pytest.raises(BrokerRefused, match="has ended before"),
        transaction(connection, topic, transactional_id=topic) as writing,
    ):
        writing.produce(numbered(0, 1))
        writing.commit()
        writing.commit()


def test_a_partition_that_is_not_there_raises(connection: Connection, topic: str) -> None:
    with pytest.raises(TopicMissing):
        produce(connection, topic, [Record(b"", partition=7)], timeout=10)


def test_a_property_that_librdkafka_does_not_know_is_a_settings_error(broker: str) -> None:
    with pytest.raises(SettingsError, match=r"security\.protocl"):
        topic_names(Connection(broker, {"security.protocl": "SSL"}))
