"""One pass over Kafka's records by Spark's Python workers: rows, bad records, deletes and counts, out of one read.

What lands and what is bad is said in `decode/contract.py`: it is the one decoder, which live mode uses as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from kafka_assets.decode.batches import Upsert
from kafka_assets.decode.names import VALUE
from kafka_assets.decode.packets import KIND, PACKET, PACKETS, ROWS
from kafka_assets.decode.passage import CARRIED, rows_schema
from kafka_assets.decode.post import Address
from kafka_assets.schema import declared, landed_schema
from kafka_assets.slices import SliceKey
from kafka_assets.spark.source import OnWorkers, Raw
from kafka_assets.spark.traveling import worker
from kafka_assets.streams import Stream


def landed(
    raw: Raw,
    stream: Stream,
    carried: Sequence[str],
    slices: Sequence[SliceKey],
    *,
    needed: Sequence[str] = (),
    upsert: Upsert | None,
    room: int | None,
    mailbox: Address | None = None,
) -> DataFrame:
    """All that becomes of the records, as packets, or their names in the mailbox.

    A row without a value in a `needed` column is bad.
    """
    places = [(one.partition, one.start, one.end) for one in slices]
    fields = declared(stream.schema_, stream.format)
    frame, fetch = (_tasks(raw), raw.fetch) if isinstance(raw, OnWorkers) else (_given(raw), None)
    asked = (fetch, stream.format, list(carried), list(needed), places, upsert, room)
    work = worker("landed", fields, *asked) if mailbox is None else worker("put", fields, mailbox, *asked)
    return frame.mapInArrow(work, T.StructType(columns_of(PACKETS)))


def decode(
    raw: Raw,
    stream: Stream,
    slices: Sequence[SliceKey] = (),
    *,
    upsert: Upsert | None = None,
    room: int | None = None,
) -> DataFrame:
    """The same for a transform, whose rows have all that Kafka says of a record."""
    return landed(raw, stream, _carried(stream), slices, upsert=upsert, room=room)


def good(decoded: DataFrame, stream: Stream) -> DataFrame:
    """The records that a transform sees."""
    return rows_in(decoded, stream, [*landed_schema(declared(stream.schema_, stream.format)).names, *CARRIED])


def rows_in(decoded: DataFrame, stream: Stream, names: Sequence[str]) -> DataFrame:
    """These columns of the rows that `decode` gave; in mode upsert also `VALUE`, the bytes of their records' values."""
    rows = rows_schema(landed_schema(declared(stream.schema_, stream.format)), _carried(stream))
    found = decoded.where(F.col(KIND) == ROWS).select(PACKET)
    gives = T.StructType([field for field in columns_of(rows) if field.name in names])
    work = worker("unpacked", rows, gives.names)
    return _known(found, T.StructType([T.StructField(PACKET, T.BinaryType())])).mapInArrow(work, gives)


def beside(decoded: DataFrame) -> DataFrame:
    """The packets that are no rows."""
    return decoded.where(F.col(KIND) != ROWS)


def _carried(stream: Stream) -> list[str]:
    """What a row has beside the declared fields: in mode upsert it may turn out to have no key, and is bad then."""
    return [*CARRIED, *([] if stream.upsert is None else [VALUE])]


def columns_of(schema: object) -> list[T.StructField]:
    """Arrow's fields as Spark's."""
    return list(from_arrow_schema(schema, prefer_timestamp_ntz=True).fields)  # type: ignore[arg-type]


_KEY, _VALUE = T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())
_GIVEN = T.StructType(
    [
        T.StructField("value", T.BinaryType()),
        T.StructField("key", T.BinaryType()),
        T.StructField("headers", T.ArrayType(T.StructType([_KEY, _VALUE]))),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestampType", T.IntegerType()),
        T.StructField("timestamp", T.LongType()),
    ]
)
"""The columns that workers are given."""


def _tasks(raw: OnWorkers) -> DataFrame:
    """A row for each task, which is its number."""
    count = len(raw.ranges)
    return _known(raw.spark.range(0, count, 1, count), T.StructType([T.StructField("id", T.LongType(), False)]))


def _given(raw: DataFrame) -> DataFrame:
    """What workers read of the rows of a test's list."""
    given = raw.select(
        "value",
        "key",
        "headers",
        "partition",
        "offset",
        "timestampType",
        millis().alias("timestamp"),
    )
    return _known(given, _GIVEN)


def _known(frame: DataFrame, columns: T.StructType) -> DataFrame:
    """The frame, whose columns are these.

    A client of Spark Connect asks the server for them before it sends a function that reads them (4.2.0): the whole
    plan is analysed, once more for each query.
    """
    if "_cached_schema" in vars(frame):
        cast("Any", frame)._cached_schema = columns
    return frame


def millis() -> Column:
    """A record's timestamp in ms since 1970: Python has no year past 9999, and a producer's clock may.

    A negative one says that there is none.
    """
    millis = F.unix_millis("timestamp")
    return F.when(millis >= 0, millis)
