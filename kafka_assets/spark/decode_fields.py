"""How each declared type is read from JSON without a silent change.

`from_json` rounds decimals, wraps bytes around, takes numbers for timestamps and texts for numbers. So a field is
first read as its *witness*: a type in which nothing delicate is lost. From the witness come the value and a test
that the value is exactly what the text said. Nothing here can raise for any record: only try_* casts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

Test = Callable[[Column, Column], Column]

_ZONE = r"(?:Z|[+-]\d\d:\d\d)"
_CLOCK = r"\A\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6}0*+)?)?"
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
    loose: bool = False
    """The witness is a text that may stand for a JSON number, object or boolean as well."""


def _same(witness: Column) -> Column:
    return witness


def _one(_witness: Column, _value: Column) -> Column:
    return F.lit(1)


def _text_length(_witness: Column, value: Column) -> Column:
    return F.octet_length(value.cast("STRING"))


def _quoted_length(witness: Column, _value: Column) -> Column:
    return F.octet_length(witness) + 2


def _is_lost(witness: Column, value: Column) -> Column:
    return witness.isNotNull() & value.isNull()


def _is_infinite(number: Column) -> Column:
    return F.abs(number) == float("inf")


def _is_not_that_float(witness: Column, value: Column) -> Column:
    """Neither the same number, nor the shortest text of the 32-bit number (0.1 is meant to be the float 0.1)."""
    exact = value.cast("DOUBLE") == witness
    return _is_infinite(value) | ~(exact | (value.cast("STRING").cast("DOUBLE") == witness))


def _decimal(declared: T.DecimalType) -> Reading:
    """A VARIANT keeps every number of up to 38 digits exactly, and knows that a number is not a text.

    Its type's scale is the number's own, without trailing zeros: it fits exactly where that is not above ours.
    A number with an exponent, or with more digits, is only kept as a double; those are refused.
    """
    fits = [f",{scale})" for scale in range(declared.scale + 1)]

    def value(witness: Column) -> Column:
        return F.try_variant_get(witness, "$", declared.simpleString())

    def wrong(witness: Column, value: Column) -> Column:
        kind = F.schema_of_variant(witness)
        exact = kind == "BIGINT"
        for ending in fits:
            exact = exact | F.endswith(kind, F.lit(ending))
        return witness.isNotNull() & (kind != "VOID") & ~(exact & value.isNotNull())

    def length(_witness: Column, value: Column) -> Column:
        return F.greatest(F.octet_length(value.cast("STRING")) - (declared.scale + 1), F.lit(1))

    return Reading(T.VariantType(), value, wrong, length)


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


def _typed_text(declared: T.DataType) -> Reading:
    """Inside arrays, maps and structs, a VARIANT tells a text from a number; at the top a second look does, rarely."""

    def text(witness: Column) -> Column:
        return F.try_variant_get(witness, "$", "string")

    def wrong(witness: Column, value: Column) -> Column:
        other = witness.isNotNull() & ~F.schema_of_variant(witness).isin("STRING", "VOID")
        return other if isinstance(declared, T.StringType) else other | _is_not_base64(text(witness), value)

    if isinstance(declared, T.StringType):
        return Reading(T.VariantType(), text, wrong)
    return Reading(T.VariantType(), lambda w: _bytes(text(w)), wrong)


def _array(declared: T.ArrayType) -> Reading:
    element = reading(declared.elementType, nested=True)

    def wrong(witness: Column, _value: Column) -> Column:
        return _any(witness, element)

    return Reading(
        T.ArrayType(element.witness), lambda w: F.transform(w, element.value), wrong if element.wrong else None
    )


def _map(declared: T.MapType) -> Reading:
    element = reading(declared.valueType, nested=True)

    def value(witness: Column) -> Column:
        return F.transform_values(witness, lambda _, item: element.value(item))

    def wrong(witness: Column, _value: Column) -> Column:
        return _any(F.map_values(witness), element)

    return Reading(T.MapType(T.StringType(), element.witness), value, wrong if element.wrong else None)


def _any(items: Column, element: Reading) -> Column:
    assert element.wrong is not None
    test = element.wrong
    return F.coalesce(
        F.exists(items, lambda item: F.coalesce(test(item, element.value(item)), F.lit(False))), F.lit(False)
    )


def _struct(declared: T.StructType) -> Reading:
    parts = [(field, reading(field.dataType, nested=True)) for field in declared]

    def value(witness: Column) -> Column:
        made = F.struct(*(part.value(witness.getField(field.name)).alias(field.name) for field, part in parts))
        return F.when(witness.isNotNull(), made)

    def wrong(witness: Column, _value: Column) -> Column:
        found = F.lit(False)
        for field, part in parts:
            inner = witness.getField(field.name)
            if part.wrong is not None:
                found = found | F.coalesce(part.wrong(inner, part.value(inner)), F.lit(False))
            if not field.nullable:
                found = found | part.value(inner).isNull()
        return witness.isNotNull() & found

    witness = T.StructType([T.StructField(field.name, part.witness) for field, part in parts])
    return Reading(witness, value, wrong)


_WHOLE = Reading(T.LongType(), _same, length=_text_length)
_SCALARS: dict[type[T.DataType], Reading] = {
    T.BooleanType: Reading(T.BooleanType(), _same, length=lambda _, value: F.when(value, 4).otherwise(5)),
    # Jackson takes -128..255 for a byte, and wraps 200 around to -56.
    T.ByteType: Reading(T.IntegerType(), lambda w: w.try_cast("TINYINT"), _is_lost, _text_length),
    T.ShortType: replace(_WHOLE, witness=T.ShortType()),
    T.IntegerType: replace(_WHOLE, witness=T.IntegerType()),
    T.LongType: _WHOLE,
    T.DoubleType: Reading(T.DoubleType(), _same, lambda w, _: _is_infinite(w), _one),
    T.FloatType: Reading(T.DoubleType(), lambda w: w.cast("FLOAT"), _is_not_that_float, _one),
    T.DateType: Reading(T.StringType(), lambda w: w.try_cast("DATE"), _is_not_that_date, _quoted_length),
    T.TimestampType: _timestamp(zone=_ZONE + "?", as_utc=True),
    T.TimestampNTZType: _timestamp(zone="", as_utc=False),
    T.StringType: Reading(T.StringType(), _same, length=_quoted_length, loose=True),
    T.BinaryType: Reading(T.StringType(), _bytes, _is_not_base64, _quoted_length, loose=True),
}


def reading(declared: T.DataType, *, nested: bool = False) -> Reading:
    """How to read one declared type; inside arrays, maps and structs no text is loose."""
    if nested and isinstance(declared, T.StringType | T.BinaryType):
        return _typed_text(declared)
    if isinstance(declared, T.DecimalType):
        return _decimal(declared)
    if isinstance(declared, T.ArrayType):
        return _array(declared)
    if isinstance(declared, T.MapType):
        return _map(declared)
    if isinstance(declared, T.StructType):
        return _struct(declared)
    return _SCALARS[type(declared)]
