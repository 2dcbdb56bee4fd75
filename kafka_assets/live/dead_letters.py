"""Dead letters: records that a listener could not do, as they were, with headers that say why and from where."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_assets.broker.producer import Producer
from kafka_assets.broker.read import StoredRecord

PREFIX = "kafka_assets."


@dataclass(frozen=True)
class DeadLetters:
    """Writes to one topic. It returns when the record is acknowledged, or, in a transaction, is part of it."""

    producer: Producer
    topic: str
    group: str

    def __call__(self, record: StoredRecord, error: Exception, tries: int) -> None:
        send = self.producer.deliver if self.producer.transactional_id is None else self.producer.send
        send(self.topic, record.value, key=record.key, headers=self.headers(record, error, tries))

    def headers(self, record: StoredRecord, error: Exception, tries: int) -> list[tuple[str, str | bytes | None]]:
        """The record's own first; one that was quarantined before keeps what was said then, too."""
        said = {
            "error": type(error).__name__,
            "reason": str(error),
            "group": self.group,
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "timestamp": str(record.timestamp_ms),
            "tries": str(tries),
        }
        return [*record.headers, *((PREFIX + name, value) for name, value in said.items())]
