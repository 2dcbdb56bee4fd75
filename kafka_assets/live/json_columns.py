"""What Arrow's JSON reader gives becomes columns of the declared types, with the rows of which it cannot be sure.

Each declared type is first read as its *witness*, in which nothing is lost: a text for what Arrow would read too
kindly, a double for a float. From it come the column, and a mark for each row that must be looked at by itself.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.live.json_numbers import WIDEST, Misfit
from kafka_assets.live.json_values import EXACT_INTEGERS, Reader, reader
from kafka_assets.schema import fields_of, landed_type

pc: Any = pyarrow.compute
Marks = np.ndarray[Any, np.dtype[np.bool_]]

_CLOCK = r"\A\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
_ZONE = r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)"
_DATE = r"\A\d{4}-\d\d-\d\d\z"
_EPOCH = datetime(1970, 1, 1)
_DAYS = ((date.min - _EPOCH.date()).days, (date.max - _EPOCH.date()).days)
_MICROS = ((datetime.min - _EPOCH) // timedelta(microseconds=1), (datetime.max - _EPOCH) // timedelta(microseconds=1))
_SIMPLE_NAME = re.compile(r"[A-Za-z0-9_ .$-]+")


class NotBulk(Exception):
    """Something in these rows cannot be read in bulk; which row it is, is not known."""


def witness_type(kind: Any) -> Any:
    """As what Arrow's JSON reader is to read a declared type."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, witness_type(one.type)) for one in fields_of(kind)])
    if pa.types.is_list(kind):
        return pa.list_(witness_type(kind.value_type))
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_decimal(kind) and kind.precision + kind.scale > WIDEST:
        # As many digits as are declared may stand before the point, and widened by the scale they come round modulo
        # 2^128 without a word. Of 256 bits there are enough for 38 and 38 digits.
        return pa.decimal256(kind.precision, kind.scale)
    if pa.types.is_temporal(kind) or pa.types.is_binary(kind):
        return pa.string()
    return kind


def has_witness(kind: Any, *, name: str | None) -> bool:
    """Whether Arrow can read it at all, and a number in quotes would be found by the name before it."""
    if pa.types.is_map(kind):
        return False
    if pa.types.is_list(kind):
        return has_witness(kind.value_type, name=None)
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(has_witness(one.type, name=one.name) for one in fields_of(kind))
    return not pa.types.is_decimal(kind) or (name is not None and _SIMPLE_NAME.fullmatch(name) is not None)


def named_decimals(name: str, kind: Any) -> set[str]:
    """The names behind which a decimal stands, at any depth."""
    if pa.types.is_decimal(kind):
        return {name}
    if pa.types.is_list(kind):
        return named_decimals(name, kind.value_type)
    if pa.types.is_struct(kind):
        return {found for one in fields_of(kind) for found in named_decimals(one.name, one.type)}
    return set()


def has_floats(kind: Any) -> bool:
    if pa.types.is_list(kind):
        return has_floats(kind.value_type)
    if pa.types.is_struct(kind):
        return any(has_floats(one.type) for one in fields_of(kind))
    return pa.types.is_floating(kind)


