"""Lines go out through a producer, and of each that did not arrive it is said where it stands."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from kafka_assets.broker.deliveries import Failure, Outcome
from kafka_assets.broker.lines import Line, Parts, Reading
from kafka_assets.broker.producer import Producer
from kafka_assets.errors import KafkaAssetsError, RecordRefused, Undelivered

NAMED = 100
"""So many failed lines are named; the others are counted."""


@dataclass(frozen=True)
class FailedLine:
    """A line that was not delivered; in doubt, it may be in the topic all the same."""

    where: str
    why: str
    in_doubt: bool


@dataclass
class Sent:
    """What became of the lines that were read. `committed` is None without a transaction."""

    topic: str
    read: int = 0
    delivered: int = 0
    failed: int = 0
    committed: bool | None = None
    seconds: float = 0.0
    partitions: dict[int, int] = field(default_factory=dict[int, int])
    failures: list[FailedLine] = field(default_factory=list[FailedLine])

    def note(self, where: str, error: KafkaAssetsError, *, in_doubt: bool) -> None:
        self.failed += 1
        if len(self.failures) < NAMED:
            self.failures.append(FailedLine(where, f"{error.what}: {error.why}", in_doubt))


def send_lines(
    producer: Producer, sent: Sent, lines: Iterable[Line], reading: Reading, *, partition: int | None
) -> None:
    """Send all lines, close the producer, and keep the books in `sent`, also when it raises.

    A line that cannot be a record, or that the broker refuses, is noted and the others go on, unless the
    producer keeps the order (then it stops) or has a transaction (then nothing becomes visible).
    """
    transactional = producer.transactional_id is not None
    if transactional:
        sent.committed = False
    go_on = not (transactional or producer.stop_on_first_error)
    try:
        with producer, producer.transaction() if transactional else nullcontext():
            for line, name, number in lines:
                sent.read += 1
                where = f"{name}:{number}"
                try:
                    _send(producer, sent, reading(line, where), where, partition=partition)
                except RecordRefused as error:
                    sent.note(where, error, in_doubt=False)
                    if not go_on:
                        raise
        if transactional:
            sent.committed = True
    except Undelivered:
        # Each of them was noted by its own callback.
        if not sent.failed:
            raise
    finally:
        # What an aborted transaction had written is nothing that anybody can read.
        seen = sent.committed is not False
        sent.delivered = producer.delivered if seen else 0
        places = sorted(producer.delivered_per_partition.items()) if seen else []
        sent.partitions = {place: count for (_, place), count in places}


def _send(producer: Producer, sent: Sent, parts: Parts, where: str, *, partition: int | None) -> None:
    producer.send(
        sent.topic,
        parts.value,
        key=parts.key,
        headers=parts.headers,
        timestamp=parts.timestamp_ms,
        partition=partition if parts.partition is None else parts.partition,
        on_delivery=partial(_heard, sent, where),
    )


def _heard(sent: Sent, where: str, outcome: Outcome) -> None:
    if isinstance(outcome, Failure):
        sent.note(where, outcome.error, in_doubt=outcome.in_doubt)
