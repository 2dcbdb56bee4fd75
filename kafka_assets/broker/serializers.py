"""What a producer's caller has becomes bytes: JSON, text, or bytes as they are. None stays None, a tombstone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kafka_assets.errors import UsageError

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
