"""Records go out in bulk, and none is lost in silence: what was not acknowledged raises."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_assets.broker.admin import LOGGER, TIMEOUT, Watch, create, kafka_error, topic_error
from kafka_assets.broker.connection import Connection, producer_config
from kafka_assets.broker.topics import describe_topic
from kafka_assets.errors import BrokerRefused, BrokerUnavailable, KafkaAssetsError

_SERVE_EVERY = 1000
"""Records between two polls: often enough to hear of failures early, rarely enough not to cost."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record to produce. Without a partition, the key's hash decides, as the Java client's does."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def produce(connection: Connection, topic: str, records: Iterable[Record], *, timeout: float = 30.0) -> int:
    """Produce all records and wait until each is acknowledged; returns how many.

    What it does NOT promise: all or nothing. When it raises, the message says how many were
    acknowledged; the others may or may not be in the topic (a transaction decides that, see `transaction`).
    """
    describe_topic(connection, topic)  # a missing topic is known now, not when the first record times out
    sender = _Sender(connection, topic, producer_config(connection), timeout=timeout)
    sender.send(records)
    return sender.drain()


class Transaction:
    """Records that become visible to read_committed readers together, at commit, or never."""

    def __init__(self, sender: _Sender, *, timeout: float) -> None:
        self._sender = sender
        self._timeout = timeout
        self.ended = False

    def produce(self, records: Iterable[Record]) -> int:
        """Write into the open transaction and wait for the broker; returns the number acknowledged by now."""
        self._sender.send(records)
        return self._sender.drain()

    def commit(self) -> None:
        self._end(self._sender.client.commit_transaction)

    def abort(self) -> None:
        self._end(self._sender.client.abort_transaction)

    def _end(self, end: Any) -> None:
        try:
            end(self._timeout)
        except KafkaException as raised:
            error = kafka_error(raised)
            if error.code() == KafkaError._STATE:
                raise BrokerRefused("the transaction has ended before", why=error.str(), cure="end it once") from raised
            raise topic_error(self._sender.connection, self._sender.topic, error) from raised
        self.ended = True


@contextmanager
def transaction(
    connection: Connection, topic: str, *, transactional_id: str, timeout: float = 30.0
) -> Generator[Transaction]:
    """One transaction on one topic: `commit` or `abort` it inside the block.

    Left without either, it is aborted. While the block runs, it is open: the last stable offset stands still.
    """
    describe_topic(connection, topic)
    config = {**producer_config(connection), "transactional.id": transactional_id}
    sender = _Sender(connection, topic, config, timeout=timeout)
    try:
        sender.begin()
    except KafkaException as raised:
        sender.watch.check(sender.client)
        raise sender.watch.unavailable(kafka_error(raised)) from raised
    open_transaction = Transaction(sender, timeout=timeout)
    try:
        yield open_transaction
    except BaseException as raised:
        try:
            if not open_transaction.ended:
                open_transaction.abort()
        except KafkaAssetsError as error:
            raised.add_note(f"the transaction could not be aborted either: {error}")
        raise
    if not open_transaction.ended:
        open_transaction.abort()


class _Sender:
    def __init__(self, connection: Connection, topic: str, config: dict[str, str], *, timeout: float) -> None:
        self.connection = connection
        self.topic = topic
        self.timeout = timeout
        self.watch = Watch(connection)
        self.acknowledged = 0
        self.failures: Counter[str] = Counter()
        self.first_failure: KafkaError | None = None
        # The delivery timeout bounds everything else: no record waits longer, and none fails unreported.
        settled = {"delivery.timeout.ms": str(int(timeout * 1000)), "partitioner": "murmur2_random", **config}
        if "transactional.id" in settled:
            settled.setdefault("transaction.timeout.ms", str(max(60_000, int(timeout * 1000))))
        self.client = create(
            lambda: Producer(cast("dict[str, Any]", {**settled, "error_cb": self.watch.hear}), logger=LOGGER)
        )

    def begin(self) -> None:
        self.client.init_transactions(min(self.timeout, TIMEOUT))
        self.client.begin_transaction()

    def send(self, records: Iterable[Record]) -> None:
        for number, record in enumerate(records, start=1):
            self._enqueue(record)
            if number % _SERVE_EVERY == 0:
                self._ask(self.client.poll, 0)
                self._stop_on_failure()

    def _enqueue(self, record: Record) -> None:
        waiting_since: float | None = None
        while True:
            try:
                self.client.produce(
                    self.topic,
                    value=record.value,
                    key=record.key,
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,
                    headers=cast(Any, list(record.headers)) or None,
                    on_delivery=self._delivered,
                )
                return
            except KafkaException as raised:
                raise topic_error(self.connection, self.topic, kafka_error(raised)) from raised
            except BufferError:
                # The queue is full: the producer waits for the broker, as long as it makes progress.
                waiting_since = waiting_since or time.monotonic()
                if self._ask(self.client.poll, 0.1):
                    waiting_since = None
                self._stop_on_failure()
                if waiting_since is not None and time.monotonic() - waiting_since > self.timeout:
                    raise self.watch.unavailable() from None

    def drain(self) -> int:
        """Wait until each record is acknowledged or has failed; failures and the undelivered raise."""
        deadline = time.monotonic() + self.timeout
        while len(self.client) and time.monotonic() < deadline:
            self._ask(self.client.flush, 0.2)
            self._stop_on_failure()
        self._stop_on_failure()
        undelivered = len(self.client)
        if undelivered:
            raise BrokerUnavailable(
                f"{undelivered} records for the topic {self.topic!r} were not acknowledged in {self.timeout:g} s",
                why=f"{self.acknowledged} were; {self.watch.unavailable().why}",
                cure="look at the broker, then produce what is missing again",
            )
        return self.acknowledged

    def _ask(self, serve: Callable[[float], int], seconds: float) -> int:
        """Poll or flush; both raise once the producer has failed for good, as when another one fenced it."""
        try:
            return serve(seconds)
        except KafkaException as raised:
            raise topic_error(self.connection, self.topic, kafka_error(raised)) from raised

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures[error.name()] += 1
            self.first_failure = self.first_failure or error

    def _stop_on_failure(self) -> None:
        if self.watch.refusal is not None:
            self.watch.check(self.client)
        if self.first_failure is None:
            return
        waiting = len(self.client)
        self.client.purge()
        self._ask(self.client.flush, 5)
        raise self._failed(self.first_failure, waiting=waiting)

    def _failed(self, error: KafkaError, *, waiting: int) -> KafkaAssetsError:
        kind = topic_error(self.connection, self.topic, error)
        failed = sum(self.failures.values())
        return type(kind)(
            f"{failed} records for the topic {self.topic!r} failed, {self.acknowledged} were acknowledged",
            why=kind.why + (f"; {waiting} of them were still waiting and were given up" if waiting else ""),
            cure=kind.cure,
        )
