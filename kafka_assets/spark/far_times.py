"""Records whose timestamp Spark's Kafka source cannot hold: milliseconds past the year 294,247, or before -290,308.

A producer that gives nanoseconds writes such, and the source fails for all that it was asked for. What such a record
stands beside is then read by this process, as any consumer reads it, and given to Spark; it has no timestamp there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException

from kafka_assets.broker.headers import told
from kafka_assets.broker.read import StoredRecord
from kafka_assets.records import LATEST

if TYPE_CHECKING:
    from kafka_assets.spark.chunks import Read

LOGGER = logging.getLogger("kafka_assets.spark")

Used = TypeVar("Used")

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_RAW: Any = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(_HEADER)),
    ]
)
"""What the source gives."""

_SAID = ("overflows when converting to Spark's microsecond", "java.lang.ArithmeticException: long overflow")
"""By Spark 4.2, and before."""


def around_far_times(use: Callable[[Read], Used], *, read: Read, read_here: Read) -> Used:
    """What is made of records as the source reads them; of those that it cannot, as this process does."""
    try:
        return use(read)
    except PySparkException as error:
        if not is_of_a_far_time(error):
            raise
    return use(read_here)


def is_of_a_far_time(error: PySparkException) -> bool:
    """Whether such a record is what Spark failed for; it is told in the log, and this process is to read it."""
    if not any(words in str(error) for words in _SAID):
        return False
    LOGGER.warning("a record's timestamp is past what Spark can read: the client reads its slices instead")
    return True


def raw_table(records: Iterable[StoredRecord]) -> pa.Table:
    """Records as the source would give them."""
    rows = list(records)
    columns: list[Any] = [
        [one.key for one in rows],
        [one.value for one in rows],
        [one.topic for one in rows],
        [one.partition for one in rows],
        [one.offset for one in rows],
        [one.timestamp_ms * 1000 if 0 <= one.timestamp_ms <= LATEST else None for one in rows],
        [-1 if one.timestamp_ms < 0 else one.timestamp_type for one in rows],
        [[{"key": name, "value": value} for name, value in told(one.headers)] or None for one in rows],
    ]
    arrays: Any = [pa.array(one, kind) for one, kind in zip(columns, _RAW.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_RAW)
