"""Values of one format become columns: what every format's decoder gives, and those that take the value whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kafka_assets.live.json_bulk import BulkJson
from kafka_assets.live.json_exact import Bad, ExactJson
from kafka_assets.schema import declared, landed_schema
from kafka_assets.streams import Stream


@dataclass(frozen=True)
class Columns:
    """The values of a batch: a row for each that is good, in their order, and why the others are bad."""

    rows: pa.Table
    bad: Mapping[int, str] = field(default_factory=dict[int, str])
    """By the value's place in the batch."""


class Values(Protocol):
    """One format."""

    schema: pa.Schema
    """The columns, all of them nullable."""

    def read(self, values: Sequence[bytes | None]) -> Columns: ...


def values_of(stream: Stream) -> Values:
    """How the values of a stream are read."""
    fields = declared(stream.schema_, stream.format)
    if stream.format == "json":
        return JsonValues(fields)
    return WholeValues(fields)


class JsonValues:
    """JSON records: in bulk, and those by themselves that cannot be read so."""

    def __init__(self, fields: pa.Schema) -> None:
        self.schema = landed_schema(fields)
        self._exact = ExactJson(fields)
        self.bulk = BulkJson(fields, self.schema, self._exact)

    def read(self, values: Sequence[bytes | None]) -> Columns:
        tables, places, left = self.bulk.read(values)
        if not left:
            return Columns(pa.concat_tables([self.schema.empty_table(), *tables]))
        bad: dict[int, str] = {}
        rows: list[list[Any]] = []
        good: list[int] = []
        for at in left:
            found = self._exact.read(values[at])
            if isinstance(found, Bad):
                bad[at] = found.reason
            else:
                rows.append(found)
                good.append(at)
        columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(self.schema.types)]
        table = pa.concat_tables([*tables, pa.Table.from_arrays(columns, schema=self.schema)])
        if tables and good:
            order: Any = np.argsort(np.concatenate([*places, np.array(good, dtype=np.int64)]), kind="stable")
            table = table.take(order)
        return Columns(table, bad)


class WholeValues:
    """The whole value is the one field: text, or bytes."""

    def __init__(self, fields: pa.Schema) -> None:
        self.schema = landed_schema(fields)
        self._field: Any = fields.field(0)

    def read(self, values: Sequence[bytes | None]) -> Columns:
        bad: dict[int, str] = {}
        name = self._field.name
        if not self._field.nullable and None in values:
            said = f"{name}: the value is null (a tombstone), and declared NOT NULL"
            bad.update((at, said) for at, value in enumerate(values) if value is None)
        column: Any = pa.array(values, pa.binary())
        if pa.types.is_string(self._field.type):
            try:
                column = column.cast(pa.string())
            except pa.ArrowInvalid:
                said = f"{name}: the value is not valid UTF-8"
                bad.update((at, said) for at, value in enumerate(values) if value is not None and not _is_text(value))
        if bad:
            kept = [value for at, value in enumerate(values) if at not in bad]
            column = pa.array(kept, pa.binary()).cast(self._field.type)
        return Columns(pa.Table.from_arrays([column], schema=self.schema), dict(sorted(bad.items())))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
