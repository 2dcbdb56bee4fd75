"""How each declared type is read from JSON without a silent change.

`from_json` rounds decimals, wraps bytes around, takes numbers for timestamps and objects for texts. So a field is
first read as its *witness*: a type in which nothing delicate is lost. From the witness come the value, and a test
that the value is exactly what the text said. Nothing here can raise for any record: only try_* casts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

from kafka_assets.spark.decode_doubt import (
    WIDEST,
    Look,
    decimal_disproved,
    decimal_doubted,
    double_disproved,
    double_doubted,
    text_disproved,
    text_doubted,
)

Test = Callable[[Column, Column], Column]

ROOM = 6
"""Digits that a decimal's witness has more than are declared, at least: rounding shows in them."""
LONG_DIGITS = 18
_CLOCK = r"\A\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6}0*+)?"
_ZONE = r"(?:Z|[+-]\d\d:\d\d)?"
_FIRST = "TIMESTAMP '0001-01-01 00:00:00Z'"
_LAST = "TIMESTAMP '9999-12-31 23:59:59.999999Z'"


@dataclass(frozen=True)
class Reading:
    """One declared type: what to ask of from_json, the value out of it, and whether that is the text's own value."""

    witness: T.DataType
    value: Callable[[Column], Column]
    wrong: Test | None = None
    """(witness, value) → true where the value is not exactly the text's; None where from_json itself is exact."""
    length: Test | None = None
    """(witness, value) → a lower bound of the value's bytes in the text, for values that are not null."""
    doubted: Callable[[Look], Column] | None = None
    """True where only a second look can tell whether the value is the text's."""
    disproved: Callable[[Look], Column] | None = None
    """True where the second look says that it is not."""


def same(witness: Column) -> Column:
    return witness


def _one(_witness: Column, _value: Column) -> Column:
    return F.lit(1)


def _text_length(_witness: Column, value: Column) -> Column:
    return F.octet_length(value.cast("STRING"))


def _quoted_length(witness: Column, _value: Column) -> Column:
    return F.octet_length(witness) + 2


def _byte(witness: Column) -> Column:
    return witness.try_cast("TINYINT")


def _float(witness: Column) -> Column:
    return witness.cast("FLOAT")


def _date(witness: Column) -> Column:
    return witness.try_cast("DATE")


def _is_lost(witness: Column, value: Column) -> Column:
    return witness.isNotNull() & value.isNull()


def _is_infinite(number: Column) -> Column:
    return F.abs(number) == float("inf")


def _is_not_that_float(witness: Column, value: Column) -> Column:
    """Neither the same number, nor the shortest text of the 32-bit number (0.1 is meant to be the float 0.1)."""
    exact = value.cast("DOUBLE") == witness
    return _is_infinite(value) | ~(exact | (value.cast("STRING").cast("DOUBLE") == witness))


def _decimal(declared: T.DecimalType, *, nested: bool) -> Reading:
    if nested or declared.precision + ROOM > WIDEST:
        return _variant_decimal(declared)
    # Up to 18 digits are a long, and several times cheaper.
    digits = LONG_DIGITS if declared.precision + ROOM <= LONG_DIGITS else WIDEST
    room = digits - declared.precision

    def value(witness: Column) -> Column:
        return witness.try_cast(declared)

    def wrong(witness: Column, value: Column) -> Column:
        return _is_lost(witness, value) | (value != witness)

    def length(_witness: Column, value: Column) -> Column:
        # Its digits without the zeros at both ends, and the dot between them: no way to write it takes fewer bytes.
        written = F.octet_length(F.trim(F.abs(value).cast("STRING"), F.lit("0.")))
        return F.when(value == 0, 1).otherwise(written)

    return Reading(
        T.DecimalType(digits, declared.scale + room),
        value,
        wrong,
        length,
        doubted=lambda look: decimal_doubted(look, room=room),
        disproved=lambda look: decimal_disproved(look, declared),
    )


