"""A stream's values become columns, whatever their format."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kafka_assets.decode.contract import Decoded, Reason, landed_schema
from kafka_assets.decode.json_bulk import BulkJson
from kafka_assets.decode.json_exact import ExactJson
from kafka_assets.decode.text import WholeValue


class Decoder(Protocol):
    """One format and its declared fields."""

    schema: pa.Schema
    """The columns that it gives, all of them nullable."""

    def read(self, values: Any) -> Decoded:
        """What becomes of these values: a binary array, null where a record has none."""
        ...


def decoder(declared: pa.Schema, format: str) -> Decoder:
    """The decoder of a format, `json`, `string` or `bytes`; of the last two the schema has one field."""
    return JsonValues(declared) if format == "json" else WholeValue(declared)


class JsonValues:
    """JSON records: in bulk, and those by themselves that cannot be read so."""

    def __init__(self, declared: pa.Schema) -> None:
        self.schema = landed_schema(declared)
        self.exact = ExactJson(declared)
        self.bulk = BulkJson(declared)

    def read(self, values: Any) -> Decoded:
        found = self.bulk.read(values)
        if not found.exact:
            return Decoded(found.rows(self.schema))
        bad: dict[int, Reason] = {}
        rows: list[list[Any]] = []
        good: list[int] = []
        left = values if len(found.exact) == len(values) else values.take(pa.array(found.exact, pa.int64()))
        for at, value in zip(found.exact, left.to_pylist(), strict=True):
            one = self.exact.read(value)
            if isinstance(one, Reason):
                bad[at] = one
            else:
                rows.append(one)
                good.append(at)
        columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(self.schema.types)]
        found.tables.append(pa.Table.from_arrays(columns, schema=self.schema))
        found.places.append(np.array(good, dtype=np.int64))
        return Decoded(found.rows(self.schema), bad)
