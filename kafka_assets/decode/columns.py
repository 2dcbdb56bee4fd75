"""What Arrow's JSON reader gives becomes columns of the declared types, with a mark for each row in doubt.

Arrow reads each declared type as its *witness*, in which nothing is lost: a text for what it would read too kindly, a
wider decimal where numbers would come round. A row in doubt is read again by itself, exactly.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.decode.clocks import are_alike
from kafka_assets.decode.contract import fields_of, landed_type
from kafka_assets.decode.scalars import FIRST, LAST, Misfit, Reader, reader

pc: Any = pyarrow.compute
_scalar: Any = pa.scalar
Marks = np.ndarray[Any, np.dtype[np.bool_]]

_WIDEST = 38
_ROOM = pa.decimal256(76, 38)
"""A number as it may be spelt: with zeros or an exponent."""
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_ZONE = r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)"
_DAY = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLOCK = rf"\A{_DAY}[T ]{_TIME}"
# What other clients write, brought to one form: no seconds, a zone without its colon or minutes, zeros past the
# microseconds.
_FORMS = (
    (r"\A(.{10}[T ]\d\d:\d\d)(Z|[+-].*)?\z", r"\1:00\2"),
    (r"([+-]\d\d)\z", r"\1:00"),
    (r"([+-]\d\d)(\d\d)\z", r"\1:\2"),
    (r"(\.\d{6})0+(Z|[+-].*)?\z", r"\1\2"),
)
_FIRST_DAY, _LAST_DAY = FIRST // 86_400_000_000, LAST // 86_400_000_000


class NotBulk(Exception):
    """Something in these rows cannot be read in bulk; which row it is, is not known."""


def witness_type(kind: Any, *, wide: bool) -> Any:
    """As what Arrow is to read a declared type; `wide` where whole numbers are written as 1.0 or 1e0."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, witness_type(one.type, wide=wide)) for one in fields_of(kind)])
    if pa.types.is_list(kind):
        return pa.list_(witness_type(kind.value_type, wide=wide))
    if wide and (pa.types.is_decimal(kind) or pa.types.is_integer(kind)):
        return _ROOM
    if pa.types.is_decimal(kind) and kind.precision + kind.scale > _WIDEST:
        # As many digits as are declared may stand before the point, and widened by the scale they come round modulo
        # 2^128 without a word. Of 256 bits there are enough for 38 and 38 digits.
        return pa.decimal256(kind.precision, kind.scale)
    if pa.types.is_temporal(kind) or pa.types.is_binary(kind):
        return pa.string()
    return kind


def kind_type(kind: Any, *, wide: bool) -> Any:
    """What is read as decimals, as doubles: Arrow takes a quoted number for a decimal, but not for one of these."""
    if pa.types.is_decimal(kind) or (wide and pa.types.is_integer(kind)):
        return pa.float64()
    if pa.types.is_list(kind):
        inner = kind_type(kind.value_type, wide=wide)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        found = [(one.name, kind_type(one.type, wide=wide)) for one in fields_of(kind)]
        told = [pa.field(name, inner) for name, inner in found if inner is not None]
        return pa.struct(told) if told else None
    return None


def has_witness(kind: Any) -> bool:
    """Whether Arrow can read it at all."""
    if pa.types.is_map(kind):
        return False
    if pa.types.is_list(kind):
        return has_witness(kind.value_type)
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(has_witness(one.type) for one in fields_of(kind))
    return True


