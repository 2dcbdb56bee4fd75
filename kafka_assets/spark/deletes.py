"""Records of an upsert stream that have no row: those that delete a key, and those that have none.

A NULL value deletes, in every format; which key, `decode/tombstones.py` reads out of the record's own key. What cannot
be told is quarantined. The transform sees none of these records, so a key that it makes of something else than the
Kafka key finds no row to delete.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from kafka_assets.decode.batches import REASON, TOLD
from kafka_assets.decode.tombstones import NO_TIME, Tombstones
from kafka_assets.errors import StreamError
from kafka_assets.records import KEY, OFFSET, PARTITION, TIMESTAMP
from kafka_assets.spark.decode import TYPES, columns_of, when
from kafka_assets.spark.traveling import worker
from kafka_assets.streams import Stream, Upsert

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
    for name in upsert.needed:
        missing = cast("Any", pc.or_(missing, pc.is_null(rows.column(name))))
    there = cast("Any", pc.invert(missing))
    return rows.filter(there), rows.filter(missing).select([PARTITION, OFFSET])


def keyless(raw: DataFrame, landed: DataFrame, upsert: Upsert) -> DataFrame:
    """The records whose rows have no key or no order value, with their bytes and the reason."""
    missing = [F.when(F.col(name).isNull(), F.lit(name)) for name in upsert.needed]
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
    names = [name for name in upsert.needed if name != TIMESTAMP]
    whole_key = KEY if KEY in upsert.key else None
    told = to_arrow_schema(T.StructType([landed[name] for name in names]), timezone="UTC")
    theirs = {
        PARTITION: "partition",
        OFFSET: "offset",
        **{name: name for name in ("key", "value", "headers", "timestamp")},
    }
    stamped: dict[str, Column] = {TIMESTAMP: when()} if upsert.order_by == TIMESTAMP else {}
    beside = [
        *(T.StructField(name, T.TimestampType()) for name in stamped),
        *(T.StructField(ours, TYPES[name]) for ours, name in theirs.items()),
    ]
    work = worker("deletes", told, names, whole_key, [one.name for one in beside])
    given = [column.alias(name) for name, column in stamped.items()]
    read = gone.select(*given, *(F.col(name).alias(ours) for ours, name in theirs.items()))
    given_by_key = columns_of(Tombstones(told, names, whole_key=whole_key).schema)
    gives = [*(T.StructField(TOLD + one.name, one.dataType) for one in given_by_key), *beside]
    found = read.mapInArrow(work, T.StructType([*gives, T.StructField(REASON, T.StringType())]))
    if not stamped:
        return found
    untimed = F.when(F.col(TIMESTAMP).isNull(), F.lit(NO_TIME.words))
    return found.withColumn(REASON, F.coalesce(REASON, untimed))
