"""What became of each record: acknowledged, or failed with its own error; and who is told."""

from __future__ import annotations

import reprlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from confluent_kafka import KafkaError, Message

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.refusals import in_doubt, record_error
from kafka_assets.errors import KafkaAssetsError

KEEP = 10_000
"""So many failures that nobody was told of are kept; then `send` takes nothing more until somebody looks."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record on its way, as the caller gave it: before its key and value became bytes."""

    topic: str
    value: Any
    key: Any = None
    headers: Sequence[tuple[str, str | bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None

    def __repr__(self) -> str:
        """Short: a log or an error's note must not carry megabytes."""
        key, value = reprlib.repr(self.key), reprlib.repr(self.value)
        return f"Outgoing({self.topic!r}, value={value}, key={key}, partition={self.partition})"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record that the broker acknowledged, and where it is. With acks=0 nobody knows the offset: it is None."""

    record: Outgoing
    partition: int
    offset: int | None
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that was not acknowledged. `in_doubt`: it may be in the topic all the same."""

    record: Outgoing
    error: KafkaAssetsError
    in_doubt: bool


Outcome = Delivery | Failure
Callback = Callable[[Outcome], None]


class Interceptor:
    """Sees each record before it is sent, and its outcome. Override what you need.

    What `on_send` returns goes on to the next interceptor, in the order in which they are given; what it
    raises reaches the caller of `send`, and the record is not sent. `on_acknowledgement` is told after
    the books are right, in the same order. `close` is called once, when the producer has closed.
    """

    def on_send(self, record: Outgoing) -> Outgoing:
        return record

    def on_acknowledgement(self, outcome: Outcome) -> None:
        return None

    def close(self) -> None:
        return None


class Deliveries:
    """The books of one producer. It is called from librdkafka's poll, in the thread that polls."""

    def __init__(
        self,
        connection: Connection,
        *,
        interceptors: Sequence[Interceptor],
        on_success: Callable[[Delivery], None] | None,
        on_error: Callable[[Failure], None] | None,
    ) -> None:
        self.connection = connection
        self.delivered = 0
        self.failed = 0
        self.per_partition: Counter[tuple[str, int]] = Counter()
        self.progress_at = time.monotonic()
        self.collecting = False
        """While it closes or has stopped, every failure is kept, even one that a listener was told."""
        self.holding = False
        """Whether what a callback raises is kept, the first of it, so that it ends no waiting for other answers."""
        self.raised: Exception | None = None
        self.passing: Exception | None = None
        """What a callback raised last, on its way through librdkafka to the caller."""
        self._interceptors = interceptors
        self._on_success = on_success
        self._on_error = on_error
        self._untold: list[tuple[int, Failure]] = []
        self._number = 0

    def expect(self, record: Outgoing, callback: Callback | None) -> Callable[[KafkaError | None, Message], None]:
        """librdkafka's on_delivery for this record."""
        self._number += 1
        return partial(self._heard, record, callback, self._number)

    @property
    def untold(self) -> int:
        return len(self._untold)

    def take_untold(self) -> list[Failure]:
        """The failures that nobody was told of, in the order in which their records were sent; told from here on."""
        taken, self._untold = self._untold, []
        return [failure for _, failure in sorted(taken, key=lambda one: one[0])]

    def _heard(
        self, record: Outgoing, callback: Callback | None, number: int, error: KafkaError | None, message: Message
    ) -> None:
        self.progress_at = time.monotonic()
        if error is None:
            self.delivered += 1
            outcome: Outcome = _delivery(record, message)
            self.per_partition[record.topic, outcome.partition] += 1
        else:
            self.failed += 1
            outcome = Failure(record, record_error(self.connection, record.topic, error), in_doubt(error))
            if self.collecting or (callback is None and self._on_error is None):
                self._untold.append((number, outcome))
        self.heed(self._tell, outcome, callback)

    def heed(self, told: Callable[..., None], *arguments: Any) -> None:
        """Call what is the user's own; it runs within librdkafka, which hands over nothing more once it has raised."""
        try:
            told(*arguments)
        except Exception as raised:
            if not self.holding:
                self.passing = raised
                raise
            self.raised = self.raised or raised

    @contextmanager
    def held(self) -> Generator[None]:
        """What callbacks raise in the block is raised at its end."""
        if self.holding:
            yield
            return
        self.holding = True
        try:
            yield
        finally:
            self.holding = False
        raised, self.raised = self.raised, None
        if raised is not None:
            raise raised

    def _tell(self, outcome: Outcome, callback: Callback | None) -> None:
        listener = self._on_success if isinstance(outcome, Delivery) else self._on_error
        if callback is None and listener is None and not self._interceptors:
            return
        # Each is told, even where another raises; what they raise comes out of poll, in the caller's thread.
        with ExitStack() as telling:
            if listener is not None:
                telling.callback(cast("Callback", listener), outcome)
            if callback is not None:
                telling.callback(callback, outcome)
            for interceptor in reversed(self._interceptors):
                telling.callback(interceptor.on_acknowledgement, outcome)


def _delivery(record: Outgoing, message: Message) -> Delivery:
    offset, (_, timestamp) = message.offset(), message.timestamp()
    known = offset is not None and offset >= 0
    return Delivery(record, cast(int, message.partition()), offset if known else None, timestamp or None)
