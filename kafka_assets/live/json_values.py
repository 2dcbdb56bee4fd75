"""What a JSON value is as one of the declared types, exactly; one that is not is a Misfit. One value at a time."""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from kafka_assets.live.json_numbers import (
    Misfit,
    exactly,
    fits,
    is_kept,
    is_wide,
    number_of,
    plain_decimal,
    witnessed_decimal,
)
from kafka_assets.live.json_text import Number

Reader = Callable[[Any], Any]
"""A value that is not null, as it becomes part of an Arrow column."""

EXACT_INTEGERS = 2**53
_CLOCK = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6})0*+)?(?:(Z)|([+-])(\d\d):(\d\d))?", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_FARTHEST = timedelta(hours=18)
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def reader(kind: Any, *, nested: bool = False) -> Reader:  # noqa: PLR0911 - one for each type
    """How to read one declared type."""
    if pa.types.is_decimal(kind):
        if nested or is_wide(kind):
            return lambda given: plain_decimal(given, kind)
        return lambda given: witnessed_decimal(given, kind)
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_float64(kind):
        return _nested_double if nested else double
    if pa.types.is_float32(kind):
        return (lambda given: narrowed(_nested_double(given))) if nested else (lambda given: narrowed(double(given)))
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _local
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_list(kind):
        return _array(kind)
    if pa.types.is_struct(kind):
        return _struct(kind)
    return _ATOMS[kind]


def _integer(bits: int) -> Reader:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)

    def integer(given: Any) -> int:
        text = number_of(given)
        digits = text.removeprefix("-")
        if not digits.isdigit() or len(digits) > 19:
            raise Misfit
        value = int(text)
        if not low <= value < high:
            raise Misfit
        return value

    return integer


def double(given: Any) -> float:
    number = number_of(given)
    value = float(number)
    if math.isinf(value):
        raise Misfit
    if value == 0 and number == "-0":
        return 0.0
    return value


def _nested_double(given: Any) -> float:
    """What a VARIANT keeps exactly it keeps as a decimal, which knows no -0.0."""
    value = double(given)
    if is_changed(given, value):
        raise Misfit
    return 0.0 if value == 0 else value


def is_changed(number: Number, value: float) -> bool:
    """An integer past 2^53 must be the double itself, or what the double prints; a zero must be written as one."""
    if value == 0:
        return not is_kept(number)
    if abs(value) < EXACT_INTEGERS or not fits(number, 0):
        return False
    exact = exactly(number)
    return not (exactly(repr(value)) == exact or (abs(value) < 2.0**116 and exactly(str(int(value))) == exact))


def narrowed(value: float) -> float:
    """The 32-bit number that it is, or whose shortest text it is."""
    try:
        single: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError as error:
        raise Misfit from error
    if single != value and float(_shortest(single)) != value:
        raise Misfit
    return single


def _shortest(single: float) -> str:
    for digits in range(1, 10):
        text = f"{single:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == single:
            return text
    return repr(single)


def _boolean(given: Any) -> bool:
    return _of(given, bool)


def _text(given: Any) -> str:
    return _of(given, str)


def _bytes(given: Any) -> bytes:
    text = _of(given, str)
    try:
        value = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise Misfit from error
    if base64.b64encode(value).decode() != text:
        raise Misfit
    return value


def _date(given: Any) -> date:
    text = _of(given, str)
    if not _DATE.fullmatch(text):
        raise Misfit
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise Misfit from error


def _local(given: Any) -> int:
    micros, zone = _clock(given)
    if zone is not None:
        raise Misfit
    return micros


def _instant(given: Any) -> int:
    micros, zone = _clock(given)
    micros -= (zone or timedelta()) // _MICROSECOND
    if not _FIRST <= micros <= _LAST:
        raise Misfit
    return micros


_FIRST = (datetime(1, 1, 1) - _EPOCH) // _MICROSECOND
_LAST = (datetime(9999, 12, 31, 23, 59, 59, 999999) - _EPOCH) // _MICROSECOND


def _clock(given: Any) -> tuple[int, timedelta | None]:
    match = _CLOCK.fullmatch(_of(given, str))
    if match is None:
        raise Misfit
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    fraction, z, sign, hours, minutes = match.group(7, 8, 9, 10, 11)
    try:
        at = datetime(year, month, day, hour, minute, second, int((fraction or "").ljust(6, "0")), tzinfo=UTC)
    except ValueError as error:
        raise Misfit from error
    micros = (at.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    if sign is None:
        return micros, timedelta() if z else None
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    if int(minutes) > 59 or offset > _FARTHEST:
        raise Misfit
    return micros, offset if sign == "+" else -offset


def _array(kind: Any) -> Reader:
    item = reader(kind.value_type, nested=True)
    return lambda given: [None if one is None else item(one) for one in _of(given, list)]


def _map(kind: Any) -> Reader:
    item = reader(kind.item_type, nested=True)
    return lambda given: [(key, None if one is None else item(one)) for key, one in _of(given, dict).items()]


def _struct(kind: Any) -> Reader:
    parts = [(field.name, reader(field.type, nested=True), field.nullable) for field in kind]

    def read(given: Any) -> dict[str, Any]:
        held, made = _of(given, dict), dict[str, Any]()
        for name, read_part, nullable in parts:
            value = held.get(name)
            if value is None and not nullable:
                raise Misfit
            made[name] = None if value is None else read_part(value)
        return made

    return read


def _of(given: Any, kind: type) -> Any:
    if type(given) is not kind:
        raise Misfit
    return given


_ATOMS: dict[pa.DataType, Reader] = {
    pa.bool_(): _boolean,
    pa.string(): _text,
    pa.binary(): _bytes,
    pa.date32(): _date,
}
