"""What must become of a JSON record, said by Python alone, without Spark: the judge of the fuzzing."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

FIELDS = {
    "id": "BIGINT",
    "tiny": "TINYINT",
    "price": "DECIMAL(12,2)",
    "fine": "DECIMAL(30,6)",
    "huge": "DECIMAL(38,18)",
    "ratio": "DOUBLE",
    "part": "FLOAT",
    "ok": "BOOLEAN",
    "note": "STRING",
    "body": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "tags": "ARRAY<STRING>",
    "sums": "ARRAY<DECIMAL(5,2)>",
    "counts": "MAP<STRING,BIGINT>",
    "inner": "STRUCT<x: INT NOT NULL, y: STRING>",
}
SCHEMA = ", ".join(f"{name} {type}" for name, type in FIELDS.items())
_INTEGERS = {"TINYINT": 8, "INT": 32, "BIGINT": 64}
_CLOCK = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6})0*)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


class Misfit(Exception):
    """The value is not one of its type, exactly."""


@dataclass(frozen=True)
class Number:
    """A number as it is written."""

    text: str

    @property
    def plain(self) -> bool:
        return "e" not in self.text.lower()


@dataclass(frozen=True)
class Outcome:
    values: dict[str, Any] | None
    """None: it must be bad."""
    may_be_bad: bool = False
    """Exact, but of a kind that the decoder is documented to refuse."""


def judge(value: bytes) -> Outcome:
    try:
        parsed = json.loads(
            value.decode("utf-8"),
            parse_int=Number,
            parse_float=Number,
            parse_constant=_no_constant,
            object_pairs_hook=_no_second_key,
        )
        if not isinstance(parsed, dict) or _has_half_pair(parsed):
            return Outcome(None)
        doubts: list[str] = []
        values = {name: _value(parsed.get(name), type, doubts) for name, type in FIELDS.items()}
    except (ValueError, Misfit, RecursionError):
        return Outcome(None)
    return Outcome(values, may_be_bad=bool(doubts))


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def _no_second_key(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def _has_half_pair(parsed: Any) -> bool:
    if isinstance(parsed, str):
        return any("\ud800" <= character <= "\udfff" for character in parsed)
    if isinstance(parsed, dict):
        return any(_has_half_pair(part) for pair in parsed.items() for part in pair)
    return isinstance(parsed, list) and any(map(_has_half_pair, parsed))


def _value(given: Any, type: str, doubts: list[str], *, nested: bool = False) -> Any:  # noqa: PLR0911 - one for each type
    if given is None:
        return None
    if type in _INTEGERS:
        return _integer(given, bits=_INTEGERS[type])
    if type.startswith("DECIMAL"):
        precision, scale = map(int, re.findall(r"\d+", type))
        return _decimal(given, precision, scale, doubts, nested=nested)
    if type.startswith("ARRAY<"):
        return [_value(item, type[6:-1], doubts, nested=True) for item in _of(given, list)]
    if type.startswith("MAP<"):
        return [(key, _value(item, "BIGINT", doubts, nested=True)) for key, item in _of(given, dict).items()]
    if type.startswith("STRUCT<"):
        inner = {"x": _value(_of(given, dict).get("x"), "INT", doubts), "y": _value(given.get("y"), "STRING", doubts)}
        if inner["x"] is None:
            raise Misfit
        return inner
    readers = {"BOOLEAN": _boolean, "STRING": _text, "BINARY": _bytes, "DATE": _date, "TIMESTAMP": _instant}
    if type == "TIMESTAMP_NTZ":
        return _local(given)
    if type in ("DOUBLE", "FLOAT"):
        return _float(given, doubts, narrow=type == "FLOAT")
    return readers[type](given)


def _of(given: Any, kind: type) -> Any:
    if not isinstance(given, kind):
        raise Misfit
    return given


def _integer(given: Any, *, bits: int) -> int:
    text = _of(given, Number).text
    if not re.fullmatch(r"-?\d+", text) or not -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        raise Misfit
    return int(text)


def _decimal(given: Any, precision: int, scale: int, doubts: list[str], *, nested: bool) -> Decimal:
    number: Number = _of(given, Number)
    exact = Decimal(number.text)
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    while digits and digits[-1] == 0 and len(digits) > 1:
        digits, exponent = digits[:-1], exponent + 1
    if digits != (0,) and (-exponent > scale or len(digits) + exponent > precision - scale):
        raise Misfit
    mantissa = number.text.lower().partition("e")[0].lstrip("-")
    room = 38 - precision
    if (not number.plain and (nested or room < 6 or len(mantissa) >= room)) or len(mantissa) > 38:
        doubts.append(number.text)
    shift = 0 if digits == (0,) else exponent + scale
    unscaled = int("".join(map(str, digits))) * 10**shift
    return Decimal((sign if unscaled else 0, tuple(map(int, str(unscaled))), -scale))


def _float(given: Any, doubts: list[str], *, narrow: bool) -> float:
    number: Number = _of(given, Number)
    double = float(number.text)
    if math.isinf(double):
        raise Misfit
    exact = Decimal(number.text)
    if double == 0 and (exact != 0 or not number.plain):
        if exact != 0:
            raise Misfit
        doubts.append(number.text)
    if abs(double) >= 2**53 and number.plain and exact == exact.to_integral_value():
        if int(double) != int(exact) and Decimal(repr(double)) != exact:
            raise Misfit
        if abs(double) >= 2**110:
            doubts.append(number.text)
    if not narrow:
        return double
    try:
        single = struct.unpack("f", struct.pack("f", double))[0]
    except OverflowError:
        raise Misfit from None
    if math.isinf(single):
        raise Misfit
    if single != double:
        # The shortest text of a 32-bit number has at most nine digits, and is asked for by trying.
        shortest = next(
            text
            for digits in range(1, 10)
            if struct.unpack("f", struct.pack("f", float(text := f"{single:.{digits}g}")))[0] == single
        )
        if float(shortest) != double:
            raise Misfit
        doubts.append(number.text)  # Java's text of a float is not always the shortest
    return single


def _boolean(given: Any) -> bool:
    return _of(given, bool)


def _text(given: Any) -> str:
    return _of(given, str)


def _bytes(given: Any) -> bytes:
    decoded = base64.b64decode(_of(given, str).encode(), validate=True)
    if base64.b64encode(decoded).decode() != given:
        raise Misfit
    return decoded


def _date(given: Any) -> date:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", _of(given, str), re.ASCII):
        raise Misfit
    return date.fromisoformat(given)


def _local(given: Any) -> datetime:
    match = _CLOCK.fullmatch(_of(given, str))
    if not match or match[4]:
        raise Misfit
    return datetime.fromisoformat(f"{match[1]}T{match[2]}.{(match[3] or '').ljust(6, '0')}")


def _instant(given: Any) -> datetime:
    match = _CLOCK.fullmatch(_of(given, str))
    if not match:
        raise Misfit
    local = datetime.fromisoformat(f"{match[1]}T{match[2]}.{(match[3] or '').ljust(6, '0')}")
    zone = match[4] or "Z"
    if zone == "Z":
        return local.replace(tzinfo=UTC)
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    if int(zone[4:6]) > 59 or offset > timedelta(hours=18):
        raise Misfit
    try:
        return (local - offset if zone[0] == "+" else local + offset).replace(tzinfo=UTC)
    except OverflowError:
        raise Misfit from None
