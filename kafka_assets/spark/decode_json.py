"""JSON records in one pass of from_json, and a second look at those that it may have read wrongly.

from_json ignores what follows the first object, takes the last of two equal keys, turns half a surrogate pair into
`?` and an object into text, all without a word. A record in *doubt* is therefore parsed again, by try_parse_json and
inside a frame `[value, {}]` whose end nobody can guess: text after the object breaks it. Doubt is mostly a matter of
length: a record hardly longer than its own fields, written compactly, has no room for a second key.

The layers below are separate projections on purpose: what is used twice is computed once, and every method that
Spark generates stays short enough for the JVM to compile it (one of all this runs four times slower: measured).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

from kafka_assets.spark.decode_doubt import Look, room_for_harm, text_replaced
from kafka_assets.spark.decode_fields import Reading, same
from kafka_assets.spark.decode_nested import reading
from kafka_assets.spark.decode_reason import UNPROVEN, Verdict, reason

_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_kafka_broken",
    "allowSingleQuotes": "false",
    "allowUnquotedFieldNames": "false",
    "allowComments": "false",
    "allowNumericLeadingZeros": "false",
    "allowNonNumericNumbers": "false",
    "allowBackslashEscapingAnyCharacter": "false",
    "allowUnquotedControlChars": "false",
}
_TEXT, _PARSED, _BROKEN, _SPARE = "_kafka_text", "_kafka_parsed", "_kafka_broken", "_kafka_spare"
_DOUBT, _WRONG, _AGAIN = "_kafka_doubt", "_kafka_wrong", "_kafka_again"
LEAST = 2
"""Bytes that an array, a map or a struct takes at least."""
_NESTED = (T.ArrayType, T.MapType, T.StructType)
SHORTEST_FIELD = 5
"""Bytes that an undeclared field takes at least."""


@dataclass(frozen=True)
class _Part:
    """One top-level field on its way; its witness and its value are columns of the layers."""

    field: T.StructField
    reading: Reading
    number: int

    @property
    def witness_name(self) -> str:
        return f"_kafka_witness_{self.number}"

    @property
    def value_name(self) -> str:
        return self.witness_name if self.reading.value is same else f"_kafka_value_{self.number}"

    @property
    def carried(self) -> list[str]:
        """What later layers need of it. A decimal of 38 digits is dear to carry, and its value says as much."""
        asked = self.reading.disproved is not None and not isinstance(self.field.dataType, T.DecimalType)
        return [self.value_name, self.witness_name] if asked else [self.value_name]

    def found(self, again: Column) -> Column:
        quote = "'" if '"' in self.field.name else '"'
        return F.try_variant_get(again, f"$[0][{quote}{self.field.name}{quote}]", "variant")

    def look(self, again: Column) -> Look:
        return Look(
            name=self.field.name,
            text=F.col(_TEXT),
            spare=F.col(_SPARE),
            witness=F.col(self.witness_name),
            value=F.col(self.value_name),
            found=self.found(again),
        )


def decode_json(raw: DataFrame, fields: T.StructType) -> tuple[DataFrame, list[Column], Column]:
    """The frame to select from, the declared fields in it, and the reason why a record is bad."""
    parts = [_Part(field, reading(field.dataType), number) for number, field in enumerate(fields)]
    end = f"e{secrets.token_hex(8)}"
    parsed_type = T.StructType([T.StructField(part.field.name, part.reading.witness) for part in parts])
    parsed_type = parsed_type.add("_kafka_broken", T.StringType())

    def parsed(text: Column) -> Column:
        return F.from_json(text, parsed_type, _OPTIONS)

    def again(text: Column) -> Column:
        return F.try_parse_json(F.concat(F.lit("["), text, F.lit(f',{{"{end}":1}}]')))

    kept = [name for name in raw.columns if name != "value"]
    text = F.col("value").cast("STRING")
    frame = raw.select(*kept, text.alias(_TEXT), parsed(text).alias(_PARSED))
    frame = _values(_witnesses(frame, kept, parts), parts)
    frame = frame.withColumn(_SPARE, _spare(parts))
    frame = frame.select(
        *kept,
        _TEXT,
        *dict.fromkeys(name for part in parts for name in part.carried),
        _doubt(parts).alias(_DOUBT),
        _wrong(parts).alias(_WRONG),
    )
    frame = frame.withColumn(_AGAIN, F.when(F.col(_DOUBT), again(F.col(_TEXT))))

    def verdict(seen: Column) -> Column:
        return reason(_verdict(parts, seen), end=end)

    text = F.col(_TEXT)
    seen = F.array(F.struct(text.alias("text"), parsed(text).alias("parsed"), again(text).alias("again")))
    # A lambda is interpreted: the long expression of the reason is not compiled, and the good record never gets there.
    told = F.coalesce(F.get(F.transform(seen, verdict), F.lit(0)), F.lit(UNPROVEN))
    bad = F.when(_suspect(parts, end), told)
    frame = frame.withColumn("value", text.cast("BINARY"))
    return frame, [F.col(part.value_name).alias(part.field.name) for part in parts], bad


def _witnesses(frame: DataFrame, columns: list[str], parts: list[_Part]) -> DataFrame:
    parsed = F.col(_PARSED)
    return frame.select(
        *columns,
        _TEXT,
        (parsed.isNull() | parsed.getField("_kafka_broken").isNotNull()).alias(_BROKEN),
        *(parsed.getField(part.field.name).alias(part.witness_name) for part in parts),
    )


def _values(frame: DataFrame, parts: list[_Part]) -> DataFrame:
    made = [part for part in parts if part.value_name != part.witness_name]
    return frame.select("*", *(part.reading.value(F.col(part.witness_name)).alias(part.value_name) for part in made))


def _spare(parts: list[_Part]) -> Column:
    """The record's bytes beyond `{"name":value,…}` of the values that it gave: never more than there are."""
    spare = F.octet_length(F.col(_TEXT)) - 1
    for part in parts:
        witness, value = F.col(part.witness_name), F.col(part.value_name)
        length = part.reading.length(witness, value) if part.reading.length else F.lit(LEAST)
        spare = spare - F.when(value.isNull(), 0).otherwise(length + len(part.field.name.encode()) + 4)
    return spare


