"""A batch of records as a source gives them, and what becomes of it: rows, bad records, and keys that are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.decode.codes import ENCODING
from kafka_assets.decode.contract import Reason, fields_of, reason
from kafka_assets.decode.decoder import decoder
from kafka_assets.decode.names import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, VALUE
from kafka_assets.decode.upserts import STAMP, Deletes, keyless

pc: Any = pyarrow.compute

HEADER_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
CARRIED: dict[str, pa.DataType] = {
    KEY: pa.binary(),
    TIMESTAMP: STAMP,
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: HEADER_TYPE,
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
}
"""What Kafka says of a record, for a transform to use and a table to be keyed by."""
_BESIDE = CARRIED | {VALUE: pa.binary()}

NO_HEADERS = reason(ENCODING, "the function is given headers, and the name of one is not valid UTF-8")
LEFT_OUT = "its headers are left out: the name of one is not valid UTF-8"

_THEIRS = {
    KEY: "key",
    TIMESTAMP: "timestamp",
    TIMESTAMP_TYPE: "timestampType",
    HEADERS: "headers",
    PARTITION: "partition",
    OFFSET: "offset",
    VALUE: "value",
}


class Found(NamedTuple):
    """What became of a batch."""

    rows: pa.Table
    places: np.ndarray[Any, Any] | None
    """The record of each row; None where all records are rows."""
    bad: dict[int, Reason]
    """By the record's place in the batch."""
    deletes: pa.Table | None
    deleted: np.ndarray[Any, Any]
    """The records that delete."""


class Reader:
    """One stream's records, batch after batch."""

    def __init__(
        self,
        declared: pa.Schema,
        format: str,
        carried: Sequence[str],
        *,
        needed: Sequence[str],
        deletes: Deletes | None,
    ) -> None:
        """`carried` stand beside the declared fields; a row without a value in a `needed` column is bad.

        `deletes`, of an upsert stream: its records without a value are no rows.
        """
        self._values = decoder(declared, format)
        self._carried = list(carried)
        self._needed = list(needed)
        self.deletes = deletes
        self.schema = rows_schema(self._values.schema, carried)

    def read(self, batch: Any) -> Found:
        """What becomes of the records of this batch, whose timestamps are milliseconds."""
        values = batch.column("value")
        places: np.ndarray[Any, Any] | None = None
        gone = np.empty(0, dtype=np.int64)
        if self.deletes is not None and values.null_count:
            null = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
            gone, places = np.flatnonzero(null), np.flatnonzero(~null)
            values = values.take(pa.array(places))
        decoded = self._values.read(values)
        bad = dict(decoded.bad) if places is None else {int(places[at]): why for at, why in decoded.bad.items()}
        if (good := decoded.good(len(values))) is not None:
            places = good if places is None else places[good]
        columns = [*decoded.rows.columns, *(column_of(batch, name, places) for name in self._carried)]
        rows = pa.Table.from_arrays(columns, schema=self.schema)
        if HEADERS in self._carried and len(untold := untold_of(batch)):
            every = _every(batch) if places is None else places
            kept = ~np.isin(every, untold)
            bad |= dict.fromkeys(every[~kept].tolist(), NO_HEADERS)
            rows, places = rows.filter(pa.array(kept)), every[kept]
        missing, reasons = keyless(rows, self._needed)
        if reasons:
            places = _every(batch) if places is None else places
            bad |= dict(zip(places[missing].tolist(), reasons, strict=True))
            rows, places = rows.filter(pa.array(~missing)), places[~missing]
        if self.deletes is None or not len(gone):
            return Found(rows, places, bad, None, gone)
        names = (KEY, TIMESTAMP, PARTITION, OFFSET)
        deletes, refused = self.deletes.read(*(column_of(batch, name, gone) for name in names))
        bad |= {int(gone[at]): why for at, why in refused.items()}
        return Found(rows, places, bad, deletes, np.delete(gone, list(refused)))


def untold_of(batch: Any) -> np.ndarray[Any, Any]:
    """The records whose headers the client could not give."""
    return np.flatnonzero(np.asarray(batch.column("untold")))


def _every(batch: Any) -> np.ndarray[Any, Any]:
    count: int = batch.num_rows
    return np.arange(count)


def rows_schema(landed: Any, carried: Sequence[str]) -> pa.Schema:
    """The columns of a stream's rows: the declared fields, and of what Kafka says these."""
    return pa.schema([*fields_of(landed), *(pa.field(name, _BESIDE[name]) for name in carried)])


def column_of(batch: Any, name: str, places: np.ndarray[Any, Any] | None = None) -> Any:
    """What Kafka says of the batch's records, or of those at these places."""
    column = batch.column(_THEIRS[name])
    if places is not None:
        column = column.take(pa.array(places))
    if name == TIMESTAMP:
        return column.cast(pa.timestamp("ms", "UTC")).cast(STAMP)
    if name == HEADERS:
        # No headers are NULL, and may come as an empty list.
        column = pc.if_else(pc.equal(pc.list_value_length(column), 0), pa.scalar(None, column.type), column)
    return column.cast(_BESIDE[name])
