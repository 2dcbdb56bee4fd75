"""Types that a transform may give: those that every value lands as itself of, and no others."""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812 - the name everybody knows it by

from kafka_assets.errors import TableIncompatible

_PLAIN = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.CharType,
    T.VarcharType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.NullType,
)


def refuse_types(landed: T.StructType) -> None:
    """Refuse what no database has a type for, or what Arrow would make something else of: a VARIANT its bytes."""
    for field in landed.fields:
        _refuse(field.dataType, where=field.name)


def _refuse(kind: T.DataType, *, where: str) -> None:
    if isinstance(kind, T.ArrayType):
        _refuse(kind.elementType, where=f"{where}[]")
    elif isinstance(kind, T.MapType):
        _refuse(kind.keyType, where=f"{where}{{}}")
        _refuse(kind.valueType, where=f"{where}{{}}")
    elif isinstance(kind, T.StructType):
        for field in kind.fields:
            _refuse(field.dataType, where=f"{where}.{field.name}")
    elif not isinstance(kind, _PLAIN):
        raise TableIncompatible(
            f"the transform gives {where!r} as {kind.simpleString().upper()}, which does not land",
            why="not every database has a type that holds its values",
            cure="cast it to another type in the transform: to STRING, or a VARIANT with to_json",
        )
