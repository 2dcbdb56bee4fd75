"""What a producer's caller has becomes bytes: JSON, text, or bytes as they are. None stays None, a tombstone."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from kafka_assets.errors import RecordRefused, UsageError

Serializer = Callable[[Any], bytes | None]
"""Raises TypeError or ValueError for what it cannot write; None means no key, or a tombstone."""


def json_bytes(value: Any) -> bytes | None:
    """Compact JSON in UTF-8; NaN and infinity are refused, since JSON has neither."""
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8")


def string_bytes(value: Any) -> bytes | None:
    """Text in UTF-8."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"the serializer `string` takes str, not {type(value).__name__}")
    return value.encode("utf-8")


def plain_bytes(value: Any) -> bytes | None:
    """Bytes, as they are."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    raise TypeError(f"the serializer `bytes` takes bytes, not {type(value).__name__}")


def any_bytes(value: Any) -> bytes | None:
    """Bytes as they are, and text in UTF-8: what a producer takes that was told nothing."""
    return string_bytes(value) if isinstance(value, str) else plain_bytes(value)


SERIALIZERS: dict[str, Serializer] = {
    "json": json_bytes,
    "string": string_bytes,
    "bytes": plain_bytes,
    "any": any_bytes,
}


def serializer_named(name: str) -> Serializer:
    if name not in SERIALIZERS:
        raise UsageError(f"there is no serializer {name!r}", cure=f"choose among {', '.join(SERIALIZERS)}")
    return SERIALIZERS[name]


def written(serializer: Serializer, given: Any, *, topic: str, part: str) -> bytes | None:
    """The bytes of a record's key or value, or RecordRefused."""
    try:
        return serializer(given)
    except (TypeError, ValueError) as error:
        raise RecordRefused(
            f"the {part} of a record for the topic {topic!r} cannot be written",
            why=str(error),
            cure=f"give what its serializer takes, or another serializer as `{part}`",
        ) from error


def milliseconds(timestamp: datetime | int | None) -> int | None:
    """A record's timestamp as Kafka has it."""
    if timestamp is None:
        return None
    found = timestamp if isinstance(timestamp, int) else round(timestamp.timestamp() * 1000)
    if found <= 0:
        raise RecordRefused(
            f"the timestamp {timestamp!r} cannot be written",
            why="librdkafka takes 0 for now, and nothing before 1970",
            cure="leave it out for now, or give milliseconds since 1970",
        )
    return found