class Column:
    """One declared field, at the top or inside of another."""

    def __init__(self, field: Any) -> None:
        self.kind = field.type
        self.landed = landed_type(field.type)
        self._required = not field.nullable
        self._exact: Reader | None = None if pa.types.is_nested(self.kind) else reader(self.kind)
        inner = fields_of(self.kind) if pa.types.is_struct(self.kind) else []
        if pa.types.is_list(self.kind):
            inner = [pa.field("item", self.kind.value_type)]
        self._inner = [Column(one) for one in inner]

    def read(self, witness: Any, doubt: Marks) -> Any:  # noqa: PLR0911 - one for each kind of type
        """The column; a row that must be looked at by itself gets a mark."""
        if self._required and witness.null_count:
            doubt |= _array(pc.is_null(witness))
        kind = self.kind
        if pa.types.is_struct(kind):
            return self._struct(witness, doubt)
        if pa.types.is_list(kind):
            return self._list(witness, doubt)
        if pa.types.is_floating(kind):
            return self._float(witness, doubt)
        if pa.types.is_decimal(kind):
            return self._decimal(witness, doubt)
        if pa.types.is_integer(kind):
            return self._integer(witness, doubt)
        if pa.types.is_timestamp(kind):
            return self._timestamp(witness, doubt)
        if pa.types.is_date(kind):
            return self._date(witness, doubt)
        if pa.types.is_binary(kind):
            return self._by_value(witness, doubt)
        return witness

    def _float(self, witness: Any, doubt: Marks) -> Any:
        # What is past a 32-bit number's range was read as infinity.
        values = witness.to_numpy(zero_copy_only=False)
        finite = np.isfinite(values)
        if not finite.all():
            doubt |= ~finite & _array(pc.is_valid(witness))
        return witness

    def _decimal(self, witness: Any, doubt: Marks) -> Any:
        kind = self.kind
        if witness.type == kind:
            # What has fewer digits behind the point than declared was widened without a look at those before it.
            return self._within(witness, doubt)
        exact = self._within(witness, doubt)
        return self._rescaled(exact, pa.decimal256(kind.precision, kind.scale), doubt).cast(kind)

    def _integer(self, witness: Any, doubt: Marks) -> Any:
        if not pa.types.is_decimal(witness.type):
            return witness
        low, high = -(2 ** (self.kind.bit_width - 1)), 2 ** (self.kind.bit_width - 1) - 1
        fits = _between(witness, Decimal(low), Decimal(high), doubt)
        return self._rescaled(fits, pa.decimal256(76, 0), doubt).cast(self.kind)

    def _within(self, witness: Any, doubt: Marks) -> Any:
        # The most digits that it may have, all of them nines; calculated with, they would be rounded to 28.
        scale = witness.type.scale
        nines = (9,) * (self.kind.precision - self.kind.scale + scale)
        return _between(witness, Decimal((1, nines, -scale)), Decimal((0, nines, -scale)), doubt)

    def _rescaled(self, witness: Any, kind: Any, doubt: Marks) -> Any:
        """With fewer digits behind the point; a row whose number has more is in doubt."""
        if witness.type.scale == kind.scale:
            return witness.cast(kind)
        found = witness.cast(kind, safe=False)
        same = pc.equal(found.cast(witness.type), witness)
        return _kept(found, same, doubt)

    def _timestamp(self, witness: Any, doubt: Marks) -> Any:
        if are_alike(witness, zoned=self.kind.tz is not None):
            try:
                return self._in_range(witness.cast(self.kind), doubt)
            except pa.ArrowInvalid:
                pass  # one of them is no day or no time, and the others are not to suffer from it
        pattern = _CLOCK + (rf"{_ZONE}?\z" if self.kind.tz else r"\z")
        good = pc.match_substring_regex(witness, pattern)
        if not _all(good):
            for form, made in _FORMS:
                witness = pc.replace_substring_regex(witness, form, made)
            good = pc.match_substring_regex(witness, pattern)
            witness = _kept(witness, good, doubt)
        if self.kind.tz and not _all(pc.ends_with(witness, "Z")):
            has_zone = pc.match_substring_regex(witness, rf"{_ZONE}\z")
            witness = pc.if_else(has_zone, witness, pc.binary_join_element_wise(witness, "Z", ""))
        found = self._cast(witness, doubt)
        return self._in_range(found, doubt) if pa.types.is_timestamp(found.type) else found

    def _in_range(self, found: Any, doubt: Marks) -> Any:
        low, high = (_scalar(at, pa.int64()).cast(self.kind) for at in (FIRST, LAST))
        return _between(found, low, high, doubt)

    def _date(self, witness: Any, doubt: Marks) -> Any:
        good = pc.match_substring_regex(witness, rf"\A{_DAY}\z")
        found = self._cast(_kept(witness, good, doubt), doubt)
        low, high = (_scalar(at, pa.int32()).cast(self.kind) for at in (_FIRST_DAY, _LAST_DAY))
        return _between(found, low, high, doubt)

    def _cast(self, witness: Any, doubt: Marks) -> Any:
        try:
            return witness.cast(self.kind)
        except pa.ArrowInvalid:
            # One of them is no day of the calendar, and Arrow does not say which.
            return self._by_value(witness, doubt)

    def _by_value(self, witness: Any, doubt: Marks) -> Any:
        read = self._exact
        assert read is not None
        values: list[Any] = []
        for at, text in enumerate(witness.to_pylist()):
            try:
                values.append(None if text is None else read(text))
            except Misfit:
                doubt[at] = True
                values.append(None)
        array: Any = pa.array
        return array(values, self.kind)

    def _struct(self, witness: Any, doubt: Marks) -> Any:
        there = _array(pc.is_valid(witness))
        children: list[Any] = []
        for at, inner in enumerate(self._inner):
            marks = no_marks(len(witness))
            children.append(inner.read(witness.field(at), marks))
            doubt |= marks & there
        fields = [
            pa.field(one.name, inner.landed) for one, inner in zip(fields_of(self.kind), self._inner, strict=True)
        ]
        missing = pc.is_null(witness) if witness.null_count else None
        made: Any = pa.StructArray.from_arrays(children, fields=fields, mask=missing)
        return made

    def _list(self, witness: Any, doubt: Marks) -> Any:
        values = witness.values
        marks = no_marks(len(values))
        items = self._inner[0].read(values, marks)
        if marks.any():
            places = np.asarray(witness.offsets)
            doubt[np.searchsorted(places, np.flatnonzero(marks), side="right") - 1] = True
        validity, offsets = witness.buffers()[:2]
        array: Any = pa.Array
        return array.from_buffers(
            self.landed, len(witness), [validity, offsets], null_count=witness.null_count, children=[items]
        )


