"""Offsets kept in the transaction of what was produced: consume, transform, produce, all of it or nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from kafka_assets.broker.group_offsets import PATIENCE, GroupOffsets
from kafka_assets.broker.keepers import Attached, First
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.units import Unit, Where
from kafka_assets.errors import (
    BrokerUnavailable,
    DeliveryFailed,
    KafkaAssetsError,
    ProducerFinished,
    TransactionMustAbort,
    UsageError,
)

LOGGER = logging.getLogger("kafka_assets.commits")


class InTransaction(GroupOffsets):
    """The keeper for a transactional producer: what is sent to it while a unit is in hand commits with its offsets.

    Each process needs a transactional id of its own, the same after a restart. What readers of the output see
    is exact where they read committed records only.
    """

    whole = True

    def __init__(
        self,
        producer: Producer,
        *,
        patience: float = PATIENCE,
        on_commit: Callable[[Sequence[StoredRecord]], object] | None = None,
    ) -> None:
        """`on_commit` is told of the records whose offsets have been committed."""
        super().__init__(patience=patience)
        self._on_commit = on_commit
        if producer.transactional_id is None:
            raise UsageError("the producer has no transactions", cure="give it a transactional_id")
        self.producer = producer
        self._open = False
        self._undecided: DeliveryFailed | None = None

    def attach(self, consumer: Attached) -> None:
        super().attach(consumer)
        # Whoever had the id is fenced, and what it left half-done ended, before the group's offsets are asked for.
        self.producer.begin()
        self.producer.abort()

    def begins(self, places: Collection[Where], first: First) -> Mapping[Where, int]:
        """Offsets in a transaction that a killed member left open are not to be had until the broker has ended it."""
        try:
            return super().begins(places, first)
        except BrokerUnavailable as error:
            LOGGER.warning("%s; asked again for %s", error, sorted(places))
            return {}

    def before(self, unit: Unit) -> None:
        if self._undecided is not None:
            raise self._undecided
        self._abort()  # where the last one could not be aborted in time
        self.producer.begin()
        self._open = True

    def done(self, unit: Unit) -> None:
        try:
            self.producer.send_offsets({**self._owed, **unit.ends}, self.client)
        except KafkaAssetsError:
            self._abort()
            raise
        self._commit()
        self._owed = {}
        if self._on_commit is not None:
            self._on_commit(unit.done)

    def undo(self, unit: Unit) -> None:
        self._abort()

    def released(self, places: Collection[Where]) -> None:
        """What was done of them is committed by now; where they would begin, the next member finds for itself."""
        self._disown(places)

    def lost(self, places: Collection[Where]) -> None:
        self._disown(places)
        self._abort()

    def idle(self) -> Collection[Where]:
        return ()

    def close(self) -> None:
        self._abort()

    def _disown(self, places: Collection[Where]) -> None:
        for place in places:
            self._owed.pop(place, None)

    def _commit(self) -> None:
        """Ask until it is decided: before that, nobody may read on from either side of it."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                self.producer.commit()
                self._open = False
                return
            except TransactionMustAbort:
                self._abort()
                raise
            except DeliveryFailed as error:
                if time.monotonic() > deadline:
                    self._undecided, self._open = error, False
                    raise

    def _abort(self) -> None:
        if not self._open:
            return
        # Fenced, or finished: the transaction is not this producer's any more, and the broker ends it.
        with suppress(UsageError, ProducerFinished):
            self.producer.abort()
        self._open = False
