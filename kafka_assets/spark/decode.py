"""Kafka's bytes become typed columns, exactly, or the record is bad, with the reason in words: by Spark's workers.

What lands and what is bad is said in `decode/contract.py`: it is the one decoder, which live mode uses as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from kafka_assets.decode.batches import BAD, REASON
from kafka_assets.decode.contract import landed_schema
from kafka_assets.schema import declared
from kafka_assets.spark.traveling import worker

TOPIC = "kafka_topic"

CARRIED = {
    "kafka_key": "key",
    "kafka_timestamp": "timestamp",
    "kafka_timestamp_type": "timestampType",
    "kafka_headers": "headers",
    "kafka_partition": "partition",
    "kafka_offset": "offset",
    TOPIC: "topic",
}
HEADERS = T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]))
TYPES: dict[str, T.DataType] = {
    "key": T.BinaryType(),
    "value": T.BinaryType(),
    "timestamp": T.TimestampType(),
    "timestampType": T.IntegerType(),
    "headers": HEADERS,
    "partition": T.IntegerType(),
    "offset": T.LongType(),
    "topic": T.StringType(),
}
"""What the source gives."""


def decode(raw: DataFrame, *, format: str, schema: str, also: Sequence[str] = ()) -> DataFrame:
    """The declared fields, what Kafka says of the record, and `_kafka_bad`: NULL, or why the record is bad.

    `also` are further columns of the frame, whole numbers, which are kept beside.
    """
    fields = declared(schema, format)
    given = [(when() if theirs == "timestamp" else F.col(theirs)).alias(ours) for ours, theirs in CARRIED.items()]
    carried = [T.StructField(ours, TYPES[theirs]) for ours, theirs in CARRIED.items()]
    beside = [*carried, *(T.StructField(name, T.LongType()) for name in also)]
    work = worker("decoded", fields, format, [one.name for one in beside])
    gives = [*columns_of(landed_schema(fields)), *beside, T.StructField(BAD, T.StringType())]
    return raw.select("value", *given, *also).mapInArrow(work, T.StructType(gives))


def undecoded(raw: DataFrame, *, format: str, schema: str) -> DataFrame:
    """Only the bad records of the same raw frame, with their bytes and the reason: the second read."""
    theirs = {TOPIC: "topic", "kafka_partition": "partition", "kafka_offset": "offset"}
    theirs |= {name: name for name in ("key", "value", "headers", "timestamp")}
    beside = [T.StructField(ours, TYPES[name]) for ours, name in theirs.items()]
    work = worker("undecoded", declared(schema, format), format, list(theirs))
    read = raw.select(*(F.col(name).alias(ours) for ours, name in theirs.items()))
    return read.mapInArrow(work, T.StructType([*beside, T.StructField(REASON, T.StringType())]))


def columns_of(schema: object) -> list[T.StructField]:
    """Arrow's fields as Spark's."""
    return list(from_arrow_schema(schema, prefer_timestamp_ntz=True).fields)  # type: ignore[arg-type]


def when() -> Column:
    """A record's timestamp; a negative one says that there is none."""
    return F.when(F.unix_millis("timestamp") >= 0, F.col("timestamp"))


def millis() -> Column:
    """The same in ms since 1970: Python has no year past 9999, and a producer's clock may."""
    return F.unix_millis(when())
