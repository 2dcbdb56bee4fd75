"""Kafka's own transactions on one producer: its records become visible together, or never."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kafka_assets.broker.admin import TIMEOUT, kafka_error
from kafka_assets.broker.outbox import Outbox
from kafka_assets.broker.refusals import is_final, transaction_error
from kafka_assets.errors import DeliveryFailed, TransactionMustAbort, UsageError

SETTLED = 5.0
"""Seconds for what was sent to arrive before a transaction is aborted; with a broker in reach it takes milliseconds."""


class Transactions:
    """One transaction after the other; the first `begin` fences whoever had the transactional id before."""

    def __init__(self, outbox: Outbox, transactional_id: str | None, *, timeout: float) -> None:
        self._outbox = outbox
        self._id = transactional_id
        self._timeout = timeout
        self._ready = False
        self.open = False
        self.records = 0
        """Sent in the open transaction."""
        self.offsets = False
        """Whether a group's offsets are part of it."""
        self.spoiled = False
        """A record of it failed: its sequence number is skipped, and librdkafka's next transaction fails for that."""
        self._failed_before = 0

    @property
    def held(self) -> str:
        """What is in the open transaction, in words; nothing is an empty text."""
        records = [f"{self.records} records"] if self.records else []
        return " and ".join(records + ["the offsets of a group"] * self.offsets)

    def count(self) -> None:
        """A record is about to be sent: a transactional producer needs an open transaction for it."""
        if self._id is None:
            return
        if not self.open:
            raise UsageError(
                "a record was sent outside any transaction",
                why=f"the producer has the transactional id {self._id!r}",
                cure="call begin() first, or send inside `with producer.transaction():`",
            )
        self.records += 1

    def begin(self) -> None:
        if self._id is None:
            raise UsageError(
                "the producer has no transactions", cure="give it a transactional_id, one for each that lives at a time"
            )
        if self.open:
            raise UsageError("a transaction is open already", cure="commit or abort it first")
        client = self._outbox.client
        if not self._ready:
            self._ask("begin", client.init_transactions, deadline=time.monotonic() + TIMEOUT)
            self._ready = True
        self._ask("begin", lambda _: client.begin_transaction())
        self.open, self.records, self.offsets = True, 0, False
        self._failed_before = self._outbox.deliveries.failed

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], consumer: Consumer) -> None:
        """The group's next offsets, as this member of it: one that the group has left behind is fenced by that."""
        self._must_be_open("send offsets to")
        places = [TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
        member = consumer.consumer_group_metadata()
        send = self._outbox.client.send_offsets_to_transaction
        self.offsets = True
        self._ask("take the offsets", lambda seconds: send(places, member, seconds))

    def commit(self) -> None:
        """Wait for each record and commit. DeliveryFailed: call it again. TransactionMustAbort: abort."""
        self._must_be_open("commit")
        deadline = time.monotonic() + self._timeout
        self._outbox.drain(deadline)  # a callback that raises does so before anything is committed
        try:
            self._ask("commit", self._outbox.client.commit_transaction, deadline=deadline)
        except TransactionMustAbort:
            self.spoiled = True
            raise
        self.open = False

    def abort(self, deadline: float | None = None) -> None:
        """Give the records up: no read_committed reader ever sees one of them."""
        self._must_be_open("abort")
        deliveries = self._outbox.deliveries
        with deliveries.held():
            self._outbox.serve(0)
            self.spoiled = self.spoiled or deliveries.failed > self._failed_before
            if not self.spoiled:
                self._settle(deadline)
            self._ask("abort", self._outbox.client.abort_transaction, deadline=deadline)
            self._outbox.serve(0)
            deliveries.take_untold()  # given up by the caller's own word
            self.open = False

    def _settle(self, deadline: float | None) -> None:
        """Wait until what was sent has arrived, for a while: the broker then knows of the transaction.

        One that it has not heard of, since the last one was still being ended as this one's first partition was
        to be added, cannot be aborted: librdkafka tries all the same, and the broker's INVALID_TXN_STATE is the
        end of the producer (https://github.com/confluentinc/librdkafka/issues/4849).
        """
        latest = time.monotonic() + SETTLED
        self._outbox.drain(latest if deadline is None else min(latest, deadline))

    def _must_be_open(self, what: str) -> None:
        if not self.open:
            raise UsageError(f"there is no open transaction to {what}", cure="end each transaction once")

    def _ask(self, what: str, call: Callable[[float], Any], *, deadline: float | None = None) -> None:
        deadline = time.monotonic() + self._timeout if deadline is None else deadline
        while True:
            left = deadline - time.monotonic()
            try:
                call(max(left, 0.05))
                return
            except KafkaException as raised:
                error = kafka_error(raised)
                typed = transaction_error(error, what=what)
                if isinstance(typed, DeliveryFailed) and left > 0:
                    self._outbox.serve(0.05)
                    continue
                if is_final(error):
                    self.open = False
                    self._outbox.finished = self._outbox.finished or typed  # type: ignore[assignment]
                raise typed from raised
