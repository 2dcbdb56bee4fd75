"""What must become of a JSON record, said by Python's json and exact decimals alone: the judge of the decoder."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

_CLOCK = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:(Z)|([+-]\d\d)(?::?(\d\d))?)?", re.ASCII
)


class Misfit(Exception):
    """The record must be bad."""


class Number:
    """A number as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text
        if sum(map(str.isdigit, text)) > 1_000:
            raise Misfit

    @property
    def exact(self) -> Fraction:
        mantissa, _, exponent = self.text.lower().partition("e")
        if not mantissa.strip("-0."):
            return Fraction(0)
        if abs(int(exponent or 0)) > 6_000:
            raise Misfit
        return Fraction(Decimal(mantissa)) * Fraction(10) ** int(exponent or 0)


def judge(value: bytes | None, schema: pa.Schema) -> list[Any] | None:
    """The values that must land; None where the record must be bad."""
    try:
        if value is None or value.startswith(b"\xef\xbb\xbf"):
            return None
        if _depth(text := value.decode("utf-8")) > 1_000:
            return None
        with _deep():
            parsed = json.loads(
                text,
                parse_int=Number,
                parse_float=Number,
                parse_constant=_no_constant,
                object_pairs_hook=tuple,
            )
        return list(_object(_of(parsed, tuple), list(schema)).values())
    except (ValueError, Misfit):
        return None


@contextmanager
def _deep() -> Generator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(5_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def _depth(text: str) -> int:
    """The deepest nesting of what stands outside of texts."""
    depth = deepest = 0
    for mark in re.findall(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', text, re.DOTALL):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark, 0)
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: Any, fields: list[Any]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    found: dict[str, Any] = {}
    for one in fields:
        if names.count(one.name) > 1:
            raise Misfit
        given = dict(pairs).get(one.name)
        if given is None and not one.nullable:
            raise Misfit
        found[one.name] = _value(given, one.type)
    return found


def _value(given: Any, kind: Any) -> Any:  # noqa: PLR0911, PLR0912 - one for each type
    if given is None:
        return None
    if pa.types.is_integer(kind):
        exact, bits = _of(given, Number).exact, kind.bit_width - 1
        if exact.denominator != 1 or not -(2**bits) <= exact < 2**bits:
            raise Misfit
        return int(exact)
    if pa.types.is_decimal(kind):
        shifted = _of(given, Number).exact * 10**kind.scale
        if shifted.denominator != 1 or abs(shifted) >= 10**kind.precision:
            raise Misfit
        return Decimal((int(shifted < 0), tuple(map(int, str(abs(int(shifted))))), -kind.scale))
    if pa.types.is_floating(kind):
        return _nearest(_of(given, Number), np.float32 if pa.types.is_float32(kind) else np.float64)
    if pa.types.is_list(kind):
        return [_value(one, kind.value_type) for one in _of(given, list)]
    if pa.types.is_map(kind):
        names = [name for name, _ in _of(given, tuple)]
        if len(set(names)) < len(names):
            raise Misfit
        return [(_text(name), _value(one, kind.item_type)) for name, one in given]
    if pa.types.is_struct(kind):
        return _object(_of(given, tuple), list(kind))
    if pa.types.is_boolean(kind):
        return _of(given, bool)
    text = _text(given)
    if pa.types.is_string(kind):
        return text
    if pa.types.is_binary(kind):
        decoded = base64.b64decode(text.encode(), validate=True)
        if base64.b64encode(decoded).decode() != text:
            raise Misfit
        return decoded
    if pa.types.is_date(kind):
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            raise Misfit
        return date.fromisoformat(text)
    return _clock(text, zoned=bool(kind.tz))


def _of(given: Any, kind: type) -> Any:
    if not isinstance(given, kind):
        raise Misfit
    return given


def _text(given: Any) -> str:
    _of(given, str).encode()  # half of a surrogate pair is a ValueError
    return given


def _nearest(number: Number, kind: Any) -> float:
    """The nearest of all numbers of this kind, found among the neighbours of a first guess."""
    try:
        exact = number.exact
    except Misfit:
        # Too far for a fraction: past the range, or zero.
        if "e-" not in number.text.lower():
            raise
        exact = Fraction(0)
    if exact == 0:
        return -0.0 if number.text.startswith("-") else 0.0
    largest = Fraction(float(np.finfo(kind).max))
    step = largest - Fraction(float(np.nextafter(kind(float(largest)), kind(0))))
    if abs(exact) >= largest + step / 2:
        raise Misfit
    with np.errstate(over="ignore", under="ignore"):
        guess = kind(float(min(max(exact, -largest), largest)))
        near = [guess, np.nextafter(guess, kind(np.inf)), np.nextafter(guess, kind(-np.inf))]
    near = [one for one in near if np.isfinite(one)]
    bits = np.uint32 if kind is np.float32 else np.uint64
    # Of two that are as near, the even one.
    best = min(near, key=lambda one: (abs(Fraction(float(one)) - exact), int(np.array(one).view(bits)) & 1))
    return -abs(float(best)) if exact < 0 else float(best)


def _clock(text: str, *, zoned: bool) -> datetime:
    match = _CLOCK.fullmatch(text)
    if not match:
        raise Misfit
    day, minutes, second, fraction, z, hours, rest = match.groups()
    fraction = (fraction or "").rstrip("0")
    if len(fraction) > 6 or (not zoned and (z or hours)):
        raise Misfit
    local = datetime.fromisoformat(f"{day}T{minutes}:{second or '00'}.{fraction.ljust(6, '0')}")
    if not zoned:
        return local
    offset = timedelta(hours=abs(int(hours or 0)), minutes=int(rest or 0))
    if int(rest or 0) > 59 or offset > timedelta(hours=18):
        raise Misfit
    try:
        moved = local + offset if (hours or "+").startswith("-") else local - offset
    except OverflowError:
        raise Misfit from None
    return moved.replace(tzinfo=UTC)
