"""What a stream declares its records to be: a DDL text, made valid once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pyspark.errors import PySparkException
from pyspark.sql import types as T  # noqa: N812 - the name everybody knows it by

from kafka_assets.errors import StreamError

SCALARS = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
SUPPORTED = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, "
    "and ARRAY, MAP with STRING keys and STRUCT of these"
)
OURS = ("kafka_", "_kafka")


@lru_cache(maxsize=256)
def declared(schema: str, format: str) -> T.StructType:
    """The declared fields, or a StreamError that says what is wrong with them, before any work."""
    fields = _parse(schema)
    if not fields.fields:
        raise StreamError(
            "the schema declares no field", cure='write one, for example schema: "id BIGINT, note STRING"'
        )
    _check_names(fields.names, inside="")
    for field in fields:
        _check_type(field.dataType, where=field.name)
    if format in ("string", "bytes"):
        _check_single(fields, format)
    elif format != "json":
        raise StreamError(f"format {format!r} is not known here", cure="use json, string or bytes")
    return fields


def _parse(schema: str) -> T.StructType:
    try:
        parsed = T.DataType.fromDDL(schema)
    except PySparkException as wrong:
        message = " ".join((wrong.getMessage() or str(wrong)).split())
        raise StreamError(
            f"the schema {schema!r} cannot be read",
            why=message[:300],
            cure='write a column list, for example "id BIGINT NOT NULL, amount DECIMAL(12,2), placed_at TIMESTAMP"',
        ) from wrong
    if not isinstance(parsed, T.StructType):
        raise StreamError(
            f"the schema {schema!r} is a type without a name",
            why="each field becomes a column",
            cure=f'name it, for example "value {schema}"',
        )
    return parsed


def _check_names(names: Sequence[str], *, inside: str) -> None:
    seen: set[str] = set()
    for name in names:
        where = f"{inside}{name}"
        if not inside and name.lower().startswith(OURS):
            raise StreamError(
                f"the schema's field {name!r} has a name that is ours",
                why="names that begin with kafka_ or _kafka are the record's own columns",
                cure="name the field otherwise, or leave it out: kafka_key and its kind come anyway",
            )
        if not name or ('"' in name and "'" in name):
            raise StreamError(
                f"the schema's field {where!r} has a name that cannot be looked up in JSON",
                why="a name needs a character, and may not hold both kinds of quotes",
                cure="leave the field out",
            )
        if name.lower() in seen:
            raise StreamError(
                f"the schema declares {where!r} twice",
                why="columns differ in more than capitals, or a query cannot tell them apart",
                cure="leave one out",
            )
        seen.add(name.lower())


def _check_type(declared_type: T.DataType, *, where: str) -> None:
    if isinstance(declared_type, T.ArrayType):
        _check_type(declared_type.elementType, where=f"{where}[]")
    elif isinstance(declared_type, T.MapType):
        _check_type(declared_type.valueType, where=f"{where}{{}}")
        if declared_type.keyType != T.StringType():
            raise _unsupported(where, declared_type)
    elif isinstance(declared_type, T.StructType):
        _check_names(declared_type.names, inside=f"{where}.")
        for field in declared_type:
            _check_type(field.dataType, where=f"{where}.{field.name}")
    elif not isinstance(declared_type, SCALARS) and declared_type != T.StringType():
        raise _unsupported(where, declared_type)


def _unsupported(where: str, declared_type: T.DataType) -> StreamError:
    return StreamError(
        f"the schema's field {where!r} is {declared_type.simpleString().upper()}, which cannot be decoded exactly",
        why=f"supported are {SUPPORTED}",
        cure="declare one of these, and cast it in the transform",
    )


def _check_single(fields: T.StructType, format: str) -> None:
    wanted = T.StringType() if format == "string" else T.BinaryType()
    if len(fields.fields) != 1 or fields.fields[0].dataType != wanted:
        name = wanted.simpleString().upper()
        raise StreamError(
            f"format {format!r} needs exactly one field, of type {name}",
            why="the whole value of a record is that field",
            cure=f'write schema: "value {name}"',
        )