def _variant_decimal(declared: T.DecimalType) -> Reading:
    """A VARIANT keeps every number of up to 38 digits exactly, and knows that a number is not a text.

    Its type's scale is the number's own, without trailing zeros: it fits exactly where that is not above ours.
    A number with an exponent, or with more digits, is only kept as a double; those are refused.
    """

    def value(witness: Column) -> Column:
        return F.try_variant_get(witness, "$", declared.simpleString())

    def wrong(witness: Column, value: Column) -> Column:
        kind = F.schema_of_variant(witness)
        fits = kind.rlike(rf"\A(?:BIGINT|DECIMAL\(\d+,(?:{'|'.join(map(str, range(declared.scale + 1)))})\))\z")
        return witness.isNotNull() & (kind != "VOID") & ~(fits & value.isNotNull())

    return Reading(T.VariantType(), value, wrong, lambda _w, _v: F.lit(1))


def _is_not_that_date(witness: Column, value: Column) -> Column:
    """The date, written again, must be the text: no time part, no short forms, no year 0."""
    return witness.isNotNull() & ~F.coalesce((value.cast("STRING") == witness) & (witness >= "0001"), F.lit(False))


def _timestamp(*, zone: str, as_utc: bool) -> Reading:
    def value(witness: Column) -> Column:
        if not as_utc:
            return witness.try_cast("TIMESTAMP_NTZ")
        # No zone in the text means UTC, whatever the session's zone is.
        zoned = F.endswith(witness, F.lit("Z")) | F.substring(witness, -6, 1).isin("+", "-")
        return F.when(zoned, witness).otherwise(F.concat(witness, F.lit("Z"))).try_cast("TIMESTAMP")

    def wrong(witness: Column, value: Column) -> Column:
        good = witness.rlike(_CLOCK + zone + r"\z") & value.isNotNull() & (witness >= "0001")
        if as_utc:
            # An offset may carry the first and last hours out of the years that a database knows.
            good = good & value.between(F.expr(_FIRST), F.expr(_LAST))
        return witness.isNotNull() & ~F.coalesce(good, F.lit(False))

    return Reading(T.StringType(), value, wrong, _quoted_length)


def _bytes(witness: Column) -> Column:
    return F.try_to_binary(witness, F.lit("base64"))


def _is_not_base64(witness: Column, value: Column) -> Column:
    return witness.isNotNull() & ~F.coalesce(F.base64(value) == witness, F.lit(False))


_WHOLE = Reading(T.LongType(), same, length=_text_length)
_TEXT = Reading(T.StringType(), same, length=_quoted_length, doubted=text_doubted, disproved=text_disproved)
_DOUBLE = Reading(
    T.DoubleType(),
    same,
    lambda witness, _: _is_infinite(witness),
    _one,
    doubted=double_doubted,
    disproved=double_disproved,
)
SCALARS: dict[type[T.DataType], Reading] = {
    T.BooleanType: Reading(T.BooleanType(), same, length=lambda _, value: F.when(value, 4).otherwise(5)),
    # Jackson takes -128..255 for a byte, and wraps 200 around to -56.
    T.ByteType: Reading(T.IntegerType(), _byte, _is_lost, _text_length),
    T.ShortType: replace(_WHOLE, witness=T.ShortType()),
    T.IntegerType: replace(_WHOLE, witness=T.IntegerType()),
    T.LongType: _WHOLE,
    T.DoubleType: _DOUBLE,
    T.FloatType: replace(_DOUBLE, value=_float, wrong=_is_not_that_float),
    T.DateType: Reading(T.StringType(), _date, _is_not_that_date, _quoted_length),
    T.TimestampType: _timestamp(zone=_ZONE, as_utc=True),
    T.TimestampNTZType: _timestamp(zone="", as_utc=False),
    T.StringType: _TEXT,
    T.BinaryType: replace(_TEXT, value=_bytes, wrong=_is_not_base64),
}


def scalar(declared: T.DataType, *, nested: bool = False) -> Reading:
    """How to read one declared type that holds no other."""
    if isinstance(declared, T.DecimalType):
        return _decimal(declared, nested=nested)
    return SCALARS[type(declared)]
