"""What one JSON value is as a declared type, exactly; one that is not is a Misfit. One value at a time."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from itertools import islice
from typing import Any, cast

import pyarrow as pa

from kafka_assets.decode.codes import ENCODING, MISFIT, MISSING, TWICE
from kafka_assets.decode.contract import EXCERPT, fields_of, spelled
from kafka_assets.decode.json_text import Number, Twice

Reader = Callable[[Any], Any]
"""A value that is not null, as it becomes part of an Arrow column."""

_EXACT = Context(prec=12_000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, Inexact])
"""Wider than any number that is read at all, with an exponent of up to `_FAR`."""
_FAR = 5_000
"""With an exponent beyond this no number of a thousand digits fits a type of ours, but zero."""
_CLOCK = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6})\d*)?)?(?:(Z)|([+-])(\d\d):?(\d\d)?)?", re.ASCII
)
_FINER = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_FARTHEST = timedelta(hours=18)
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
FIRST = (datetime(1, 1, 1) - _EPOCH) // _MICROSECOND
LAST = (datetime(9999, 12, 31, 23, 59, 59, 999999) - _EPOCH) // _MICROSECOND


class Misfit(Exception):
    """The value is not one of its type, exactly; `where` is its place below the value that was read."""

    def __init__(self, given: Any, kind: Any, *, code: str = MISFIT, where: str = "") -> None:
        super().__init__()
        self.given, self.kind, self.code, self.where = given, kind, code, where

    def below(self, step: str) -> Misfit:
        self.where = step + self.where
        return self

    def said(self) -> str:
        name = self.where
        if self.code == MISSING:
            return f"{name}: missing or null, and declared NOT NULL"
        if self.code == TWICE:
            return f"{name}: the key {shown(self.given)} stands twice in one object".removeprefix(": ")
        if self.code == ENCODING:
            return f"{name}: the text holds half of a surrogate pair (\\ud800 to \\udfff)"
        said = f"{name}: {shown(self.given)} does not fit {spelled(self.kind)[:100]}"
        has, wants = _written(self.given), _wanted(self.kind)
        # Of a zero in quotes "not exactly" would be false: no text is a number.
        return f"{said} exactly" if has == wants else f"{said}: it is {has}, not {wants}"


def _written(given: Any) -> str:
    """What a value is in JSON."""
    if isinstance(given, Number):
        return "a number"
    if isinstance(given, str):
        return "a text in quotes"
    if isinstance(given, bool):
        return "true or false"
    return "an object" if isinstance(given, dict) else "an array"


def _wanted(kind: Any) -> str:
    """What a value of this type is in JSON."""
    if pa.types.is_decimal(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "a number"
    if pa.types.is_boolean(kind):
        return "true or false"
    if pa.types.is_map(kind) or pa.types.is_struct(kind):
        return "an object"
    return "an array" if pa.types.is_list(kind) else "a text in quotes"


def reader(kind: Any) -> Reader:  # noqa: PLR0911 - one for each type
    """How to read one declared type."""
    if pa.types.is_decimal(kind):
        return lambda given: decimal_of(given, kind)
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_float64(kind):
        return _double
    if pa.types.is_float32(kind):
        return _single
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _local
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_list(kind):
        return _array(kind)
    if pa.types.is_struct(kind):
        return _struct(kind)
    return _ATOMS[kind]


def _integer(kind: Any) -> Reader:
    low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1)

    def integer(given: Any) -> int:
        if type(given) is not Number:
            raise Misfit(given, kind)
        if len(given) < 20 and given.removeprefix("-").isdigit():
            value = int(given)
        else:
            exact = _exactly(given, kind)
            if exact.adjusted() > 19 or exact != exact.to_integral_value():
                raise Misfit(given, kind)
            value = int(exact)
        if not low <= value < high:
            raise Misfit(given, kind)
        return value

    return integer


def decimal_of(given: Any, kind: Any) -> Decimal:
    """A number as a decimal of this precision and scale."""
    if type(given) is not Number:
        raise Misfit(given, kind)
    exact = _exactly(given, kind)
    if exact.is_zero():
        return Decimal((0, (0,), -kind.scale))
    if exact.adjusted() >= kind.precision - kind.scale:
        raise Misfit(given, kind)
    try:
        return exact.quantize(Decimal((0, (1,), -kind.scale)), context=_EXACT)
    except (InvalidOperation, Inexact) as error:
        raise Misfit(given, kind) from error


def _exactly(number: Number, kind: Any) -> Decimal:
    mantissa, _, exponent = number.lower().partition("e")
    if not mantissa.strip("-0."):
        return Decimal(0)
    if len(exponent.lstrip("+-0")) > 4 or abs(int(exponent or "0")) > _FAR:
        raise Misfit(number, kind)
    return _EXACT.create_decimal(number)


def _double(given: Any) -> float:
    if type(given) is not Number:
        raise Misfit(given, pa.float64())
    value = float(given)
    if math.isinf(value):
        raise Misfit(given, pa.float64())
    return value


def _single(given: Any) -> float:
    """The nearest number of 32 bits; not by way of the nearest of 64, which may lie just between two of them."""
    kind = pa.float32()
    if type(given) is not Number:
        raise Misfit(given, kind)
    double = float(given)
    if math.isinf(double):
        raise Misfit(given, kind)
    try:
        found = _narrowed(double)
    except OverflowError as error:
        raise Misfit(given, kind) from error
    if found != double and (other := _beside(found, double)) is not None:
        exact, middle = _exactly(given, kind), Decimal(double)
        # A tie by the double; the text itself may lie on either side.
        if exact != middle:
            return max(found, other) if exact > middle else min(found, other)
    return found


def _narrowed(double: float) -> float:
    return struct.unpack("<f", struct.pack("<f", double))[0]


def _beside(single: float, double: float) -> float | None:
    """The other 32-bit number, where the double lies in the middle between it and this one."""
    bits = struct.unpack("<i", struct.pack("<f", single))[0]
    away = (abs(double) > abs(single)) if single else True
    step = (
        bits + (1 if away else -1)
        if single
        else struct.unpack("<i", struct.pack("<f", math.copysign(1e-45, double)))[0]
    )
    try:
        other: float = struct.unpack("<f", struct.pack("<i", step))[0]
    except struct.error:
        return None
    if not math.isfinite(other):
        return None
    return other if Decimal(single) + Decimal(other) == 2 * Decimal(double) else None


def _boolean(given: Any) -> bool:
    if given is True or given is False:
        return given
    raise Misfit(given, pa.bool_())


def _text(given: Any) -> str:
    if type(given) is not str:
        raise Misfit(given, pa.string())
    if not given.isascii() and has_half(given):
        raise Misfit(given, pa.string(), code=ENCODING)
    return given


def has_half(text: str) -> bool:
    """Whether half of a surrogate pair is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _bytes(given: Any) -> bytes:
    if type(given) is not str:
        raise Misfit(given, pa.binary())
    try:
        value = base64.b64decode(given.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise Misfit(given, pa.binary()) from error
    if base64.b64encode(value).decode() != given:
        raise Misfit(given, pa.binary())
    return value


def _date(given: Any) -> date:
    if type(given) is not str or not _DATE.fullmatch(given):
        raise Misfit(given, pa.date32())
    try:
        return date.fromisoformat(given)
    except ValueError as error:
        raise Misfit(given, pa.date32()) from error


def _local(given: Any) -> int:
    kind = pa.timestamp("us")
    micros, zone = _clock(given, kind)
    if zone is not None:
        raise Misfit(given, kind)
    return micros


def _instant(given: Any) -> int:
    kind = pa.timestamp("us", "UTC")
    micros, zone = _clock(given, kind)
    micros -= (zone or timedelta()) // _MICROSECOND
    if not FIRST <= micros <= LAST:
        raise Misfit(given, kind)
    return micros


def _clock(given: Any, kind: Any) -> tuple[int, timedelta | None]:
    match = _CLOCK.fullmatch(given) if type(given) is str else None
    if match is None or _FINER.search(given):
        raise Misfit(given, kind)
    year, month, day, hour, minute = map(int, match.group(1, 2, 3, 4, 5))
    second, fraction, z, sign, hours, minutes = match.group(6, 7, 8, 9, 10, 11)
    try:
        at = datetime(year, month, day, hour, minute, int(second or 0), int((fraction or "").ljust(6, "0")))
    except ValueError as error:
        raise Misfit(given, kind) from error
    micros = (at - _EPOCH) // _MICROSECOND
    if sign is None:
        return micros, timedelta() if z else None
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if int(minutes or 0) > 59 or offset > _FARTHEST:
        raise Misfit(given, kind)
    return micros, offset if sign == "+" else -offset


def _array(kind: Any) -> Reader:
    item = reader(kind.value_type)

    def read(given: Any) -> list[Any]:
        if type(given) is not list:
            raise Misfit(given, kind)
        found: list[Any] = []
        for at, one in enumerate(cast("list[Any]", given)):
            try:
                found.append(None if one is None else item(one))
            except Misfit as misfit:
                raise misfit.below(f"[{at}]") from None
        return found

    return read


def _map(kind: Any) -> Reader:
    item = reader(kind.item_type)

    def read(given: Any) -> list[tuple[str, Any]]:
        if not isinstance(given, dict):
            raise Misfit(given, kind)
        held = cast("dict[str, Any]", given)
        if type(held) is Twice:
            raise Misfit(min(held.names), kind, code=TWICE)
        found: list[tuple[str, Any]] = []
        for key, one in held.items():
            if not key.isascii() and has_half(key):
                raise Misfit(key, kind, code=ENCODING)
            try:
                found.append((key, None if one is None else item(one)))
            except Misfit as misfit:
                raise misfit.below(f"[{shown(key)}]") from None
        return found

    return read


def _struct(kind: Any) -> Reader:
    fields = Fields(fields_of(kind))

    def read(given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise Misfit(given, kind)
        return dict(zip(fields.names, fields.read(cast("dict[str, Any]", given)), strict=True))

    return read


class Fields:
    """The declared fields of an object: the record's, or a STRUCT's."""

    def __init__(self, fields: list[Any]) -> None:
        self.names = [one.name for one in fields]
        self._declared = frozenset(self.names)
        self._parts = [(one.name, reader(one.type), one.nullable, one.type) for one in fields]

    def read(self, given: dict[str, Any], *, step: str = ".") -> list[Any]:
        """Their values, in the order in which they are declared."""
        if type(given) is Twice and (twice := given.names & self._declared):
            raise Misfit(min(twice), None, code=TWICE)
        values: list[Any] = []
        for name, read, nullable, kind in self._parts:
            value = given.get(name)
            if value is None:
                if not nullable:
                    raise Misfit(None, kind, code=MISSING).below(f"{step}{name}")
                values.append(None)
                continue
            try:
                values.append(read(value))
            except Misfit as misfit:
                raise misfit.below(f"{step}{name}") from None
        return values


def shown(given: Any) -> str:
    """The beginning of a value as JSON, numbers as they are written; at a cost that does not depend on its size."""
    text = ""
    for part in islice(_parts(given), EXCERPT):
        text += part
        if len(text) > EXCERPT:
            return f"{text[:EXCERPT]}…"
    return text


def _parts(given: Any) -> Iterator[str]:
    # Without recursion: a value may be nested as deep as a record.
    waiting: list[Any] = [iter((given,))]
    closing: list[str] = [""]
    while waiting:
        for one in waiting[-1]:
            if isinstance(one, _Mark):
                yield one.text
                continue
            if isinstance(one, dict):
                yield "{"
                waiting.append(_members(cast("dict[str, Any]", one)))
                closing.append("}")
            elif isinstance(one, list):
                yield "["
                waiting.append(_items(cast("list[Any]", one)))
                closing.append("]")
            else:
                yield str(one) if isinstance(one, Number) else _quoted(one)
                continue
            break
        else:
            waiting.pop()
            yield closing.pop()


class _Mark:
    def __init__(self, text: str) -> None:
        self.text = text


def _members(held: dict[str, Any]) -> Iterator[Any]:
    for number, (name, value) in enumerate(held.items()):
        yield _Mark(("," if number else "") + _quoted(name) + ":")
        yield value


def _items(held: list[Any]) -> Iterator[Any]:
    for number, value in enumerate(held):
        if number:
            yield _Mark(",")
        yield value


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        value = value[: EXCERPT + 1]
    return json.dumps(value, ensure_ascii=False)


_ATOMS: dict[pa.DataType, Reader] = {
    pa.bool_(): _boolean,
    pa.string(): _text,
    pa.binary(): _bytes,
    pa.date32(): _date,
}
