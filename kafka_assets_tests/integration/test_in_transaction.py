"""Consume, transform, produce: each output once for readers of committed records, whoever dies or is fenced."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer as Client

from kafka_assets import Consumer, InTransaction
from kafka_assets.broker import Connection, Producer
from kafka_assets.broker.connection import consumer_config
from kafka_assets.broker.membership import Membership
from kafka_assets.errors import (
    CommitFailed,
    DeliveryFailed,
    KafkaAssetsError,
    ProducerFinished,
    TransactionMustAbort,
    Undelivered,
    UsageError,
)
from kafka_assets_tests.integration.consuming import QUICK, committed, expected, new_topic, stored


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker, QUICK)


def outputs(connection: Connection, topic: str) -> list[tuple[int, int]]:
    return sorted((int((record.key or b"").decode()), int(record.value or b"")) for record in stored(connection, topic))


def copy(producer: Producer, out: str, record: Any) -> None:
    producer.send(out, record.value, key=str(record.partition), partition=0)


@pytest.mark.parametrize("each", ["record", "batch", "partition"])
def test_outputs_and_offsets_commit_together(connection: Connection, each: Any) -> None:
    topic, out = new_topic(connection, records=10), new_topic(connection, partitions=1)
    with Producer(connection, transactional_id=out) as producer:
        with Consumer(connection, topic, group=topic, commit=InTransaction(producer), each=each) as consumer:
            for count, record in enumerate(consumer.records(), start=1):
                copy(producer, out, record)
                if count == 20:
                    consumer.stop()
        assert committed(connection, topic, topic) == {0: 10, 1: 10}
    assert outputs(connection, out) == expected(10)


def test_what_raised_is_aborted_with_its_unit(connection: Connection) -> None:
    topic, out = new_topic(connection, partitions=1, records=10), new_topic(connection, partitions=1)
    with (
        Producer(connection, transactional_id=out) as producer,
        Consumer(connection, topic, group=topic, commit=InTransaction(producer)) as consumer,
    ):
        with pytest.raises(ValueError, match="at 6"):
            for record in consumer.records():
                copy(producer, out, record)
                if record.offset == 6:
                    raise ValueError("at 6")
        assert committed(connection, topic, topic).get(0, 0) == 0
        for record in consumer.records():
            copy(producer, out, record)
            if record.offset == 9:
                consumer.stop()
    assert outputs(connection, out) == expected(10, partitions=1)
    assert committed(connection, topic, topic) == {0: 10}


def test_an_abort_that_had_no_answer_is_asked_for_again(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, out = new_topic(connection, partitions=1, records=10), new_topic(connection, partitions=1)
    with (
        Producer(connection, transactional_id=out) as producer,
        Consumer(connection, topic, group=topic, commit=InTransaction(producer)) as consumer,
    ):
        with pytest.raises(ValueError, match="at 6"):
            for record in consumer.records():
                copy(producer, out, record)
                if record.offset == 6:
                    raise ValueError("at 6")
        abort, failed = producer.abort, list[int]()

        def fails_once() -> None:
            if not failed:
                failed.append(1)
                raise DeliveryFailed("the transaction could not abort in time")
            abort()

        monkeypatch.setattr(producer, "abort", fails_once)
        with pytest.raises(DeliveryFailed):
            next(consumer.records())
        for record in consumer.records():
            copy(producer, out, record)
            if record.offset == 9:
                consumer.stop()
    assert outputs(connection, out) == expected(10, partitions=1)
    assert committed(connection, topic, topic) == {0: 10}


def test_who_has_the_same_transactional_id_is_fenced(connection: Connection) -> None:
    topic, out = new_topic(connection, partitions=1, records=10), new_topic(connection, partitions=1)
    old = Producer(connection, transactional_id=out)
    zombie = Consumer(connection, topic, commit=InTransaction(old), group=topic)
    records = zombie.records()
    copy(old, out, next(records))
    with (
        Producer(connection, transactional_id=out) as new,
        Consumer(connection, topic, group=f"{topic}-2", commit=InTransaction(new)) as consumer,
    ):
        for record in consumer.records():
            copy(new, out, record)
            if record.offset == 9:
                consumer.stop()
    with pytest.raises((ProducerFinished, TransactionMustAbort)):
        for record in records:
            copy(old, out, record)
    zombie.close()
    with suppress(Undelivered):  # what it had not sent yet is never silence
        old.close()
    assert outputs(connection, out) == expected(10, partitions=1)
    assert committed(connection, topic, topic).get(0, 0) == 0


def test_who_was_too_slow_for_the_group_is_fenced_by_its_generation(connection: Connection) -> None:
    """Another transactional id, as KIP-447 has it: the group's metadata fence."""
    topic, out = new_topic(connection, partitions=1, records=5), new_topic(connection, partitions=1)
    with (
        Producer(connection, transactional_id=f"{out}-1") as old,
        Producer(connection, transactional_id=f"{out}-2") as new,
    ):
        slow = Consumer(connection, topic, group=Membership(topic, max_poll_interval=6), commit=InTransaction(old))
        batches = slow.batches()
        for record in next(batches):
            copy(old, out, record)
        time.sleep(7)
        with Consumer(connection, topic, group=topic, commit=InTransaction(new)) as consumer:
            for record in consumer.records():
                copy(new, out, record)
                if record.offset == 4:
                    consumer.done()
                    break
            with pytest.raises((TransactionMustAbort, CommitFailed)):
                next(batches)
        slow.close()
    assert outputs(connection, out) == expected(5, partitions=1)
    assert committed(connection, topic, topic) == {0: 5}


def test_members_come_and_go_and_each_output_is_there_once(connection: Connection) -> None:
    topic, out = new_topic(connection, partitions=4, records=60), new_topic(connection, partitions=1)
    stop = threading.Event()
    failed: list[BaseException] = []

    def consume(name: str) -> None:
        with (
            Producer(connection, transactional_id=name) as producer,
            Consumer(
                connection, topic, group=topic, commit=InTransaction(producer), stop=stop, max_records=30
            ) as consumer,
        ):
            while not stop.is_set():
                try:
                    for record in consumer.records():
                        copy(producer, out, record)
                        time.sleep(0.01)
                except (TransactionMustAbort, CommitFailed) as error:
                    failed.append(error)

    threads = [threading.Thread(target=consume, args=(f"{out}-{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
        time.sleep(1)
    deadline = time.monotonic() + 120
    while len(outputs(connection, out)) < 240:
        time.sleep(0.2)
        assert time.monotonic() < deadline, failed
    stop.set()
    for thread in threads:
        thread.join()
    assert outputs(connection, out) == expected(60, partitions=4)
    assert committed(connection, topic, topic) == dict.fromkeys(range(4), 60)


def test_a_producer_without_transactions_is_refused(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1)
    with Producer(connection) as producer, pytest.raises(UsageError, match="no transactions"):
        InTransaction(producer)
    with Producer(connection, transactional_id=topic) as producer, pytest.raises(UsageError, match="needs a group"):
        Consumer(connection, topic, commit=InTransaction(producer))


def test_offsets_without_a_transaction_are_refused(connection: Connection) -> None:
    client = Client({**consumer_config(connection)})
    with Producer(connection, transactional_id="alone") as producer, pytest.raises(KafkaAssetsError, match="no open"):
        producer.send_offsets({("orders", 0): 1}, client)
    client.close()
