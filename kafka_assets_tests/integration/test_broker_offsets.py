from __future__ import annotations

import itertools
import os
import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from kafka_assets.broker import offsets
from kafka_assets.broker.admin import admin
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import PartitionOffsets, TopicOffsets, observe, offsets_at
from kafka_assets.broker.produce import Record, produce, transaction
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.errors import BrokerUnavailable, TopicChanged, TopicMissing
from kafka_assets_tests.integration.settling import seen, settled

_numbers = itertools.count(1)
NOWHERE = Connection("127.0.0.1:1")


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker)


@pytest.fixture
def topic(connection: Connection) -> str:
    name = f"offsets-{os.getpid()}-{next(_numbers)}"
    create_topic(connection, name, partitions=2)
    return name


def records(count: int, *, partition: int = 0) -> list[Record]:
    return [Record(b"%d" % number, partition=partition) for number in range(count)]


def delete_records(connection: Connection, topic: str, before: int) -> None:
    with admin(connection) as asking:
        asking.answers(asking.client.delete_records([TopicPartition(topic, 0, before)]))


def test_an_empty_topic_begins_and_ends_at_zero(connection: Connection, topic: str) -> None:
    assert seen(connection, topic) == {0: PartitionOffsets(0, 0, 0), 1: PartitionOffsets(0, 0, 0)}


def test_no_topics_need_no_broker() -> None:
    assert observe(NOWHERE, []) == {}


def test_records_move_the_end_of_their_partition_only(connection: Connection, topic: str) -> None:
    produce(connection, topic, records(5, partition=1))
    assert seen(connection, topic) == {0: PartitionOffsets(0, 0, 0), 1: PartitionOffsets(0, 5, 5)}


def test_an_open_transaction_holds_the_last_stable_offset_back(connection: Connection, topic: str) -> None:
    produce(connection, topic, records(3))
    with transaction(connection, topic, transactional_id=topic) as writing:
        writing.produce(records(4))
        assert seen(connection, topic)[0] == PartitionOffsets(0, 3, 7)
        writing.commit()
    assert settled(connection, topic)[0] == PartitionOffsets(0, 8, 8)


def test_an_aborted_transaction_moves_all_ends_on(connection: Connection, topic: str) -> None:
    with transaction(connection, topic, transactional_id=topic) as writing:
        writing.produce(records(4))
        writing.abort()
    assert settled(connection, topic)[0] == PartitionOffsets(0, 5, 5)


def test_a_block_that_fails_leaves_no_open_transaction(connection: Connection, topic: str) -> None:
    with pytest.raises(KeyError), transaction(connection, topic, transactional_id=topic) as writing:
        writing.produce(records(4))
        raise KeyError
    assert settled(connection, topic)[0] == PartitionOffsets(0, 5, 5)


def test_deleted_records_move_the_log_start(connection: Connection, topic: str) -> None:
    produce(connection, topic, records(10))
    delete_records(connection, topic, 6)
    assert seen(connection, topic)[0] == PartitionOffsets(6, 10, 10)


def test_a_missing_topic_is_told_and_hides_no_other(connection: Connection, topic: str) -> None:
    found = observe(connection, ["no-such-topic", topic])
    assert isinstance(found["no-such-topic"], TopicMissing)
    assert isinstance(found[topic], TopicOffsets)


def test_a_topic_that_was_created_again_has_another_id(connection: Connection, topic: str) -> None:
    first = observe(connection, [topic])[topic]
    delete_topic(connection, topic)
    assert isinstance(observe(connection, [topic])[topic], TopicMissing)
    create_topic(connection, topic, partitions=1)
    second = observe(connection, [topic])[topic]
    assert isinstance(first, TopicOffsets)
    assert isinstance(second, TopicOffsets)
    assert first.topic_id != second.topic_id
    assert len(second.topic_id) == len(first.topic_id) == 22


def test_a_topic_that_is_created_again_while_being_asked_gives_no_offsets(
    connection: Connection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = offsets.ask
    recreated = False

    def recreate_first(*arguments: Any) -> Any:
        nonlocal recreated
        if not recreated:
            recreated = True
            delete_topic(connection, topic)
            create_topic(connection, topic, partitions=2)
        return real(*arguments)

    monkeypatch.setattr(offsets, "ask", recreate_first)
    assert isinstance(observe(connection, [topic])[topic], TopicChanged)


def test_a_topic_that_is_deleted_while_being_asked_gives_no_offsets(
    connection: Connection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = offsets.ask
    other = f"{topic}-other"
    create_topic(connection, other, partitions=1)

    def delete_first(*arguments: Any) -> Any:
        if isinstance(observe_description(connection, topic), offsets.TopicDescription):
            delete_topic(connection, topic)
        return real(*arguments)

    monkeypatch.setattr(offsets, "ask", delete_first)
    found = observe(connection, [topic, other])
    assert isinstance(found[topic], TopicMissing)
    assert isinstance(found[other], TopicOffsets)


def observe_description(connection: Connection, topic: str) -> Any:
    with admin(connection) as asking:
        return offsets.describe(asking, [topic])[topic]


def test_many_topics_are_asked_in_five_round_trips(
    connection: Connection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [topic, *(f"{topic}-{number}" for number in range(5))]
    for name in names[1:]:
        create_topic(connection, name, partitions=4)
    asked: list[str] = []
    for name in ("ask", "describe"):
        real = getattr(offsets, name)

        def counted(*arguments: Any, name: str = name, real: Any = real) -> Any:
            asked.append(name)
            return real(*arguments)

        monkeypatch.setattr(offsets, name, counted)
    assert all(isinstance(found, TopicOffsets) for found in observe(connection, names).values())
    assert asked == ["describe", "ask", "ask", "ask", "describe"]


def test_a_broker_that_is_down_is_told_quickly_and_with_the_cure(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable) as caught:
        observe(NOWHERE, ["orders"], timeout=30)
    assert time.monotonic() - began < 30, "its patience"
    assert "127.0.0.1:1" in caught.value.what
    assert "Connection refused" in caught.value.why
    assert "kafka-assets up" in caught.value.cure
    assert capfd.readouterr() == ("", "")


def test_one_dead_address_among_the_bootstrap_servers_is_no_failure(broker: str, topic: str) -> None:
    assert isinstance(observe(Connection(f"127.0.0.1:1,{broker}"), [topic])[topic], TopicOffsets)


def test_a_timestamp_gives_the_first_offset_at_or_after_it(connection: Connection, topic: str) -> None:
    now = int(time.time() * 1000)
    produce(connection, topic, [Record(b"", partition=0, timestamp_ms=now + 1000 * number) for number in range(5)])
    assert offsets_at(connection, topic, now + 2000) == {0: 2, 1: 0}
    assert offsets_at(connection, topic, now + 2001) == {0: 3, 1: 0}
    assert offsets_at(connection, topic, 0) == {0: 0, 1: 0}


def test_a_timestamp_after_the_last_record_gives_the_end(connection: Connection, topic: str) -> None:
    produce(connection, topic, records(5))
    assert offsets_at(connection, topic, int(time.time() * 1000) + 100_000) == {0: 5, 1: 0}


def test_a_timestamp_in_a_missing_topic_is_an_error(connection: Connection) -> None:
    with pytest.raises(TopicMissing):
        offsets_at(connection, "no-such-topic", 0)
