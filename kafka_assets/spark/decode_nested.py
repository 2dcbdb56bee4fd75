"""Arrays, maps and structs: the same exactness inside, element by element."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

from kafka_assets.spark.decode_doubt import double_is_changed
from kafka_assets.spark.decode_fields import SCALARS, Reading, same, scalar


def reading(declared: T.DataType, *, nested: bool = False) -> Reading:
    """How to read one declared type."""
    if isinstance(declared, T.ArrayType):
        return _array(declared)
    if isinstance(declared, T.MapType):
        return _map(declared)
    if isinstance(declared, T.StructType):
        return _struct(declared)
    if nested and isinstance(declared, T.StringType | T.BinaryType):
        return _typed_text(declared)
    if nested and isinstance(declared, T.FloatType | T.DoubleType):
        return _typed_double(declared)
    return scalar(declared, nested=nested)


def _typed_text(declared: T.DataType) -> Reading:
    """A second look at single elements would be long-winded: here a VARIANT is the witness from the start."""
    plain = SCALARS[type(declared)]

    def text(witness: Column) -> Column:
        return F.try_variant_get(witness, "$", "string")

    def value(witness: Column) -> Column:
        return plain.value(text(witness))

    def wrong(witness: Column, value: Column) -> Column:
        other = witness.isNotNull() & ~F.schema_of_variant(witness).isin("STRING", "VOID")
        return other | plain.wrong(text(witness), value) if plain.wrong else other

    return Reading(T.VariantType(), value, wrong)


def _typed_double(declared: T.DataType) -> Reading:
    plain = SCALARS[type(declared)]

    def double(witness: Column) -> Column:
        return F.try_variant_get(witness, "$", "double")

    def value(witness: Column) -> Column:
        return plain.value(double(witness))

    def wrong(witness: Column, value: Column) -> Column:
        kind = F.schema_of_variant(witness)
        number = kind.isin("BIGINT", "DOUBLE", "VOID") | F.startswith(kind, F.lit("DECIMAL"))
        changed = double_is_changed(witness, double(witness))
        assert plain.wrong is not None
        inexact = F.coalesce(changed | plain.wrong(double(witness), value), F.lit(False))
        return witness.isNotNull() & (~number | inexact)

    return Reading(T.VariantType(), value, wrong)


def _array(declared: T.ArrayType) -> Reading:
    element = reading(declared.elementType, nested=True)

    def value(witness: Column) -> Column:
        return F.transform(witness, element.value)

    def wrong(witness: Column, _value: Column) -> Column:
        return _any(witness, element)

    return Reading(
        T.ArrayType(element.witness),
        same if element.value is same else value,
        wrong if element.wrong else None,
    )


def _map(declared: T.MapType) -> Reading:
    element = reading(declared.valueType, nested=True)

    def value(witness: Column) -> Column:
        return F.transform_values(witness, lambda _, item: element.value(item))

    def wrong(witness: Column, _value: Column) -> Column:
        return _any(F.map_values(witness), element)

    return Reading(
        T.MapType(T.StringType(), element.witness),
        same if element.value is same else value,
        wrong if element.wrong else None,
    )


def _any(items: Column, element: Reading) -> Column:
    assert element.wrong is not None
    wrong = element.wrong
    found = F.exists(items, lambda item: F.coalesce(wrong(item, element.value(item)), F.lit(False)))
    return F.coalesce(found, F.lit(False))


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

    return Reading(T.StructType([T.StructField(field.name, part.witness) for field, part in parts]), value, wrong)
