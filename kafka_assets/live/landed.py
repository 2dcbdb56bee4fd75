"""Declared types as they land: nothing in them says NOT NULL, as in what Spark gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def fields_of(kind: Any) -> list[Any]:
    """The fields of a schema, or of a STRUCT."""
    return list(kind)


def landed_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, landed_type(one.type)) for one in fields_of(kind)])
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), landed_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(landed_type(kind.value_type))
    return kind


def landed_schema(fields: Any) -> pa.Schema:
    return pa.schema([pa.field(one.name, landed_type(one.type)) for one in fields_of(fields)])
