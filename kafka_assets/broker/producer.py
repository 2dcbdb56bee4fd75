"""The producer: sends and forgets, waits, calls back, or commits; and tells of each record that was not delivered."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from confluent_kafka import Consumer

from kafka_assets.broker.closing import end, left_behind
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.deliveries import KEEP, Callback, Deliveries, Delivery, Failure, Interceptor, Outcome, Outgoing
from kafka_assets.broker.in_order import CONFIG as IN_ORDER
from kafka_assets.broker.in_order import InOrder, undelivered
from kafka_assets.broker.leaving import Leaving
from kafka_assets.broker.outbox import Outbox
from kafka_assets.broker.partition_counts import PartitionCounts
from kafka_assets.broker.partitioners import ByKey, Partitioner, by_key, partitioner_named
from kafka_assets.broker.preparation import Headers, Preparation, as_pairs, milliseconds
from kafka_assets.broker.producer_config import Compression, configured
from kafka_assets.broker.serializers import Serializer, serializer_named
from kafka_assets.broker.transactions import Transactions
from kafka_assets.errors import KafkaAssetsError, ProducerFinished, UsageError

LEFT_BEHIND = 5.0
"""Seconds that a producer which nobody closed may take to send what it holds, when it is forgotten."""


class Producer(Leaving):
    """Sends records to any topic. Safe defaults: acks=all, idempotence, and as many retries as the time allows.

    Callbacks, listeners and interceptors run in the thread that calls `send`, `poll`, `flush` or `close`.
    `on_statistics` is given librdkafka's JSON, each `statistics.interval.ms`.
    A failure that no callback and no `on_error` was told of is raised by the next `flush` or `close`.

    What it does NOT promise: that a record which failed is not in the topic (`Failure.in_doubt`), and
    anything at all after the process was killed: what was not acknowledged then may or may not be there.
    """

    what = "producer"

    def __init__(  # noqa: PLR0913 - each is one word of configuration, by name
        self,
        connection: Connection,
        *,
        key: str | Serializer = "any",
        value: str | Serializer = "any",
        partitioner: str | Partitioner = "key",
        compression: Compression | None = None,
        transactional_id: str | None = None,
        interceptors: Sequence[Interceptor] = (),
        on_success: Callable[[Delivery], None] | None = None,
        on_error: Callable[[Failure], None] | None = None,
        stop_on_first_error: bool = False,
        delivery_timeout: float | None = None,
        max_block: float = 60.0,
        on_statistics: Callable[[str], None] | None = None,
    ) -> None:
        if stop_on_first_error and transactional_id is not None:
            raise UsageError(
                "stop_on_first_error and transactional_id exclude each other",
                why="in a transaction nothing becomes visible when one record fails",
                cure="leave stop_on_first_error out",
            )
        self._connection = connection
        chosen = partitioner_named(partitioner) if isinstance(partitioner, str) else partitioner
        self.stop_on_first_error = stop_on_first_error
        self._interceptors = tuple(interceptors)
        self._preparation = Preparation(
            serializer_named(key) if isinstance(key, str) else key,
            serializer_named(value) if isinstance(value, str) else value,
            # To wait for another partition, one must know which it will be.
            partitioner=ByKey() if stop_on_first_error and chosen is by_key else chosen,
            interceptors=self._interceptors,
        )
        self._max_block = max_block
        self._config, self._patience = configured(
            connection, compression=compression, transactional_id=transactional_id, timeout=delivery_timeout
        )
        if stop_on_first_error:
            self._config |= IN_ORDER
        if on_statistics is not None:
            self._config.setdefault("statistics.interval.ms", "1000")
        self._on_statistics = on_statistics
        self._deliveries = Deliveries(
            connection, interceptors=self._interceptors, on_success=on_success, on_error=on_error
        )
        self._lock = threading.RLock()
        self._closed = False
        self.transactional_id = transactional_id
        self._open_outbox()

    @property
    def delivered(self) -> int:
        return self._deliveries.delivered

    @property
    def failed(self) -> int:
        return self._deliveries.failed

    @property
    def delivered_per_partition(self) -> Mapping[tuple[str, int], int]:
        return dict(self._deliveries.per_partition)

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        timestamp: datetime | int | None = None,
        partition: int | None = None,
        on_delivery: Callback | None = None,
    ) -> None:
        """Queue one record and return; `on_delivery` is called once with its Delivery or its Failure.

        What is known at once is raised at once, and the record is not taken: a topic or partition that is
        not there, a value that cannot be written, a full queue (after `max_block` seconds). Nor is it where
        a callback raises that is told here of a record before this one.
        """
        self._must_take()
        if self._guard is None:
            self._outbox.serve(0)
            self._must_take()  # what was heard may be that it takes no more
        record, written = self._preparation.prepare(
            Outgoing(topic, value, key, as_pairs(headers), milliseconds(timestamp), partition)
        )
        put = partial(self._outbox.put, record, written, callback=on_delivery, patience=self._max_block)
        with self._lock:
            place = self._preparation.place(record, written, counts=self._counts)
            self._transactions.count()
            if self._guard is not None:
                self._guard.before((record.topic, place))
                try:
                    return put(partition=place)
                except ProducerFinished:
                    self._guard.check()  # a record before this one has failed: that is what is to be told
                    raise
        return put(partition=place)

    def deliver(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        timestamp: datetime | int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Send one record and wait for its answer: where it is, or its error raised. One round trip each."""
        outcomes: list[Outcome] = []
        told = outcomes.append
        self.send(topic, value, key=key, headers=headers, timestamp=timestamp, partition=partition, on_delivery=told)
        while not outcomes:
            self._outbox.push(0.2)
            if not outcomes and self._guard is not None:
                self._guard.check()
            elif not outcomes and self._outbox.finished is not None:
                self._outbox.give_up()
        if isinstance(outcomes[0], Failure):
            raise outcomes[0].error
        return outcomes[0]

    def poll(self, seconds: float = 0.0) -> None:
        """Hear of deliveries and failures while there is nothing to send."""
        self._outbox.serve(seconds)
        if self._guard is not None:
            self._guard.check()

    def flush(self, timeout: float | None = None) -> int:
        """Wait until each record has its answer; how many have none in time (they are still sent).

        Raises Undelivered for the failures that nobody was told of.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._guard is not None:
            self._guard.wait(deadline)
            return len(self._outbox)
        left = self._outbox.drain(deadline)
        self._report()
        return left

    def begin(self) -> None:
        """Begin a transaction. The first one fences every older producer with this transactional id."""
        self._must_take()
        self._transactions.begin()

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], consumer: Consumer) -> None:
        """Make the next offsets of a consumer's group part of the transaction; TransactionMustAbort: they are not."""
        self._transactions.send_offsets(offsets, consumer)

    def commit(self) -> None:
        """Wait for the transaction's records, and make them visible, all or none.

        DeliveryFailed: not known yet, commit again. TransactionMustAbort: abort, and begin anew.
        ProducerFinished: fenced; the broker has aborted, or will.
        """
        self._transactions.commit()

    def abort(self) -> None:
        """End the transaction without its records."""
        try:
            self._transactions.abort()
        finally:  # also where a callback has raised
            if self._transactions.spoiled and not self._transactions.open:
                self._finalizer.detach()
                self._open_outbox()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commit at the end of the block; abort when it raises."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException as raised:
            if self._transactions.open:
                try:
                    self.abort()
                except KafkaAssetsError as error:
                    raised.add_note(f"the transaction could not be aborted either: {error}")
            raise

    def resume(self) -> None:
        """With stop_on_first_error: go on after Undelivered. What failed or waited is not sent again by itself."""
        with self._lock:
            if self._guard is None:
                raise UsageError("only a producer with stop_on_first_error resumes", cure="make a new producer")
            if len(self._outbox):
                self._guard.wait(None)
            self._finalizer.detach()
            self._open_outbox()

    def close(self, timeout: float | None = None) -> None:
        """Deliver what waits, at most so long, then give up: Undelivered holds each record that was not acknowledged.

        Without a timeout it ends by itself, since each record's time is bounded. An open transaction is
        aborted, and TransactionMustAbort says how many records that took along. What a callback raises, or
        Ctrl-C (which gives up at once), comes out after each record was told of, with Undelivered as its cause.
        """
        if self._closed:
            return
        self._closed = True
        with ExitStack() as closing:
            for interceptor in reversed(self._interceptors):
                closing.callback(interceptor.close)
            deadline = None if timeout is None else time.monotonic() + timeout
            try:
                end(self._outbox, self._transactions, guard=self._guard, deadline=deadline)
            finally:
                if not len(self._outbox) and not self._deliveries.untold:  # else, interrupted twice, the log names it
                    self._finalizer.detach()

    def _open_outbox(self) -> None:
        self._outbox = Outbox(self._connection, self._config, self._deliveries, on_statistics=self._on_statistics)
        self._counts = PartitionCounts(self._connection, self._outbox.client, self._outbox.watch)
        self._transactions = Transactions(self._outbox, self.transactional_id, timeout=self._patience)
        self._guard = InOrder(self._outbox, patience=self._patience) if self.stop_on_first_error else None
        self._finalizer = weakref.finalize(self, left_behind, self._outbox, wait=LEFT_BEHIND)

    def _must_take(self) -> None:
        if self._closed:
            raise ProducerFinished("the producer is closed", cure="make a new one")
        if self._guard is not None:
            self._guard.check()
        elif self._outbox.finished is not None:
            raise self._outbox.finished
        elif self._deliveries.untold >= KEEP:
            self._report()

    def _report(self) -> None:
        failures = self._deliveries.take_untold()
        if failures:
            raise undelivered(failures) from failures[0].error