class Column:
    """One declared field, at the top or inside of another."""

    def __init__(self, field: Any, *, nested: bool = False) -> None:
        self.kind = field.type
        self.landed = landed_type(field.type)
        self.required = not field.nullable
        self.nested = nested
        self._bytes: Reader | None = reader(pa.binary()) if pa.types.is_binary(self.kind) else None
        inner = fields_of(self.kind) if pa.types.is_struct(self.kind) else []
        if pa.types.is_list(self.kind):
            inner = [pa.field("item", self.kind.value_type)]
        self._inner = [Column(one, nested=True) for one in inner]

    def read(self, witness: Any, zeros: Marks, doubt: Marks) -> Any:  # noqa: PLR0911 - one for each kind of type
        """The column. A row gets a mark in `zeros` where a float is 0, in `doubt` where it must be looked at."""
        if self.required and witness.null_count:
            doubt |= _array(pc.is_null(witness))
        kind = self.kind
        if pa.types.is_struct(kind):
            return self._struct(witness, zeros, doubt)
        if pa.types.is_list(kind):
            return self._list(witness, zeros, doubt)
        if pa.types.is_floating(kind):
            return self._float(witness, zeros, doubt)
        if pa.types.is_decimal(kind):
            return self._decimal(witness)
        if pa.types.is_timestamp(kind):
            return self._timestamp(witness, doubt)
        if pa.types.is_date(kind):
            days = self._matching(witness, _DATE, doubt).cast(kind)
            return _between(days, _DAYS)
        if self._bytes is not None:
            return self._binary(witness, self._bytes, doubt)
        return witness

    def _float(self, witness: Any, zeros: Marks, doubt: Marks) -> Any:
        values = _numbers(witness)
        size = np.abs(values)
        with np.errstate(invalid="ignore"):
            doubt |= ~(size < EXACT_INTEGERS) & _array(pc.is_valid(witness))
        zeros |= (values == 0) & _array(pc.is_valid(witness)) if witness.null_count else values == 0
        if self.nested:
            # A VARIANT keeps it as a decimal, which knows no -0.0.
            witness = pc.add(witness, 0.0)
        else:
            doubt |= (values == 0) & np.signbit(values)
        if pa.types.is_float64(self.kind):
            return witness
        narrow: Any = witness.cast(pa.float32(), safe=False)
        widened = _numbers(narrow.cast(pa.float64()))
        other = (widened != values) & _array(pc.is_valid(witness)) & ~np.isnan(values)
        if other.any():
            shortest = _numbers(narrow.cast(pa.string()).cast(pa.float64()))
            doubt |= other & (shortest != values)
        return narrow

    def _decimal(self, witness: Any) -> Any:
        # What has fewer digits behind the point than declared is widened without a look at those before it.
        found = pc.min_max(witness)
        low, high = found["min"].as_py(), found["max"].as_py()
        limit = Decimal(10) ** (self.kind.precision - self.kind.scale)
        if high is not None and (high >= limit or low <= -limit):
            raise NotBulk
        return witness.cast(self.kind)

    def _timestamp(self, witness: Any, doubt: Marks) -> Any:
        if not self.kind.tz:
            local = self._matching(witness, _CLOCK + r"\z", doubt)
            return _between(local.cast(self.kind), _MICROS)
        zoned = self._matching(witness, _CLOCK + _ZONE + r"?\z", doubt)
        if not _all(pc.ends_with(zoned, "Z")):
            has_zone = pc.match_substring_regex(zoned, _ZONE + r"\z")
            zoned = pc.if_else(has_zone, zoned, pc.binary_join_element_wise(zoned, "Z", ""))
        return _between(zoned.cast(self.kind), _MICROS)

    def _matching(self, witness: Any, pattern: str, doubt: Marks) -> Any:
        """The texts that are written so; zeros past the microseconds are cut off first."""
        good = pc.match_substring_regex(witness, pattern)
        if _all(good):
            return witness
        if not pa.types.is_date(self.kind):
            witness = pc.replace_substring_regex(witness, r"(\.\d{6})0+", r"\1")
            good = pc.match_substring_regex(witness, pattern)
        doubt |= ~_array(pc.fill_null(good, True))
        return pc.if_else(good, witness, pa.scalar(None, pa.string()))

    def _binary(self, witness: Any, read: Reader, doubt: Marks) -> Any:
        values: list[bytes | None] = []
        for at, text in enumerate(witness.to_pylist()):
            try:
                values.append(None if text is None else read(text))
            except Misfit:
                doubt[at] = True
                values.append(None)
        return pa.array(values, pa.binary())

    def _struct(self, witness: Any, zeros: Marks, doubt: Marks) -> Any:
        there = _array(pc.is_valid(witness))
        children: list[Any] = []
        for at, inner in enumerate(self._inner):
            inner_zeros, inner_doubt = _no_marks(len(witness)), _no_marks(len(witness))
            children.append(inner.read(witness.field(at), inner_zeros, inner_doubt))
            zeros |= inner_zeros & there
            doubt |= inner_doubt & there
        fields = [
            pa.field(one.name, inner.landed) for one, inner in zip(fields_of(self.kind), self._inner, strict=True)
        ]
        missing = pc.is_null(witness) if witness.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=missing)

    def _list(self, witness: Any, zeros: Marks, doubt: Marks) -> Any:
        values = witness.values
        inner_zeros, inner_doubt = _no_marks(len(values)), _no_marks(len(values))
        items = self._inner[0].read(values, inner_zeros, inner_doubt)
        places = np.asarray(witness.offsets)
        for inner, marks in ((inner_zeros, zeros), (inner_doubt, doubt)):
            if inner.any():
                marks[np.searchsorted(places, np.flatnonzero(inner), side="right") - 1] = True
        validity, offsets = witness.buffers()[:2]
        return pa.Array.from_buffers(
            self.landed, len(witness), [validity, offsets], null_count=witness.null_count, children=[items]
        )


def no_marks(count: int) -> Marks:
    return np.zeros(count, dtype=np.bool_)


_no_marks = no_marks


def _numbers(column: Any) -> Any:
    """Its values; NaN where it is null."""
    return column.to_numpy(zero_copy_only=False)


def _array(flags: Any) -> Marks:
    return np.asarray(flags.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _all(flags: Any) -> bool:
    return pc.all(flags).as_py() is not False


def _between(column: Any, ends: tuple[int, int]) -> Any:
    found = pc.min_max(column)
    low, high = found["min"].value, found["max"].value
    if low is not None and (low < ends[0] or high > ends[1]):
        raise NotBulk
    return column