def _doubt(parts: list[_Part]) -> Column:
    shortest = min(_name_lengths(T.StructType([part.field for part in parts])))
    doubt = room_for_harm(F.col(_TEXT), F.col(_SPARE), shortest)
    for part in parts:
        if part.reading.doubted is not None:
            doubt = doubt | F.coalesce(part.reading.doubted(part.look(F.lit(None))), F.lit(False))
    return ~F.col(_BROKEN) & doubt


def _name_lengths(kind: T.DataType) -> Iterator[int]:
    """The bytes of each name that an object may have, at any depth; a MAP's may have any."""
    if isinstance(kind, T.StructType):
        for field in kind:
            yield len(field.name.encode())
            yield from _name_lengths(field.dataType)
    elif isinstance(kind, T.ArrayType):
        yield from _name_lengths(kind.elementType)
    elif isinstance(kind, T.MapType):
        yield 0
        yield from _name_lengths(kind.valueType)


def _wrong(parts: list[_Part]) -> Column:
    wrong = F.col(_BROKEN)
    # Bytes that are not UTF-8 leave a mark in a text, or stand in what no declared field needs: in an undeclared
    # field, or inside an array, a map or a struct.
    nested = any(isinstance(part.field.dataType, _NESTED) for part in parts)
    replaced = F.col(_SPARE) >= (1 if nested else SHORTEST_FIELD)
    for part in parts:
        witness, value = F.col(part.witness_name), F.col(part.value_name)
        if isinstance(part.reading.witness, T.StringType):
            replaced = replaced | F.coalesce(text_replaced(witness), F.lit(False))
        if part.reading.wrong is not None:
            wrong = wrong | F.coalesce(part.reading.wrong(witness, value), F.lit(False))
        if not part.field.nullable:
            wrong = wrong | value.isNull()
    return wrong | (replaced & ~F.is_valid_utf8(F.col(_TEXT)))


def _suspect(parts: list[_Part], end: str) -> Column:
    disproved = F.try_variant_get(_AGAIN, f"$[1].{end}", "int").isNull()
    for part in parts:
        look = part.look(F.col(_AGAIN))
        if part.reading.disproved is not None:
            disproved = disproved | F.coalesce(part.reading.disproved(look), F.lit(False))
    return F.coalesce(F.col(_WRONG) | (F.col(_DOUBT) & disproved), F.lit(True))


def _verdict(parts: list[_Part], seen: Column) -> Verdict:
    parsed, again = seen.getField("parsed"), seen.getField("again")
    looks: list[tuple[T.StructField, Reading, Look]] = []
    for part in parts:
        witness = parsed.getField(part.field.name)
        look = Look(
            name=part.field.name,
            text=seen.getField("text"),
            spare=F.lit(2**31 - 1),
            witness=witness,
            value=part.reading.value(witness),
            found=part.found(again),
        )
        looks.append((part.field, part.reading, look))
    broken = parsed.isNull() | parsed.getField("_kafka_broken").isNotNull()
    return Verdict(text=seen.getField("text"), again=again, broken=broken, looks=looks)
