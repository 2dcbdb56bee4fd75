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

from kafka_assets.decode.batches import HEADER_KEYS, HEADER_VALUES, Upsert
from kafka_assets.decode.names import VALUE
from kafka_assets.decode.packets import KIND, PACKET, PACKETS
from kafka_assets.decode.passage import CARRIED, rows_schema
from kafka_assets.decode.post import Address
from kafka_assets.schema import declared, landed_schema
from kafka_assets.slices import SliceKey
from kafka_assets.spark.traveling import worker
from kafka_assets.streams import Stream


def landed(
    raw: DataFrame,
    stream: Stream,
    carried: Sequence[str],
    slices: Sequence[SliceKey],
    *,
    upsert: Upsert | None,
    room: int | None,
    mailbox: Address | None = None,
) -> DataFrame:
    """All that becomes of the records, as packets, where they land as they come; or their names in the mailbox."""
    work = worker("landed", *_asked(stream, carried, slices, upsert, room), mailbox)
    return _given(raw).mapInArrow(work, T.StructType(columns_of(PACKETS)))


def decode(
    raw: DataFrame,
    stream: Stream,
    slices: Sequence[SliceKey] = (),
    *,
    upsert: Upsert | None = None,
    room: int | None = None,
) -> DataFrame:
    """The rows of the good records, with all that Kafka says of them; the rest in rows of its own, as packets.

    In mode upsert with the bytes of their values: a row may turn out to have no key.
    """
    names = [*CARRIED, *([] if upsert is None else [VALUE])]
    work = worker("decoded", *_asked(stream, names, slices, upsert, room))
    gives = rows_schema(landed_schema(declared(stream.schema_, stream.format)), names)
    return _given(raw).mapInArrow(work, T.StructType([*columns_of(gives), *columns_of(PACKETS)]))


def good(decoded: DataFrame) -> DataFrame:
    """The records that a transform sees."""
    return decoded.where(F.col(KIND).isNull()).drop(KIND, PACKET, VALUE)


def beside(decoded: DataFrame) -> DataFrame:
    """The packets."""
    return decoded.where(F.col(KIND).isNotNull()).select(KIND, PACKET)


def columns_of(schema: object) -> list[T.StructField]:
    """Arrow's fields as Spark's."""
    return list(from_arrow_schema(schema, prefer_timestamp_ntz=True).fields)  # type: ignore[arg-type]


def _asked(
    stream: Stream, carried: Sequence[str], slices: Sequence[SliceKey], upsert: Upsert | None, room: int | None
) -> tuple[Any, ...]:
    places = [(one.partition, one.start, one.end) for one in slices]
    return declared(stream.schema_, stream.format), stream.format, list(carried), places, upsert, room


_GIVEN = T.StructType(
    [
        T.StructField("value", T.BinaryType()),
        T.StructField("key", T.BinaryType()),
        T.StructField(HEADER_KEYS, T.ArrayType(T.StringType())),
        T.StructField(HEADER_VALUES, T.ArrayType(T.BinaryType())),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestampType", T.IntegerType()),
        T.StructField("timestamp", T.LongType()),
        T.StructField("fingerprint", T.LongType()),
    ]
)
"""What the workers read of the source's columns."""


def _given(raw: DataFrame) -> DataFrame:
    """What the workers read of the source's columns."""
    given = raw.select(
        "value",
        "key",
        # Before each record Spark (4.2.0) asks how large its Arrow batch has become. Of a list it then fills in all
        # NULLs at its end anew: so there are none. And of a list of structs that took a fifth of its tasks' time.
        _listed("key", HEADER_KEYS),
        _listed("value", HEADER_VALUES),
        "partition",
        "offset",
        "timestampType",
        millis().alias("timestamp"),
        _fingerprint().alias("fingerprint"),
    )
    # A client of Spark Connect asks the server which columns these are before it sends a function for them (4.2.0):
    # the whole plan is analysed, once more for each read.
    if "_cached_schema" in vars(given):
        cast("Any", given)._cached_schema = _GIVEN
    return given


def _listed(part: str, name: str) -> Column:
    """One part of each of a record's headers, as the column of this name."""
    return F.coalesce(F.col("headers")[part], F.array().cast(_GIVEN[name].dataType)).alias(name)


def millis() -> Column:
    """A record's timestamp in ms since 1970: Python has no year past 9999, and a producer's clock may.

    A negative one says that there is none.
    """
    millis = F.unix_millis("timestamp")
    return F.when(millis >= 0, millis)


def _fingerprint() -> Column:
    """A hash of a record: its place is in it, so that no two are equal and cancel each other out.

    Key and value have the offset between them: a NULL leaves no trace, and could be the one or the other.
    """
    return F.xxhash64("key", "offset", "value", "partition")
