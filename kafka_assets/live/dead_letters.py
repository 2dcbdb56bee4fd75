"""Dead letters: records that a listener could not do, as they were, with headers that say why and from where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_assets.broker.headers import UNREADABLE, told
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.read import StoredRecord
from kafka_assets.errors import RecordRefused, TransactionMustAbort
from kafka_assets.live.reasons import kind_of, message_of

PREFIX = "kafka_assets."
SHORT = 1_000
"""Bytes of a key that go along in any case."""

Place = tuple[str, int, int]

_WHOLE, _WITHOUT_HEADERS, _PLACE = range(3)
"""How much of a record goes along: what is sent is more than the record, and may be more than its topic takes."""


@dataclass(frozen=True)
class DeadLetters:
    """Writes to one topic, and returns when the record is acknowledged; in a transaction it is part of that."""

    producer: Producer
    topic: str
    group: str
    shortened: dict[Place, int] = field(default_factory=dict[Place, int])
    """Of records that were refused, how much of each goes along; in a transaction that is known when it has failed."""

    def __call__(self, record: StoredRecord, error: Exception, tries: int) -> None:
        place = (record.topic, record.partition, record.offset)
        while True:
            much = self.shortened.get(place, _WHOLE)
            try:
                return self._send(record, error, tries, much=much)
            except RecordRefused as refused:
                if much == _PLACE:
                    raise
                self.shortened[place] = much + 1
                if self.producer.transactional_id is not None:
                    raise TransactionMustAbort(
                        "a dead letter is more than its topic takes", why=str(refused), cure="it is sent with less"
                    ) from refused

    def _send(self, record: StoredRecord, error: Exception, tries: int, *, much: int) -> None:
        small = much == _PLACE
        key = None if small and len(record.key or b"") > SHORT else record.key
        headers = self.headers(record, error, tries, much=much)
        # Waited for, each alone: of several that are sent together the broker refuses all.
        self.producer.deliver(self.topic, None if small else record.value, key=key, headers=headers)

    def headers(
        self, record: StoredRecord, error: Exception, tries: int, *, much: int = _WHOLE
    ) -> list[tuple[str, str | bytes | None]]:
        """The record's own first; one that was quarantined before keeps what was said then, too."""
        said = {
            "error": kind_of(error),
            "reason": message_of(error),
            "group": self.group,
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "timestamp": str(record.timestamp_ms),
            "tries": str(tries),
        }
        if left := ", ".join(_left_out(record, much)):
            said["left_out"] = left
        own = told(record.headers) if much == _WHOLE else ()
        return [*own, *((PREFIX + name, value) for name, value in said.items())]


def _left_out(record: StoredRecord, much: int) -> Iterator[str]:
    """What of the record is not in its dead letter; it still is where it came from."""
    if record.headers is UNREADABLE or (much != _WHOLE and told(record.headers)):
        yield "headers"
    if much == _PLACE:
        if record.value is not None:
            yield f"value ({len(record.value)} bytes)"
        if len(record.key or b"") > SHORT:
            yield f"key ({len(record.key or b'')} bytes)"
