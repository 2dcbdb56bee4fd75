"""Values of one format become columns: what every format's decoder gives, and those that take the value whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import pyarrow as pa

from kafka_assets.live.declared import declared
from kafka_assets.live.json_exact import Bad, ExactJson
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


def landed_type(kind: Any) -> Any:
    """A declared type as it lands: nothing in it says NOT NULL, as in what Spark gives."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, landed_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), landed_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(landed_type(kind.value_type))
    return kind


def landed_schema(fields: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(one.name, landed_type(one.type)) for one in fields])


class JsonValues:
    """JSON records."""

    def __init__(self, fields: pa.Schema) -> None:
        self.schema = landed_schema(fields)
        self._exact = ExactJson(fields)

    def read(self, values: Sequence[bytes | None]) -> Columns:
        found = [self._exact.read(value) for value in values]
        good = [one for one in found if not isinstance(one, Bad)]
        bad = {at: one.reason for at, one in enumerate(found) if isinstance(one, Bad)}
        columns = [
            pa.array([row[at] for row in good], cast("Any", self.schema.field(at).type))
            for at in range(len(self.schema))
        ]
        return Columns(pa.Table.from_arrays(columns, schema=self.schema), bad)


class WholeValues:
    """The whole value is the one field: text, or bytes."""

    def __init__(self, fields: pa.Schema) -> None:
        self.schema = landed_schema(fields)
        self._field = fields.field(0)

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
