"""The producer on a real broker: what is acknowledged is there, and what is not is told of."""

from __future__ import annotations

import gc
import json
import logging
import os
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_assets import devstack
from kafka_assets.broker import Connection, Delivery, Failure, Interceptor, Outgoing, Producer
from kafka_assets.broker.read import StoredRecord, read_range
from kafka_assets.broker.topics import create_topic
from kafka_assets.errors import (
    DeliveryFailed,
    ProducerFinished,
    QueueFull,
    RecordRefused,
    SettingsError,
    TopicMissing,
    TransactionMustAbort,
    Undelivered,
    UsageError,
)
from kafka_assets_tests import freezing
from kafka_assets_tests.integration.settling import settled

TOO_LARGE = b"x" * 2_000_000
LARGE = {"message.max.bytes": "4000000"}
"""The client lets it go, so that it is the broker that refuses."""
_numbers = count(1)

Frozen = Callable[[], Any]


@pytest.fixture
def broker(request: pytest.FixtureRequest, broker: str) -> str:
    """The run's; for a test that freezes it, one that nobody else uses meanwhile."""
    if "frozen" not in request.fixturenames:
        return broker
    servers = devstack.up(request.getfixturevalue("breakable"), ["kafka"]).bootstrap_servers
    assert servers
    return servers


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker)


@pytest.fixture
def large(broker: str) -> Connection:
    return Connection(broker, LARGE)


@pytest.fixture
def topic(connection: Connection) -> str:
    name = f"produced-{os.getpid()}-{next(_numbers)}"
    create_topic(connection, name, partitions=2)
    return name


