"""A producer ends, and each record without an answer is told of, whatever else goes wrong. No broker is there."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kafka_assets.broker import Connection, Failure, Interceptor, Producer
from kafka_assets.errors import Undelivered

WAITING = 50


@pytest.fixture(autouse=True)
def _believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each topic is taken for one that is there, so that the records wait for a broker."""
    monkeypatch.setattr("kafka_assets.broker.partition_counts.PartitionCounts.of", lambda *_: 1)


def waiting(on_delivery: Callable[[Any], None] | None = None, **options: Any) -> Producer:
    producer = Producer(Connection("127.0.0.1:1"), **options)
    for number in range(WAITING):
        producer.send("t", b"%d" % number, on_delivery=on_delivery)
    return producer


def broken(_: Any) -> None:
    raise ZeroDivisionError("the callback's own")


class Broken(Interceptor):
    def on_acknowledgement(self, outcome: Any) -> None:
        broken(outcome)


@pytest.mark.parametrize(
    "options",
    [{"on_delivery": broken}, {"on_error": broken}, {"interceptors": [Broken()]}],
    ids=["callback", "listener", "interceptor"],
)
def test_what_a_callback_raises_comes_out_of_close_after_each_record_was_told_of(options: dict[str, Any]) -> None:
    producer = waiting(**options)
    with pytest.raises(ZeroDivisionError, match="the callback's own") as raised:
        producer.close(timeout=0.1)
    late = raised.value.__cause__
    assert isinstance(late, Undelivered)
    assert [one.record.value for one in late.failures] == [b"%d" % number for number in range(WAITING)]
    assert any(f"{WAITING} records were not delivered" in note for note in raised.value.__notes__)
    assert producer.failed == WAITING
    producer.close()  # once


def interrupt_in(seconds: float) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


@pytest.mark.slow
def test_ctrl_c_in_close_gives_up_and_tells_of_each_record() -> None:
    heard: list[Failure] = []
    producer = waiting(on_error=heard.append)
    interrupt_in(1)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as raised:
        producer.close()
    assert time.monotonic() - began < 60, "not the two minutes that a record may take"
    assert isinstance(raised.value.__cause__, Undelivered)
    assert len(raised.value.__cause__.failures) == len(heard) == WAITING


@pytest.mark.slow
def test_an_interrupted_producer_that_keeps_order_tells_of_each_record_too() -> None:
    producer = Producer(Connection("127.0.0.1:1"), stop_on_first_error=True)
    producer.send("t", b"0", partition=None)
    interrupt_in(1)
    with pytest.raises(KeyboardInterrupt) as raised:
        producer.close()
    assert isinstance(raised.value.__cause__, Undelivered)
    assert len(raised.value.__cause__.failures) == 1


def test_an_error_in_the_block_is_raised_with_what_closing_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka_assets.errors import DeliveryFailed

    def late(*_: Any, **__: Any) -> None:
        raise DeliveryFailed("too late")

    producer = Producer(Connection("127.0.0.1:1"))
    monkeypatch.setattr("kafka_assets.broker.producer.end", late)
    with pytest.raises(LookupError) as raised, producer:
        raise LookupError
    assert raised.value.__notes__ == ["and closing the producer: too late"]


def test_a_forgotten_producer_names_what_waits_though_its_callbacks_raise(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_assets.broker.producer.LEFT_BEHIND", 0.1)
    producer = waiting(on_delivery=broken)
    with caplog.at_level(logging.ERROR):
        del producer
        gc.collect()
    assert f"{WAITING} of its records were not delivered" in caplog.text
    assert "the callback's own" in caplog.text
