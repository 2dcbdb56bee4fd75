"""Rows as bytes of PostgreSQL's binary COPY, packed one by one as a hand-written loop does it, by kind of record.

Where nothing is null, which is nearly always, few calls of struct make all of a row but its texts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

HEAD, TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
Packer = Callable[[int, int, Any], bytes]
"""Makes one row of a partition, an offset and a decoded record."""

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Where PostgreSQL's time begins."""
_MICROSECOND = timedelta(microseconds=1)
_NULL = b"\xff\xff\xff\xff"
_DIGITS = 10_000
"""A numeric's digits are of this base."""

_PLAIN_FRONT = struct.Struct(">hiqiiiqiqi").pack
_PLAIN_MIDDLE = struct.Struct(">idiqi").pack
_DECIMALS_FRONT = struct.Struct(">hiqiiiqiqi").pack
_DECIMALS_TIMES = struct.Struct(">iqiqi").pack
_WIDE_COUNTS, _WIDE_MEASURES, _WIDE_TIMES = 16, 10, 4
_WIDE_FIXED = struct.Struct(">hiqiiiq" + "iq" * _WIDE_COUNTS + "id" * _WIDE_MEASURES + "iq" * _WIDE_TIMES)
_LENGTH = struct.Struct(">i").pack
_SMALL = struct.Struct(">ihhhhhh").pack
_LARGE = struct.Struct(">ihhhhhhh").pack


def plain(partition: int, offset: int, one: Any) -> bytes:
    """A row of the shape `plain`."""
    if one.id is None or one.customer is None or one.amount is None or one.placed_at is None or one.note is None:
        return _with_nulls(partition, offset, one)
    customer, note = one.customer.encode(), one.note.encode()
    at = (one.placed_at - _EPOCH) // _MICROSECOND
    front = _PLAIN_FRONT(8, 8, 1, 4, partition, 8, offset, 8, one.id, len(customer))
    return front + customer + _PLAIN_MIDDLE(8, one.amount, 8, at, len(note)) + note


def decimals(partition: int, offset: int, one: Any) -> bytes:
    """A row of the shape `decimals`."""
    if None in msgspec.structs.astuple(one):
        return _with_nulls(partition, offset, one)
    customer, note = one.customer.encode(), one.note.encode()
    placed, shipped = (one.placed_at - _EPOCH) // _MICROSECOND, (one.shipped_at - _EPOCH) // _MICROSECOND
    front = _DECIMALS_FRONT(10, 8, 1, 4, partition, 8, offset, 8, one.id, len(customer))
    amounts = numeric(one.price) + numeric(one.tax)
    return front + customer + amounts + _DECIMALS_TIMES(8, placed, 8, shipped, len(note)) + note


def paid(partition: int, offset: int, one: Any) -> bytes:
    """A row that the function made."""
    if None in msgspec.structs.astuple(one):
        return _with_nulls(partition, offset, one)
    customer, category, note = one.customer.encode(), one.category.encode(), one.note.encode()
    placed, shipped = (one.placed_at - _EPOCH) // _MICROSECOND, (one.shipped_at - _EPOCH) // _MICROSECOND
    front = _DECIMALS_FRONT(12, 8, 1, 4, partition, 8, offset, 8, one.id, len(customer))
    texts = customer + _LENGTH(len(category)) + category
    amounts = numeric(one.price) + numeric(one.tax) + numeric(one.paid)
    return front + texts + amounts + _DECIMALS_TIMES(8, placed, 8, shipped, len(note)) + note


def wide(partition: int, offset: int, one: Any) -> bytes:
    """A row of the shape `wide`: all that has a width stands before all texts."""
    values = msgspec.structs.astuple(one)
    if None in values:
        return _with_nulls(partition, offset, one)
    texts = _WIDE_COUNTS + _WIDE_MEASURES + _WIDE_TIMES
    moments = [(at - _EPOCH) // _MICROSECOND for at in values[_WIDE_COUNTS + _WIDE_MEASURES : texts]]
    fields: list[Any] = [3 + len(values), 8, 1, 4, partition, 8, offset, *([8] * (2 * texts))]
    fields[8::2] = [*values[: _WIDE_COUNTS + _WIDE_MEASURES], *moments]
    parts = [_WIDE_FIXED.pack(*fields)]
    for value in values[texts:]:
        text = value.encode()
        parts += (_LENGTH(len(text)), text)
    return b"".join(parts)


def numeric(value: Decimal) -> bytes:
    """A DECIMAL(12,2), with its length before it."""
    sign = 0x4000 if value < 0 else 0
    whole, cents = divmod(int(abs(value).scaleb(2)), 100)
    if whole < _DIGITS:
        return _SMALL(12, 2, 0, sign, 2, whole, cents * 100)
    high, low = divmod(whole, _DIGITS)
    if high < _DIGITS:
        return _LARGE(14, 3, 1, sign, 2, high, low, cents * 100)
    top, middle = divmod(high, _DIGITS)
    return struct.pack(">ihhhhhhhh", 16, 4, 2, sign, 2, top, middle, low, cents * 100)


def _with_nulls(partition: int, offset: int, one: Any) -> bytes:
    values: Sequence[Any] = msgspec.structs.astuple(one)
    fields = [_field(1), _LENGTH(4) + _LENGTH(partition), _field(offset), *map(_field, values)]
    return struct.pack(">h", len(fields)) + b"".join(fields)


def _field(value: Any) -> bytes:
    if value is None:
        return _NULL
    if isinstance(value, str):
        return _LENGTH(len(value.encode())) + value.encode()
    if isinstance(value, Decimal):
        return numeric(value)
    if isinstance(value, datetime):
        value = (value - _EPOCH) // _MICROSECOND
    return struct.pack(">id" if isinstance(value, float) else ">iq", 8, value)


PACKERS: dict[str, Packer] = {"plain": plain, "decimals": decimals, "wide": wide, "paid": paid}
"""By the name of the shape."""
