"""Kafka's bytes become typed columns, exactly, or the record is bad, with the reason in words.

Only expressions of Spark's JVM, the same on classic sessions and Spark Connect; no record makes the query fail.

What lands, in format json
- One JSON object, strictly written, in valid UTF-8; a key twice in one object, half a surrogate pair, or anything
  after the object is bad. Names match exactly. A field that is missing or null lands as NULL, unless the schema says
  NOT NULL; fields that are not declared are ignored.
- Whole numbers: digits only (1.0 and 1e2 are bad). DECIMAL: any way to write a number that fits exactly.
- STRING: only JSON strings; NUL stays in them (which database takes it, the sink knows). BINARY: padded base64.
- DATE as 2024-02-29; TIMESTAMP as 2024-02-29T23:59:59[.999999][Z|+05:30], with a space for T if need be, taken as
  UTC where it has no zone, whatever the session's zone is; TIMESTAMP_NTZ the same without a zone. Years 1 to 9999.

Exact, and bad all the same
- A quoted number; a number for a timestamp; a timestamp without seconds.
- An exponent in a DECIMAL of more than 32 digits or inside an array, map or struct; a DECIMAL written with more than
  38 digits; with an exponent beside an ASCII letter escaped as \\u0041, or with a mantissa of 38 - precision digits.
- A zero with a negative exponent for a DOUBLE or FLOAT. A FLOAT that is neither the 32-bit number nor its shortest
  text (a number with %.9g: declare DOUBLE). An integer from 2^116 on for a DOUBLE, unless it is as a double prints.
- JSON nested more than 1,000 deep, a number of more than 1,000 digits, a string of more than 20 million characters;
  from 16 MiB on, a record that needs a second look.

NOT guaranteed
- A fraction for a DOUBLE lands as the nearest double, as does an integer of more than 38 digits or with an exponent.
- Inside an array, map or struct the zero -0.0 lands as 0.0.
- A key twice, or half a surrogate pair, goes unnoticed where it stands only in fields that are not declared and the
  record is short; what lands is the same.
- Which reason is told where several hold; its words may change.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

from kafka_assets.spark.decode_json import decode_json
from kafka_assets.spark.decode_schema import declared

BAD = "_kafka_bad"
TOPIC = "kafka_topic"
REASON_CHARACTERS = 300

CARRIED = {
    "kafka_key": "key",
    "kafka_timestamp": "timestamp",
    "kafka_timestamp_type": "timestampType",
    "kafka_headers": "headers",
    "kafka_partition": "partition",
    "kafka_offset": "offset",
    TOPIC: "topic",
}


def decode(raw: DataFrame, *, format: str, schema: str, also: Sequence[Column] = ()) -> DataFrame:
    """The declared fields, what Kafka says of the record, and `_kafka_bad`: NULL, or why the record is bad.

    `also` are further columns, of what the source gave.
    """
    read, values, bad = _read(raw, format=format, schema=schema)
    carried = [(when() if theirs == "timestamp" else F.col(theirs)).alias(ours) for ours, theirs in CARRIED.items()]
    return read.select(*values, *carried, bad.alias(BAD), *also)


def when() -> Column:
    """A record's timestamp; a negative one says that there is none."""
    return F.when(F.unix_millis("timestamp") >= 0, F.col("timestamp"))


def millis() -> Column:
    """The same in ms since 1970: Python has no year past 9999, and a producer's clock may."""
    return F.unix_millis(when())


def undecoded(raw: DataFrame, *, format: str, schema: str) -> DataFrame:
    """Only the bad records of the same raw frame, with their bytes and the reason: the second read."""
    read, _, bad = _read(raw, format=format, schema=schema)
    found = read.select(
        F.col("topic").alias(TOPIC),
        F.col("partition").alias("kafka_partition"),
        F.col("offset").alias("kafka_offset"),
        bad.alias("reason"),
        "key",
        "value",
        "headers",
        "timestamp",
    )
    return found.where(F.col("reason").isNotNull())


def _read(raw: DataFrame, *, format: str, schema: str) -> tuple[DataFrame, list[Column], Column]:
    fields = declared(schema, format)
    if format == "json":
        read, values, bad = decode_json(raw, fields)
    else:
        read, values, bad = _whole(raw, fields.fields[0], text=format == "string")
    # Never true, but the optimizer cannot know: else a filter on the reason is pushed below the parsing, which
    # then happens several times for each record.
    barrier = F.when(F.rand(0) < 0, F.lit(""))
    return read, values, F.coalesce(F.left(bad, F.lit(REASON_CHARACTERS)), barrier)


def _whole(raw: DataFrame, field: T.StructField, *, text: bool) -> tuple[DataFrame, list[Column], Column]:
    value = F.col("value").cast("STRING") if text else F.col("value")
    invalid = ~F.is_valid_utf8(value) if text else F.lit(False)
    absent = F.lit(not field.nullable) & value.isNull()
    bad = F.coalesce(
        F.when(invalid, F.lit(f"{field.name}: the value is not valid UTF-8")),
        F.when(absent, F.lit(f"{field.name}: the value is null (a tombstone), and declared NOT NULL")),
    )
    return raw, [value.alias(field.name)], bad
