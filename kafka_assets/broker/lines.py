"""Lines of text become records: the line is the value, or it is a JSON object that says all parts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from kafka_assets.errors import RecordRefused

PARTS = ("value", "key", "headers", "timestamp", "partition")


@dataclass(frozen=True, slots=True)
class Parts:
    """A record as a line gave it, ready for a producer of bytes."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


Line = tuple[bytes, str, int]
"""A line without its end, the name of its file, and its number there."""

Reading = Callable[[bytes, str], Parts]
"""Reads one line, without its end; the string says where it stands, for errors."""


def plain(separator: str | None) -> Reading:
    """The line is the value; with a separator, what stands before its first occurrence is the key."""
    between = None if separator is None else separator.encode("utf-8")

    def read(line: bytes, where: str) -> Parts:
        if between is None:
            return Parts(line)
        key, found, value = line.partition(between)
        if not found:
            raise RecordRefused(
                f"{where} has no key",
                why=f"the separator {separator!r} does not occur in it",
                cure="correct the line, or leave --key-separator out",
            )
        return Parts(value, key)

    return read


def json_line(line: bytes, where: str) -> Parts:
    """`{"value": …, "key": …, "headers": {…}, "timestamp": ms, "partition": n}`; each part may be left out.

    A string is written as its UTF-8, null is none, `{"base64": "…"}` is bytes, anything else is written as JSON.
    """
    try:
        found: Any = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _wrong(where, str(error)) from error
    if not isinstance(found, dict):
        raise _wrong(where, "it is no JSON object")
    parts = cast("dict[str, Any]", found)
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise _wrong(where, f"{', '.join(map(repr, unknown))}: a record has only {', '.join(PARTS)}")
    return Parts(
        value=_bytes(parts.get("value"), where),
        key=_bytes(parts.get("key"), where),
        headers=_headers(parts.get("headers"), where),
        timestamp_ms=_whole(parts.get("timestamp"), "timestamp", where),
        partition=_whole(parts.get("partition"), "partition", where),
    )


def _bytes(given: Any, where: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        try:
            return given.encode("utf-8")
        except UnicodeEncodeError as error:
            raise _wrong(where, str(error)) from error
    if isinstance(given, dict) and set(cast("dict[str, Any]", given)) == {"base64"}:
        try:
            return base64.b64decode(cast("dict[str, Any]", given)["base64"], validate=True)
        except (ValueError, TypeError) as error:
            raise _wrong(where, f"base64: {error}") from error
    return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _headers(given: Any, where: str) -> tuple[tuple[str, bytes | None], ...]:
    """An object, or a list of pairs where a name comes twice or the order counts."""
    if given is None:
        return ()
    pairs: list[Any] = (
        list(cast("Mapping[str, Any]", given).items()) if isinstance(given, Mapping) else cast("list[Any]", given)
    )
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs if isinstance(pairs, list) else [None]:  # pyright: ignore[reportUnnecessaryIsInstance]
        if not isinstance(pair, list | tuple) or len(cast("list[Any]", pair)) != 2 or not isinstance(pair[0], str):
            raise _wrong(where, "headers is an object, or a list of [name, value]")
        headers.append((pair[0], _bytes(pair[1], where)))
    return tuple(headers)


def _whole(given: Any, name: str, where: str) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise _wrong(where, f"{name} is a whole number, not {given!r}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _wrong(where: str, why: str) -> RecordRefused:
    return RecordRefused(
        f"{where} is no record",
        why=why,
        cure='write {"value": …, "key": …, "headers": {…}, "timestamp": milliseconds, "partition": n} on one line, '
        "or leave --format json out to send lines as they are",
    )