def no_marks(count: int) -> Marks:
    """For so many rows, none in doubt."""
    return np.zeros(count, dtype=np.bool_)


def simple_decimals(name: str, kind: Any) -> set[str] | None:
    """The names behind which a decimal stands, if a pattern can look for them: none is in an array."""
    if pa.types.is_decimal(kind):
        return {name} if _SIMPLE_NAME.fullmatch(name) else None
    if pa.types.is_list(kind):
        return None if kind_type(kind.value_type, wide=False) is not None else set()
    if pa.types.is_struct(kind):
        found = set[str]()
        for one in fields_of(kind):
            inner = simple_decimals(one.name, one.type)
            if inner is None:
                return None
            found |= inner
        return found
    return set()


_SIMPLE_NAME = re.compile(r"[A-Za-z0-9_ .$-]+")


def _array(flags: Any) -> Marks:
    return np.asarray(flags.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _all(flags: Any) -> bool:
    return pc.all(flags).as_py() is not False


def _kept(column: Any, good: Any, doubt: Marks) -> Any:
    """The values that are good; the others are in doubt, and NULL."""
    if _all(good):
        return column
    good = pc.fill_null(good, True)
    doubt |= ~_array(good)
    return pc.if_else(good, column, pa.scalar(None, column.type))


def _between(column: Any, low: Any, high: Any, doubt: Marks) -> Any:
    found = pc.min_max(column)
    if not found["min"].is_valid:
        return column
    if isinstance(low, Decimal):
        low, high = _scalar(low, column.type), _scalar(high, column.type)
    # Compared one by one only where the ends say that something is outside.
    if pc.greater_equal(found["min"], low).as_py() and pc.less_equal(found["max"], high).as_py():
        return column
    return _kept(column, pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)), doubt)
