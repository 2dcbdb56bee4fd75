"""Which fields a stream's records have beyond those that are declared, as they are met."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa

from kafka_assets.live.json_columns import NotBulk, witness_type
from kafka_assets.live.json_text import Number, parse
from kafka_assets.live.landed import fields_of

MOST = 500
"""Undeclared fields that are kept in mind: names that are made up for each record would fill it for ever."""


class Shape:
    """The schema that Arrow reads with: the declared fields first, then what was learned, at every depth."""

    def __init__(self, fields: pa.Schema) -> None:
        self._declared = pa.struct([pa.field(one.name, witness_type(one.type)) for one in fields_of(fields)])
        self._kind: Any = self._declared
        self._learned = 0

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(fields_of(self._kind))

    @property
    def has_numbers(self) -> bool:
        return self._kind != self._declared

    def learn(self, line: bytes) -> None:
        """Take in the fields of one good record."""
        self._kind = self._joined(self._kind, self._type_of(parse(line.decode()).value))

    def _joined(self, known: Any, met: Any) -> Any:
        if pa.types.is_null(known):
            return met
        if pa.types.is_struct(known) and pa.types.is_struct(met):
            fields = [pa.field(one.name, self._inner(one, met)) for one in fields_of(known)]
            new = [one for one in fields_of(met) if known.get_field_index(one.name) < 0]
            if self._learned + len(new) > MOST:
                new = []
            self._learned += len(new)
            return pa.struct([*fields, *new])
        if pa.types.is_list(known) and pa.types.is_list(met):
            return pa.list_(self._joined(known.value_type, met.value_type))
        # Of two kinds the first one stays: records with the other are read one by one.
        return known

    def _inner(self, one: Any, met: Any) -> Any:
        at = met.get_field_index(one.name)
        return one.type if at < 0 else self._joined(one.type, met.field(at).type)

    def _type_of(self, value: Any) -> Any:
        if isinstance(value, dict):
            held = cast("dict[str, Any]", value)
            return pa.struct([pa.field(name, self._type_of(one)) for name, one in held.items()])
        if isinstance(value, list):
            kind: Any = pa.null()
            for one in cast("list[Any]", value):
                kind = self._joined(kind, self._type_of(one))
            return pa.list_(kind)
        if isinstance(value, Number):
            return pa.float64()
        if value is None:
            return pa.null()
        return pa.bool_() if isinstance(value, bool) else pa.string()

    def declared_part(self, number: int, column: Any) -> Any:
        """A column without what was learned."""
        return _without(column, self._declared.field(number).type)

    def check(self, found: pa.Table) -> None:
        """Undeclared numbers must be numbers: Arrow's reader takes NaN and Infinity as well."""
        if self._kind == self._declared:
            return
        for name in found.column_names:
            _check(found.column(name).combine_chunks())


def _without(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        names = [one.name for one in fields_of(kind)]
        children = [_without(column.field(name), kind.field(at).type) for at, name in enumerate(names)]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields_of(kind), mask=mask)
    validity, offsets = column.buffers()[:2]
    return pa.Array.from_buffers(
        kind,
        len(column),
        [validity, offsets],
        null_count=column.null_count,
        children=[_without(column.values, kind.value_type)],
    )


def _check(column: Any) -> None:
    kind = column.type
    if pa.types.is_floating(kind):
        values = column.drop_null().to_numpy(zero_copy_only=False)
        if not np.isfinite(values).all():
            raise NotBulk
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            _check(column.field(at))
    elif pa.types.is_list(kind):
        _check(column.values)