@contextmanager
def frozen_at_the_end(frozen: Frozen) -> Generator[Callable[[], None]]:
    """Frozen from a moment within the block on."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(frozen())


@pytest.fixture
def frozen(breakable: Path, broker: str) -> Frozen:
    """A context in which the broker hears nobody: its process is stopped, and goes on afterwards."""
    [pid] = [one.pid for one in devstack.status(breakable) if one.name == "kafka-1"]
    return lambda: freezing.frozen(pid)


def stored(connection: Connection, topic: str, partition: int = 0) -> list[StoredRecord]:
    """What a committed reader sees; a transaction that is left open is waited for in vain for five seconds."""
    ends = settled(connection, topic, patience=5)[partition]
    return list(read_range(connection, topic, partition, ends.log_start, ends.last_stable))


def values(connection: Connection, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in stored(connection, topic, partition)]


def numbers(connection: Connection, topic: str, partition: int = 0) -> list[int]:
    return [int(value or b"-1") for value in values(connection, topic, partition)]


# ---- fire and forget -------------------------------------------------------------------------------


def test_what_was_sent_and_forgotten_is_there_after_close(connection: Connection, topic: str) -> None:
    with Producer(connection) as producer:
        for number in range(20_000):
            producer.send(topic, b"%d" % number, partition=0)
    assert numbers(connection, topic) == list(range(20_000))
    assert (producer.delivered, producer.failed) == (20_000, 0)
    assert producer.delivered_per_partition == {(topic, 0): 20_000}


def test_a_record_has_all_its_parts(connection: Connection, topic: str) -> None:
    at = datetime(2024, 5, 1, 12, 30, 0, 123_000, tzinfo=UTC)
    with Producer(connection, key="string", value="json") as producer:
        headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x00\xff"), ("trace", "again"), ("none", None)]
        producer.send(topic, {"id": 7, "name": "Zoë"}, key="k7", headers=headers, timestamp=at, partition=1)
        producer.send(topic, None, key="k7", headers={"one": "1"}, timestamp=1_700_000_000_123, partition=1)
    first, tombstone = stored(connection, topic, 1)
    assert first.value == '{"id":7,"name":"Zoë"}'.encode()
    assert first.key == b"k7"
    assert first.headers == (("trace", b"\x00\xff"), ("trace", b"again"), ("none", None))
    assert first.timestamp_ms == round(at.timestamp() * 1000)
    assert (tombstone.value, tombstone.headers, tombstone.timestamp_ms) == (None, (("one", b"1"),), 1_700_000_000_123)


def test_a_failure_that_nobody_was_told_of_is_raised_with_its_record(large: Connection, topic: str) -> None:
    producer = Producer(large)
    producer.send(topic, b"good", partition=0)
    producer.flush()
    producer.send(topic, TOO_LARGE, key=b"large", partition=0)
    with pytest.raises(Undelivered, match="1 records were not delivered") as raised:
        producer.flush()
    [failure] = raised.value.failures
    assert failure.record == Outgoing(topic, TOO_LARGE, b"large", (), None, 0)
    assert isinstance(failure.error, RecordRefused)
    assert not failure.in_doubt
    producer.send(topic, b"and on", partition=0)
    producer.close()  # the failure was told; nothing more is to be said
    assert values(large, topic) == [b"good", b"and on"]


@pytest.mark.parametrize(
    ("options", "bad", "match"),
    [
        ({"value": "json"}, {"amount": float("nan")}, "not JSON compliant"),
        ({"value": "json"}, {"when": object()}, "not JSON serializable"),
        ({"value": "string"}, b"bytes", "takes str"),
        ({"value": "bytes"}, "text", "takes bytes"),
        ({"value": lambda value: value.nonsense()}, "text", None),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(
    connection: Connection, topic: str, options: dict[str, Any], bad: Any, match: str | None
) -> None:
    with Producer(connection, **options) as producer:
        with pytest.raises(RecordRefused if match else AttributeError, match=match):
            producer.send(topic, bad)
        assert producer.flush() == 0
    assert values(connection, topic) + values(connection, topic, 1) == []


def test_a_timestamp_that_kafka_would_take_for_now_is_refused(connection: Connection, topic: str) -> None:
    with Producer(connection) as producer, pytest.raises(RecordRefused, match="takes 0 for now"):
        producer.send(topic, b"", timestamp=datetime(1970, 1, 1, tzinfo=UTC))


def test_a_missing_topic_is_told_at_once_and_not_after_the_delivery_timeout(connection: Connection) -> None:
    with Producer(connection) as producer:
        for name in ("no-such-topic", "", "a b", "\ud800", "a\0b", "x" * 250):
            with pytest.raises(TopicMissing):
                producer.send(name, b"")


def test_a_closed_producer_takes_nothing_and_closes_once(connection: Connection, topic: str) -> None:
    producer = Producer(connection)
    producer.close()
    producer.close()
    with pytest.raises(ProducerFinished, match="closed"):
        producer.send(topic, b"")


def test_the_defaults_lose_nothing_and_the_users_properties_come_through(broker: str) -> None:
    from kafka_assets.broker.producer_config import configured

    config, patience = configured(Connection(broker), compression="zstd", transactional_id=None, timeout=None)
    assert (config["acks"], config["enable.idempotence"], config["compression.type"]) == ("all", "true", "zstd")
    assert (config["delivery.timeout.ms"], patience) == ("120000", 120.0)
    theirs = Connection(broker, {"message.timeout.ms": "7000", "compression.type": "gzip"})
    config, patience = configured(theirs, compression=None, transactional_id="t", timeout=None)
    assert (config["delivery.timeout.ms"], patience, config["compression.type"]) == ("7000", 7.0, "gzip")
    with pytest.raises(SettingsError, match="acks"):
        Producer(Connection(broker, {"acks": "1"}))  # idempotence is not given up by the way


def test_without_acks_a_delivery_has_no_offset(broker: str, topic: str) -> None:
    careless = Connection(broker, {"acks": "0", "enable.idempotence": "false"})
    with Producer(careless) as producer:
        assert producer.deliver(topic, b"gone", partition=0).offset is None


# ---- sync and callback -----------------------------------------------------------------------------


def test_a_delivered_record_says_where_it_is(connection: Connection, topic: str) -> None:
    with Producer(connection) as producer:
        first = producer.deliver(topic, b"a", key=b"k", partition=1, timestamp=1_700_000_000_123)
        second = producer.deliver(topic, b"b", key=b"k", partition=1)
    assert first == Delivery(
        Outgoing(topic, b"a", b"k", (), 1_700_000_000_123, 1), partition=1, offset=0, timestamp_ms=1_700_000_000_123
    )
    assert second.offset == 1
    assert values(connection, topic, 1) == [b"a", b"b"]


def test_a_record_that_is_refused_raises_its_error_where_it_was_sent(large: Connection, topic: str) -> None:
    with Producer(large) as producer:
        with pytest.raises(RecordRefused, match="MSG_SIZE_TOO_LARGE"):
            producer.deliver(topic, TOO_LARGE)
        assert producer.deliver(topic, b"good", partition=0).offset == 0


def test_each_callback_is_called_once_with_its_own_record(large: Connection, topic: str) -> None:
    heard: dict[str, list[Delivery | Failure]] = {}
    with Producer(large) as producer:
        for name, value in (("good", b"1"), ("bad", TOO_LARGE), ("better", b"2")):
            producer.send(topic, value, partition=0, on_delivery=heard.setdefault(name, []).append)
            producer.flush()
    assert {name: [type(one) for one in outcomes] for name, outcomes in heard.items()} == {
        "good": [Delivery],
        "bad": [Failure],
        "better": [Delivery],
    }
    assert [one.offset for name in ("good", "better") for one in heard[name] if isinstance(one, Delivery)] == [0, 1]


def test_what_a_callback_raises_reaches_the_caller_and_no_record_is_forgotten(
    connection: Connection, topic: str
) -> None:
    heard: list[Delivery | Failure] = []

    def broken(outcome: Delivery | Failure) -> None:
        raise ZeroDivisionError("the callback's own")

    producer = Producer(connection)
    producer.send(topic, b"0", partition=0, on_delivery=broken)
    producer.send(topic, b"1", partition=0, on_delivery=heard.append)
    with pytest.raises(ZeroDivisionError, match="the callback's own"):
        producer.flush()
    producer.close()
    assert len(heard) == 1
    assert producer.delivered == 2
    assert numbers(connection, topic) == [0, 1]


# ---- listeners and interceptors --------------------------------------------------------------------


class Stamp(Interceptor):
    """Appends its name to the value, and writes down what it is told."""

    def __init__(self, name: str, diary: list[str]) -> None:
        self.name = name
        self.diary = diary

    def on_send(self, record: Outgoing) -> Outgoing:
        self.diary.append(f"{self.name} send")
        if record.value == "forbidden":
            raise PermissionError("not this one")
        return Outgoing(record.topic, f"{record.value}-{self.name}", record.key, record.headers, partition=0)

    def on_acknowledgement(self, outcome: Delivery | Failure) -> None:
        self.diary.append(f"{self.name} {type(outcome).__name__} {outcome.record.value[:7]}")

    def close(self) -> None:
        self.diary.append(f"{self.name} close")


def test_interceptors_are_a_chain_in_their_order_and_close_once(connection: Connection, topic: str) -> None:
    diary: list[str] = []
    with Producer(connection, interceptors=[Stamp("a", diary), Stamp("b", diary)]) as producer:
        producer.send(topic, "v")
    assert values(connection, topic) == [b"v-a-b"]
    assert diary == ["a send", "b send", "a Delivery v-a-b", "b Delivery v-a-b", "a close", "b close"]


def test_an_interceptor_that_raises_stops_its_record_only(connection: Connection, topic: str) -> None:
    diary: list[str] = []
    with Producer(connection, interceptors=[Stamp("a", diary)]) as producer:
        with pytest.raises(PermissionError, match="not this one"):
            producer.send(topic, "forbidden")
        producer.send(topic, "v")
    assert values(connection, topic) == [b"v-a"]


def test_an_interceptor_that_breaks_on_the_answer_keeps_no_other_from_hearing(
    connection: Connection, topic: str
) -> None:
    diary: list[str] = []

    class Broken(Interceptor):
        def on_acknowledgement(self, outcome: Delivery | Failure) -> None:
            raise ZeroDivisionError

    producer = Producer(connection, interceptors=[Broken(), Stamp("b", diary)])
    producer.send(topic, "v")
    with pytest.raises(ZeroDivisionError):
        producer.flush()
    producer.close()
    assert diary == ["b send", "b Delivery v-b", "b close"]


def test_the_listeners_hear_of_every_record(large: Connection, topic: str) -> None:
    delivered: list[Delivery] = []
    failed: list[Failure] = []
    with Producer(large, on_success=delivered.append, on_error=failed.append) as producer:
        for value in (b"1", TOO_LARGE, b"2"):
            producer.send(topic, value, partition=0)
            producer.flush()  # raises nothing: the listener was told
    assert [one.record.value for one in delivered] == [b"1", b"2"]
    assert [one.record.value for one in failed] == [TOO_LARGE]


# ---- close, and what is never silence --------------------------------------------------------------


def test_close_with_a_timeout_reports_each_record_that_was_not_acknowledged(
    connection: Connection, topic: str, frozen: Frozen
) -> None:
    heard: list[Failure] = []
    producer = Producer(connection, on_error=heard.append)
    producer.deliver(topic, b"before", partition=0)
    with frozen():
        for number in range(500):
            producer.send(topic, b"%d" % number, partition=0)
        with pytest.raises(Undelivered, match="500 records were not delivered") as raised:
            producer.close(timeout=1)
    assert [one.record.value for one in raised.value.failures] == [b"%d" % number for number in range(500)]
    assert {type(one.error) for one in raised.value.failures} == {DeliveryFailed}
    assert all(one.in_doubt for one in raised.value.failures)
    assert len(heard) == 500
    assert (producer.delivered, producer.failed) == (1, 500)


def test_close_without_a_timeout_waits_for_a_broker_that_comes_back(
    connection: Connection, topic: str, frozen: Frozen
) -> None:
    producer = Producer(connection)
    producer.deliver(topic, b"0", partition=0)
    with frozen():
        for number in range(1, 100):
            producer.send(topic, b"%d" % number, partition=0)
        assert producer.flush(timeout=0.5) == 99
    producer.close()
    assert numbers(connection, topic) == list(range(100))


def test_a_record_fails_when_its_time_is_over(connection: Connection, topic: str, frozen: Frozen) -> None:
    producer = Producer(connection, delivery_timeout=1.5)

    def deliver_at_last(value: bytes) -> Delivery:
        """A machine that does much else may need longer than 1.5 seconds to connect."""
        for _ in range(20):
            with suppress(DeliveryFailed):
                return producer.deliver(topic, value, partition=0)
        pytest.fail("the broker does not answer")

    deliver_at_last(b"0")
    with frozen(), pytest.raises(DeliveryFailed, match="_MSG_TIMED_OUT"):
        producer.deliver(topic, b"1", partition=0)
    assert deliver_at_last(b"2").partition == 0
    producer.close()


def test_a_producer_that_nobody_closed_sends_what_it_holds_when_it_is_forgotten(
    connection: Connection, topic: str
) -> None:
    producer = Producer(connection)
    producer.send(topic, b"held", partition=0)
    del producer
    gc.collect()
    assert values(connection, topic) == [b"held"]


def test_and_names_in_the_log_what_it_could_not_send(
    large: Connection, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(large)
    producer.send(topic, TOO_LARGE, partition=0)
    with caplog.at_level(logging.ERROR):
        del producer
        gc.collect()
    assert "never closed, and 1 of its records were not delivered" in caplog.text
    assert "MSG_SIZE_TOO_LARGE" in caplog.text


def test_failures_that_nobody_looks_at_end_the_sending(
    large: Connection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_assets.broker.producer.KEEP", 3)
    producer = Producer(large)
    with pytest.raises(Undelivered, match="3 records"):
        for number in range(10):
            producer.send(topic, TOO_LARGE, partition=0)
            while producer.failed <= number:
                producer.poll(0.1)
    producer.close()


def test_an_error_in_the_block_is_not_hidden_by_the_close(large: Connection, topic: str) -> None:
    with pytest.raises(ZeroDivisionError) as raised, Producer(large) as producer:
        producer.send(topic, TOO_LARGE)
        raise ZeroDivisionError
    assert any("1 records were not delivered" in note for note in raised.value.__notes__)


def test_a_send_that_raises_what_a_callback_raised_has_not_taken_its_record(connection: Connection, topic: str) -> None:
    def broken(outcome: Delivery | Failure) -> None:
        raise ZeroDivisionError("the callback's own")

    deadline = time.monotonic() + 60
    with Producer(connection) as producer:
        producer.send(topic, b"0", partition=0, on_delivery=broken)
        for following in count(1):
            assert time.monotonic() < deadline
            time.sleep(0.02)
            try:
                producer.send(topic, b"%d" % following, partition=0)
            except ZeroDivisionError:
                producer.send(topic, b"%d" % following, partition=0)
                break
    assert numbers(connection, topic) == list(range(following + 1))


def test_what_a_callback_raises_in_close_keeps_no_record_from_arriving(broker: str, topic: str) -> None:
    def broken(outcome: Delivery | Failure) -> None:
        raise ZeroDivisionError("the callback's own")

    connection = Connection(broker, {"linger.ms": "60000"})  # so that nothing is answered before the close
    producer = Producer(connection)
    for number in range(200):
        producer.send(topic, b"%d" % number, partition=0, on_delivery=broken if number % 3 == 0 else None)
    with pytest.raises(ZeroDivisionError, match="the callback's own") as raised:
        producer.close()
    assert raised.value.__cause__ is None
    assert producer.delivered == 200
    assert numbers(connection, topic) == list(range(200))


# ---- back-pressure ---------------------------------------------------------------------------------


def test_a_full_queue_makes_the_sender_wait_and_loses_nothing(broker: str, connection: Connection, topic: str) -> None:
    small = Connection(broker, {"queue.buffering.max.messages": "100"})
    with Producer(small) as producer:
        for number in range(5_000):
            producer.send(topic, b"%d" % number, partition=0)
    assert numbers(connection, topic) == list(range(5_000))


def test_a_queue_that_stays_full_is_an_error_and_the_record_can_be_sent_again(
    broker: str, connection: Connection, topic: str, frozen: Frozen
) -> None:
    small = Connection(broker, {"queue.buffering.max.messages": "10"})
    producer = Producer(small, max_block=0.5)
    producer.deliver(topic, b"0", partition=0)
    taken = 1
    with frozen(), pytest.raises(QueueFull, match="10 records wait"):
        while True:
            producer.send(topic, b"%d" % taken, partition=0)
            taken += 1
    producer.send(topic, b"%d" % taken, partition=0)
    producer.close()
    assert numbers(connection, topic) == list(range(taken + 1)) == list(range(12))


# ---- stop on the first error -----------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False], ids=["the very first record", "a later one"])
def test_nothing_after_a_failed_record_is_delivered_before_it_is_handled(
    large: Connection, topic: str, first: bool
) -> None:
    bad = 0 if first else 700
    producer = Producer(large, stop_on_first_error=True)
    sent = 0
    with pytest.raises(Undelivered) as raised:
        for number in range(1_000):
            producer.send(topic, TOO_LARGE if number == bad else b"%d" % number, partition=0)
            sent += 1
        producer.flush()
    with pytest.raises(Undelivered):  # still stopped
        producer.send(topic, b"too soon", partition=0)
    assert numbers(large, topic) == list(range(bad))
    failures = raised.value.failures
    # Each record that was taken is either there or reported, and those in their order.
    assert len(failures) == sent - bad
    assert failures[0].record.value == TOO_LARGE
    assert [one.record.value for one in failures[1:]] == [b"%d" % number for number in range(bad + 1, sent)]
    producer.resume()
    for failure in failures[1:]:
        producer.send(topic, failure.record.value, partition=0)
    for number in range(sent, 1_000):
        producer.send(topic, b"%d" % number, partition=0)
    producer.close()
    assert numbers(large, topic) == [number for number in range(1_000) if number != bad]


def test_nor_what_was_ready_to_go_before_the_answer_came(large: Connection, topic: str, frozen: Frozen) -> None:
    # Of a producer that it does not know yet, the broker takes any first sequence number.
    producer = Producer(large, stop_on_first_error=True)
    producer.send(topic, b"connected", partition=1)
    producer.flush()

    def send_all() -> None:
        producer.send(topic, TOO_LARGE, partition=0)
        time.sleep(0.3)  # longer than the producer lingers: the first request has gone
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush()

    with ThreadPoolExecutor(1) as aside:
        with frozen():
            sending = aside.submit(send_all)
            time.sleep(1)
        with pytest.raises(Undelivered):
            sending.result()
    assert numbers(large, topic, 0) == []
    producer.close()


def test_nor_is_it_in_another_partition(large: Connection, topic: str) -> None:
    producer = Producer(large, stop_on_first_error=True)
    with pytest.raises(Undelivered, match="1 records"):
        for number in range(40):
            producer.send(topic, TOO_LARGE if number == 21 else b"%d" % number, partition=number % 2)
        producer.flush()
    assert numbers(large, topic, 0) == list(range(0, 21, 2))
    assert numbers(large, topic, 1) == list(range(1, 21, 2))
    producer.close()


def test_without_it_the_others_go_on(large: Connection, topic: str) -> None:
    producer = Producer(large)
    for number in range(40):
        producer.send(topic, TOO_LARGE if number == 21 else b"%d" % number, partition=number % 2)
    with pytest.raises(Undelivered, match="the first"):
        producer.close()
    assert numbers(large, topic, 0) == list(range(0, 40, 2))


def test_a_broker_that_is_silent_for_too_long_is_a_first_error_too(
    connection: Connection, topic: str, frozen: Frozen
) -> None:
    producer = Producer(connection, stop_on_first_error=True, delivery_timeout=5.0)
    producer.deliver(topic, b"0", partition=0)
    with frozen(), pytest.raises(Undelivered, match="2 records") as raised:
        producer.send(topic, b"1", partition=0)
        producer.send(topic, b"2", partition=0)
        producer.flush()
    assert [one.record.value for one in raised.value.failures] == [b"1", b"2"]
    producer.close()


def test_order_and_transactions_exclude_each_other(connection: Connection) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        Producer(connection, stop_on_first_error=True, transactional_id="t")


# ---- transactions ----------------------------------------------------------------------------------


def test_a_transaction_is_seen_as_a_whole_or_not_at_all(connection: Connection, topic: str) -> None:
    with Producer(connection, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"1", partition=0)
            producer.send(topic, b"1", partition=1)
            producer.flush()
            assert values(connection, topic) == []
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"2", partition=0)
            raise ZeroDivisionError
        producer.begin()
        producer.send(topic, b"3", partition=0)
        producer.abort()
        with producer.transaction():
            producer.send(topic, b"4", partition=0)
    assert values(connection, topic) == [b"1", b"4"]
    assert values(connection, topic, 1) == [b"1"]


def test_a_transaction_that_is_aborted_while_the_last_one_still_ends_does_not_end_the_producer(
    connection: Connection, topic: str
) -> None:
    with Producer(connection, transactional_id=topic) as producer:
        for number in range(40):
            with producer.transaction():
                producer.send(topic, b"%d" % number, partition=0)
            producer.begin()
            producer.send(topic, b"never", partition=1)
            time.sleep(0.002 * (number % 10))  # its first partition is asked for at some moment of the last one's end
            producer.abort()
    assert values(connection, topic) == [b"%d" % number for number in range(40)]
    assert values(connection, topic, 1) == []


def test_a_record_that_is_refused_makes_the_transaction_abort(large: Connection, topic: str) -> None:
    with Producer(large, transactional_id=topic) as producer:
        with pytest.raises(TransactionMustAbort), producer.transaction():
            producer.send(topic, b"1", partition=0)
            producer.send(topic, TOO_LARGE, partition=0)
        with producer.transaction():
            producer.send(topic, b"2", partition=0)
    assert values(large, topic) == [b"2"]


def test_a_zombie_is_fenced_by_the_producer_that_took_its_id(connection: Connection, topic: str) -> None:
    zombie = Producer(connection, transactional_id=topic)
    zombie.begin()
    zombie.send(topic, b"zombie", partition=0)
    zombie.flush()
    with Producer(connection, transactional_id=topic) as newer, newer.transaction():
        newer.send(topic, b"newer", partition=0)
    with pytest.raises(ProducerFinished, match="fenced"):
        zombie.send(topic, b"again", partition=0)
        zombie.commit()
    with pytest.raises(ProducerFinished, match="fenced"):
        zombie.begin()
    with pytest.raises((Undelivered, ProducerFinished)):
        zombie.close()
    assert values(connection, topic) == [b"newer"]


def test_a_commit_that_finds_no_broker_can_be_asked_again(connection: Connection, topic: str, frozen: Frozen) -> None:
    producer = Producer(connection, transactional_id=topic, delivery_timeout=5)
    producer.begin()
    producer.deliver(topic, b"1", partition=0)
    with frozen(), pytest.raises(DeliveryFailed, match="could not commit in time"):
        producer.commit()
    producer.commit()
    producer.close()
    assert values(connection, topic) == [b"1"]


def test_an_open_transaction_is_aborted_by_close_and_that_is_said(connection: Connection, topic: str) -> None:
    producer = Producer(connection, transactional_id=topic)
    producer.begin()
    producer.send(topic, b"1", partition=0)
    with pytest.raises(TransactionMustAbort, match="open transaction of 1 records"):
        producer.close()
    assert values(connection, topic) == []


def test_close_keeps_its_time_with_an_open_transaction_and_tells_of_each_record(
    connection: Connection, topic: str, frozen: Frozen
) -> None:
    producer = Producer(connection, transactional_id=topic)
    producer.begin()
    producer.deliver(topic, b"0", partition=0)
    with frozen():
        for number in range(1, 100):
            producer.send(topic, b"%d" % number, partition=0)
        began = time.monotonic()
        with pytest.raises(TransactionMustAbort, match="transaction of 100 records, and could not abort it") as raised:
            producer.close(timeout=1)
        assert time.monotonic() - began < 60  # not the two minutes that a record may take
    late = raised.value.__cause__
    assert isinstance(late, Undelivered)
    assert [one.record.value for one in late.failures] == [b"%d" % number for number in range(1, 100)]


def test_closing_an_open_transaction_does_not_hide_the_error_of_the_block(
    connection: Connection, topic: str, frozen: Frozen
) -> None:
    with (
        frozen_at_the_end(frozen) as freeze,
        pytest.raises(LookupError) as raised,
        Producer(connection, transactional_id=topic, delivery_timeout=5) as producer,
    ):
        producer.begin()
        producer.deliver(topic, b"0", partition=0)
        freeze()
        raise LookupError
    assert any("could not abort it" in note for note in raised.value.__notes__)


def test_a_transaction_of_offsets_only_is_aborted_by_close(connection: Connection, topic: str) -> None:
    group = f"group-{topic}"
    consumer = Consumer({"bootstrap.servers": connection.bootstrap_servers, "group.id": group})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    producer = Producer(connection, transactional_id=topic)
    producer.begin()
    producer.send_offsets({(topic, 0): 7}, consumer)
    with pytest.raises(TransactionMustAbort, match="transaction of the offsets of a group, which was aborted"):
        producer.close()
    # While the transaction is open, its offsets are not to be had at all.
    assert consumer.committed([TopicPartition(topic, 0)], timeout=5)[0].offset < 0
    consumer.close()


def test_what_a_callback_raises_in_a_commit_comes_before_anything_is_visible(
    connection: Connection, topic: str
) -> None:
    def broken(outcome: Delivery | Failure) -> None:
        raise ZeroDivisionError("the callback's own")

    with Producer(connection, transactional_id=topic) as producer:
        with pytest.raises(ZeroDivisionError) as raised, producer.transaction():
            producer.send(topic, b"1", partition=0, on_delivery=broken)
            producer.send(topic, b"2", partition=0)
        assert not hasattr(raised.value, "__notes__")  # it could be aborted
        with producer.transaction():
            producer.send(topic, b"3", partition=0)
    assert values(connection, topic) == [b"3"]


def test_an_abort_is_done_though_a_callback_raises(connection: Connection, topic: str) -> None:
    def broken(outcome: Delivery | Failure) -> None:
        raise ZeroDivisionError("the callback's own")

    with Producer(connection, transactional_id=topic) as producer:
        producer.begin()
        for _ in range(3):
            producer.send(topic, b"given up", partition=0, on_delivery=broken)
        with pytest.raises(ZeroDivisionError):
            producer.abort()
        with producer.transaction():
            producer.send(topic, b"3", partition=0)
    assert values(connection, topic) == [b"3"]


def test_transactions_are_begun_and_ended_in_pairs(connection: Connection, topic: str) -> None:
    with Producer(connection, transactional_id=topic) as producer:
        with pytest.raises(UsageError, match="outside any transaction"):
            producer.send(topic, b"")
        with pytest.raises(UsageError, match="no open transaction to commit"):
            producer.commit()
        producer.begin()
        with pytest.raises(UsageError, match="open already"):
            producer.begin()
        producer.abort()
    with Producer(connection) as plain, pytest.raises(UsageError, match="give it a transactional_id"):
        plain.begin()


# ---- compression -----------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_compressed_is_read_as_it_was(connection: Connection, topic: str, compression: Any) -> None:
    rows = [{"id": number, "customer": "ada" * 20} for number in range(500)]
    with Producer(connection, value="json", compression=compression) as producer:
        for row in rows:
            producer.send(topic, row, partition=0)
    assert [json.loads(value or b"") for value in values(connection, topic)] == rows


def test_a_compression_that_does_not_exist_is_bad_usage(connection: Connection) -> None:
    with pytest.raises(UsageError, match="choose among none, gzip"):
        Producer(connection, compression="brotli")  # pyright: ignore[reportArgumentType]


def test_a_broker_that_is_not_there_is_told_and_does_not_hang(topic: str) -> None:
    from kafka_assets.errors import BrokerUnavailable

    began = time.monotonic()
    with Producer(Connection("127.0.0.1:1")) as producer, pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        producer.send(topic, b"")
    assert time.monotonic() - began < 90, "not the two minutes that a record may take"
