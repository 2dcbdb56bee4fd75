"""Lines of text become records: the line is the value, or it is a JSON object that says all parts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import msgspec

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

_RAW_OBJECT = dict[str, msgspec.Raw]
_RAW_PAIRS = list[tuple[str, msgspec.Raw]]


class _Object(list[tuple[str, Any]]):
    """A JSON object's pairs as they stand there: in a dict, one of two with the same name would vanish."""


def plain(separator: str | None) -> Reading:
    """The line is the value; with a separator, what stands before its first occurrence is the key."""
    between = None if separator is None else separator.encode("utf-8", "surrogateescape")

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

    A string is written as its UTF-8, null is none, `{"base64": "…"}` is bytes; anything else is written as the
    JSON that stands there, byte for byte: read and written again, numbers would lose digits and objects names.
    """
    try:
        text = line.decode("utf-8-sig")
        found: Any = json.loads(text, object_pairs_hook=_Object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _wrong(where, str(error)) from error
    if not isinstance(found, _Object):
        raise _wrong(where, "it is no JSON object")
    parts = _once(found, where)
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise _wrong(where, f"{', '.join(map(repr, unknown))}: a record has only {', '.join(PARTS)}")
    try:
        raw = msgspec.json.decode(text, type=_RAW_OBJECT)
    except (msgspec.DecodeError, RecursionError) as error:  # what Python reads and this does not is half a pair
        raise _wrong(where, f"surrogates not allowed alone ({error})") from error
    return Parts(
        value=_bytes(parts.get("value"), raw.get("value"), where),
        key=_bytes(parts.get("key"), raw.get("key"), where),
        headers=_headers(parts.get("headers"), raw.get("headers"), where),
        timestamp_ms=_whole(parts.get("timestamp"), "timestamp", where),
        partition=_whole(parts.get("partition"), "partition", where),
    )


def _once(found: _Object, where: str) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name, part in found:
        if name in parts:
            raise _wrong(where, f"{name!r} comes twice; where headers have one name, give them as [[name, value], …]")
        parts[name] = part
    return parts


def _bytes(given: Any, raw: msgspec.Raw | None, where: str) -> bytes | None:
    if given is None or raw is None:
        return None
    if isinstance(given, str):
        return given.encode("utf-8")
    if isinstance(given, _Object) and len(given) == 1 and given[0][0] == "base64":
        try:
            return base64.b64decode(given[0][1], validate=True)
        except (ValueError, TypeError) as error:
            raise _wrong(where, f"base64: {error}") from error
    return bytes(raw)


def _headers(given: Any, raw: msgspec.Raw | None, where: str) -> tuple[tuple[str, bytes | None], ...]:
    """An object, or a list of pairs where a name comes twice or the order counts."""
    if given is None or raw is None:
        return ()
    try:
        if isinstance(given, _Object):
            pairs = list(_once(given, where).items())
            raws = list(msgspec.json.decode(raw, type=_RAW_OBJECT).values())
        else:
            pairs = cast("list[tuple[str, Any]]", given)
            raws = [value for _, value in msgspec.json.decode(raw, type=_RAW_PAIRS)]
    except msgspec.ValidationError as error:
        raise _wrong(where, f"headers is an object, or a list of [name, value]: {error}") from error
    return tuple((name, _bytes(value, its, where)) for (name, value), its in zip(pairs, raws, strict=True))


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
