"""Records of an upsert stream that have no row: those that delete a key, and those that have none.

A NULL value deletes, in every format. Which key, only the record's own key can say:

- `key: [kafka_key]`: that key itself; text, where the transform casts `kafka_key` to STRING.
- One column: the whole Kafka key as UTF-8 text (`7`, `abc`, `"abc"`), or a JSON object that has the column.
  Text in quotes is read as JSON; a BINARY column takes the bytes as they are.
- Several columns, or `order_by` a column: a JSON object that has them all, under the names that the table has.

What cannot be told is quarantined. The transform sees none of these records, so a key that it makes of
something else than the Kafka key finds no row to delete.
"""

from __future__ import annotations

import json
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

from kafka_assets.errors import StreamError
from kafka_assets.records import KEY, OFFSET, PARTITION, TIMESTAMP
from kafka_assets.spark.decode import when
from kafka_assets.spark.decode_json import decode_json
from kafka_assets.streams import Stream, Upsert

_REASON = 300
_BYTES = ("key", "headers", "timestamp")


def valued(raw: DataFrame, stream: Stream) -> DataFrame:
    """The records that become rows: all of them, but in mode upsert those that have a value."""
    return raw if stream.upsert is None else raw.where(F.col("value").isNotNull())


def check_key(landed: T.StructType, upsert: Upsert) -> None:
    """Refuse a `kafka_key` that the transform made into something that no tombstone can be compared with."""
    if KEY in upsert.key and landed[KEY].dataType not in (T.BinaryType(), T.StringType()):
        raise StreamError(
            f"the transform makes kafka_key a {landed[KEY].dataType.simpleString().upper()}, and it is the table's key",
            why="a record that deletes carries it as bytes: it can stay so, or become text",
            cure="leave it BINARY, or cast it to STRING; or give the key another name, and declare that",
        )


def keyed(rows: pa.Table, upsert: Upsert) -> tuple[pa.Table, pa.Table]:
    """The rows that have their key and order value, and the places of those that do not."""
    missing: Any = pa.repeat(pa.scalar(False), rows.num_rows)
    for name in _needed(upsert):
        missing = cast("Any", pc.or_(missing, pc.is_null(rows.column(name))))
    there = cast("Any", pc.invert(missing))
    return rows.filter(there), rows.filter(missing).select([PARTITION, OFFSET])


def keyless(raw: DataFrame, landed: DataFrame, upsert: Upsert) -> DataFrame:
    """The records whose rows have no key or no order value, with their bytes and the reason."""
    missing = [F.when(F.col(name).isNull(), F.lit(name)) for name in _needed(upsert)]
    reason = F.concat(F.lit("the row has no value in "), F.concat_ws(", ", *missing), F.lit(", its key or order"))
    without = landed.select(
        F.col(PARTITION).cast("INT"), F.col(OFFSET).cast("BIGINT"), reason.alias("reason"), F.coalesce(*missing)
    ).toDF(PARTITION, OFFSET, "reason", "_kafka_missing")
    without = without.where(F.col("_kafka_missing").isNotNull())
    same = (F.col("partition") == F.col(PARTITION)) & (F.col("offset") == F.col(OFFSET))
    return raw.join(without, same).select(PARTITION, OFFSET, "reason", "value", *_BYTES)


def deletes_of(raw: DataFrame, landed: T.StructType, upsert: Upsert) -> DataFrame:
    """The records without a value: the key that each deletes with its order value, and why that cannot be told."""
    gone = raw.where(F.col("value").isNull())
    inside = [name for name in _needed(upsert) if name not in (KEY, TIMESTAMP)]
    fields = T.StructType([T.StructField(name, landed[name].dataType, nullable=False) for name in inside])
    reasons = [F.when(F.col("key").isNull(), F.lit("a tombstone without a key"))]
    not_text = F.when(~F.is_valid_utf8(F.col("key").cast("STRING")), _cannot("it is not valid UTF-8"))
    columns: dict[str, Column] = {}
    if KEY in upsert.key and landed[KEY].dataType == T.StringType():
        columns[KEY] = F.col("key").cast("STRING")
        reasons.append(not_text)
    elif KEY in upsert.key:
        columns[KEY] = F.col("key")
    if [field.dataType for field in fields] == [T.BinaryType()]:
        columns[inside[0]] = F.col("key")
    elif inside:
        # Asked of the key's own bytes: what is made of them is read as a value, with its invalid bytes replaced.
        reasons.append(not_text)
        alone = fields[0] if len(inside) == 1 and KEY not in upsert.key else None
        # The key is decoded as a value is, so that equal ones become equal.
        carrying = gone.select("partition", "offset", *_BYTES, _document(alone).alias("value"))
        gone, values, bad = decode_json(carrying, fields)
        columns |= dict(zip(inside, values, strict=True))
        # What stands there as the value is the key.
        reasons.append(F.when(bad.isNotNull(), _cannot(F.replace(bad, F.lit("the value"), F.lit("the key")))))
    if upsert.order_by == TIMESTAMP:
        columns[TIMESTAMP] = when()
        reasons.append(F.when(columns[TIMESTAMP].isNull(), _cannot("the record has no timestamp")))
    return gone.select(
        *(column.alias(name) for name, column in columns.items()),
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        F.coalesce(*reasons).alias("reason"),
        F.lit(None).cast("BINARY").alias("value"),
        *_BYTES,
    )


def _document(alone: T.StructField | None) -> Column:
    """The Kafka key as a JSON object: as it is, or made of a plain value where one column is all that is needed."""
    text = F.col("key").cast("STRING")
    if alone is None:
        return text.cast("BINARY")
    name = json.dumps(alone.name, ensure_ascii=False)
    quote = "'" if '"' in alone.name else '"'
    carries = F.try_variant_get(F.try_parse_json(text), f"$[{quote}{alone.name}{quote}]", "variant").isNotNull()
    as_json = F.concat(F.lit(f"{{{name}:"), text, F.lit("}"))
    as_text = F.to_json(F.struct(text.alias(alone.name)))
    is_json_text = text.rlike(r'\A\s*"') & F.try_parse_json(text).isNotNull()
    words = isinstance(alone.dataType, (T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType))
    # Nothing but one number or word: else a comma in it could make another object of it.
    simple = text.rlike(r"\A\s*[-+.\w]+\s*\z")
    plain = F.when(is_json_text, as_json).otherwise(as_text) if words else F.when(simple, as_json).otherwise(text)
    return F.when(carries, text).otherwise(plain).cast("BINARY")


def _cannot(why: Column | str) -> Column:
    said = F.lit(why) if isinstance(why, str) else why
    return F.left(F.concat(F.lit("a tombstone whose key does not tell what it deletes: "), said), F.lit(_REASON))


def _needed(upsert: Upsert) -> list[str]:
    return list(dict.fromkeys([*upsert.key, *([] if upsert.order_by == "offset" else [upsert.order_by])]))
