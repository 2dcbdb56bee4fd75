"""JSON records in one pass of from_json, and a second look at the few that it may have read wrongly.

from_json ignores what follows the first object, takes the last of two equal keys, turns a lone surrogate into `?`
and an object into text, all without a word. So:

1. The value is parsed inside `{"r": [value, {}]}`, with names nobody can guess: text after the object, or a second
   one, breaks that frame.
2. A record in *doubt* is parsed again by try_parse_json, which refuses equal keys and lone surrogates, and knows a
   number from a text. Doubt is cheap to rule out: where the value is hardly longer than its fields written compactly,
   there is no room for a second key, and an escape like \\ud800 needs five more bytes than it gives.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

from kafka_assets.spark.decode_fields import Reading, reading

EXCERPT = 60
ESCAPE_BYTES = 5
KEY_BYTES = 5
"""What a second key costs beside its name: two quotes, a colon, a comma and a value of one byte."""

_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "broken",
    "allowSingleQuotes": "false",
    "allowUnquotedFieldNames": "false",
    "allowComments": "false",
    "allowNumericLeadingZeros": "false",
    "allowNonNumericNumbers": "false",
    "allowBackslashEscapingAnyCharacter": "false",
    "allowUnquotedControlChars": "false",
}
_TEXT, _FRAME, _BROKEN, _AGAIN = "_kafka_text", "_kafka_frame", "_kafka_broken", "_kafka_again"
_BOM = "\ufeff"
_LONE_SURROGATE = (
    r"(?i)(?<!\\)(?:\\\\)*(?:\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2})"
    r"|(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2})"
)


@dataclass(frozen=True)
class Declared:
    """One top-level field on its way: its witness and its value are columns of the intermediate frames."""

    field: T.StructField
    reading: Reading
    number: int

    @property
    def witness(self) -> Column:
        return F.col(f"_kafka_witness_{self.number}")

    @property
    def value(self) -> Column:
        return F.col(f"_kafka_value_{self.number}")

    @property
    def wrong(self) -> Column:
        if self.reading.wrong is None:
            return F.lit(False)
        return F.coalesce(self.reading.wrong(self.witness, self.value), F.lit(False))

    @property
    def again(self) -> Column:
        quote = "'" if '"' in self.field.name else '"'
        return F.try_variant_get(_AGAIN, f"$[{quote}{self.field.name}{quote}]", "variant")

    def says(self, what: str) -> Column:
        return F.lit(f"{self.field.name}: {what}")

    def misses(self, text: Column) -> Column:
        kind = self.field.dataType.simpleString().upper()[:100]
        return F.concat(
            self.says(""), F.coalesce(_excerpt(text), F.lit("its value")), F.lit(f" does not fit {kind} exactly")
        )


def decode_json(raw: DataFrame, fields: T.StructType) -> tuple[DataFrame, list[Column], Column]:
    """The frame to select from, the declared fields in it, and the reason why a record is bad."""
    parts = [Declared(field, reading(field.dataType), number) for number, field in enumerate(fields)]
    read = _values(_witnesses(raw, parts), parts)
    doubt = _in_doubt(parts)
    read = read.withColumn(_AGAIN, F.when(F.col(_BROKEN) | doubt, F.try_parse_json(F.col(_TEXT))))
    reasons = F.coalesce(
        F.when(F.col("value").isNull(), F.lit("the value is null (a tombstone)")),
        F.when(~F.is_valid_utf8(F.col(_TEXT)), F.lit("the value is not valid UTF-8")),
        F.when(F.col(_BROKEN), _why_broken(parts)),
        *(F.when(part.wrong, part.misses(part.witness.cast("STRING"))) for part in parts if part.reading.wrong),
        *(
            F.when(part.value.isNull(), part.says("missing or null, and declared NOT NULL"))
            for part in parts
            if not part.field.nullable
        ),
        F.when(doubt, _why_doubted(parts)),
    )
    return read, [part.value.alias(part.field.name) for part in parts], reasons


def _witnesses(raw: DataFrame, parts: list[Declared]) -> DataFrame:
    mark = secrets.token_hex(8)
    record, end = f"r{mark}", f"e{mark}"
    inner = T.StructType([T.StructField(part.field.name, part.reading.witness) for part in parts])
    frame = T.StructType([T.StructField(record, T.ArrayType(inner.add(end, T.IntegerType())))]).add("broken", "string")
    text = F.col("value").cast("STRING")
    framed = F.concat(F.lit(f'{{"{record}":['), text, F.lit(f',{{"{end}":1}}]}}'))
    parsed = raw.select("*", text.alias(_TEXT), F.from_json(framed, frame, _OPTIONS).alias(_FRAME))
    items = F.col(_FRAME).getField(record)
    first = F.get(items, F.lit(0))
    whole = (
        F.col(_FRAME).getField("broken").isNull()
        & (F.size(items) == 2)
        & first.isNotNull()
        & F.get(items, F.lit(1)).getField(end).isNotNull()
    )
    return parsed.select(
        *raw.columns,
        _TEXT,
        (~F.coalesce(whole, F.lit(False))).alias(_BROKEN),
        *(first.getField(part.field.name).alias(f"_kafka_witness_{part.number}") for part in parts),
    )


def _values(witnessed: DataFrame, parts: list[Declared]) -> DataFrame:
    return witnessed.select(
        "*", *(part.reading.value(part.witness).alias(f"_kafka_value_{part.number}") for part in parts)
    )


def _in_doubt(parts: list[Declared]) -> Column:
    spare = F.octet_length(F.col(_TEXT)) - 1
    for part in parts:
        # A nested value has a length of its own kind; two bytes are the least that it takes.
        least = part.reading.length(part.witness, part.value) if part.reading.length else F.lit(2)
        key = len(part.field.name.encode()) + 4
        spare = spare - F.when(part.value.isNull(), 0).otherwise(least + key)
    shortest = min(len(part.field.name.encode()) for part in parts)
    room = (spare >= shortest + KEY_BYTES) | ((spare >= ESCAPE_BYTES) & F.contains(F.col(_TEXT), F.lit("\\u")))
    for part in parts:
        if part.reading.loose:
            room = room | F.coalesce(_may_be_no_text(part.witness), F.lit(False))
        elif isinstance(part.field.dataType, T.DoubleType):
            room = room | F.coalesce(_may_be_changed(part.value), F.lit(False))
    return ~F.col(_BROKEN) & room


def _may_be_no_text(witness: Column) -> Column:
    """A number, an object, an array or a boolean, once it is text, begins like this; most texts do not."""
    number = (witness >= "-") & (witness < ":") & witness.rlike(r"\A-?\d+(?:\.\d+)?(?:E-?\d+)?\z")
    return (
        number | F.startswith(witness, F.lit("{")) | F.startswith(witness, F.lit("[")) | witness.isin("true", "false")
    )


def _may_be_changed(value: Column) -> Column:
    """Past 2^53 not every integer is a double; and a zero may be a number that was too small."""
    small = (value == 0) & F.contains(F.lower(F.col(_TEXT)), F.lit("e-"))
    return (F.abs(value) >= 2**53) | small


def _why_doubted(parts: list[Declared]) -> Column:
    reasons = [F.when(F.col(_AGAIN).isNull(), _why_unreadable())]
    for part in parts:
        if part.reading.loose:
            other = F.schema_of_variant(part.again) != "STRING"
            reasons.append(F.when(part.witness.isNotNull() & other, part.misses(part.witness)))
        elif isinstance(part.field.dataType, T.DoubleType):
            reasons.append(F.when(_is_changed(part), part.misses(part.again.cast("STRING"))))
    return F.coalesce(*reasons)


def _is_changed(part: Declared) -> Column:
    kind = F.schema_of_variant(part.again)
    whole = F.try_variant_get(part.again, "$", "decimal(38,0)")
    same = (part.value.try_cast("DECIMAL(38,0)") == whole) | (part.value.try_cast("BIGINT") == whole)
    integer = (kind == "BIGINT") | F.endswith(kind, F.lit(",0)"))
    lost = (F.abs(part.value) >= 2**53) & integer & ~F.coalesce(same, F.lit(False))
    return lost | ((part.value == 0) & (kind == "DOUBLE"))


def _why_unreadable() -> Column:
    text = F.col(_TEXT)
    return (
        F.when(text.rlike(_LONE_SURROGATE), F.lit("the value holds half of a surrogate pair (\\ud800..\\udfff)"))
        .when(F.octet_length(text) > 2**24 - 2**16, F.lit("the value is too big to be checked for equal keys"))
        .otherwise(F.lit("a key stands twice in one object"))
    )


def _why_broken(parts: list[Declared]) -> Column:
    text = F.col(_TEXT)
    start = F.ltrim(text)
    # The same frame as in the first pass: where it does not hold, something stands after the object.
    framed = F.try_parse_json(F.concat(F.lit('{"r":['), text, F.lit(',{"e":1}]}')))
    sound = (
        F.try_variant_get(framed, "$.r[1].e", "int").isNotNull()
        & F.try_variant_get(framed, "$.r[2]", "variant").isNull()
    )
    fields = [
        F.when(
            part.witness.isNull() & (F.schema_of_variant(part.again) != "VOID"), part.misses(part.again.cast("STRING"))
        )
        for part in parts
    ]
    return F.coalesce(
        F.when(F.octet_length(text) == 0, F.lit("the value is empty")),
        F.when(text.rlike(r"\A\s+\z"), F.lit("the value is only white space")),
        F.when(F.startswith(text, F.lit(_BOM)), F.lit("the value begins with a byte order mark, not with {")),
        F.when(~F.startswith(start, F.lit("{")), F.concat(F.lit("the value is not a JSON object: "), _excerpt(start))),
        F.when(
            F.col(_AGAIN).isNull(),
            F.when(text.rlike(_LONE_SURROGATE), _why_unreadable()).otherwise(
                F.lit("the value is not valid JSON (or a key stands twice in one object)")
            ),
        ),
        F.when(~F.coalesce(sound, F.lit(False)), F.lit("there is text after the JSON object, or a second object")),
        *fields,
        F.lit("the value is not valid JSON"),
    )


def _excerpt(text: Column) -> Column:
    return F.when(F.char_length(text) > EXCERPT, F.concat(F.left(text, F.lit(EXCERPT)), F.lit("…"))).otherwise(text)
