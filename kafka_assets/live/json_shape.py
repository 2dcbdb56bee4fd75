"""Which fields a stream's records have beyond those that are declared, as they are met."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from kafka_assets.live.json_columns import NotBulk, witness_type
from kafka_assets.live.json_text import NotJson, Number, parse
from kafka_assets.schema import fields_of

MOST = 500
"""Undeclared fields that are kept in mind: Arrow makes a column of each."""
MANY = 30
SHARE = 4
"""An object of so many undeclared fields, of which a record has less than one in four and a new one beside them, is
keyed by something, such as an id: it has other fields in each record, and is learned no more."""
DEEPEST_KNOWN = 50
"""Levels that are looked at."""


@dataclass
class _Object:
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    declared: int = 0
    """So many of its fields, the first ones, are the schema's."""
    keyed: bool = False

    def is_keyed(self, held: Collection[str]) -> bool:
        met = sum(name in self.fields for name in held)
        return self.keyed or (self.undeclared >= MANY and met < len(held) and met * SHARE < len(self.fields))

    def forget(self) -> None:
        self.fields = dict(list(self.fields.items())[: self.declared])
        self.keyed = True

    @property
    def undeclared(self) -> int:
        return len(self.fields) - self.declared

    @property
    def kind(self) -> Any:
        return pa.struct([pa.field(name, one.kind) for name, one in self.fields.items()])


@dataclass
class _Array:
    item: Any

    @property
    def kind(self) -> Any:
        return pa.list_(self.item.kind)


@dataclass
class _Plain:
    kind: Any


_NOTHING = _Plain(pa.null())
"""What is always null, so far."""


class Shape:
    """The schema that Arrow reads with: the declared fields first, then what was learned, at every depth."""

    def __init__(self, fields: pa.Schema) -> None:
        self._declared: Any = pa.struct([pa.field(one.name, witness_type(one.type)) for one in fields_of(fields)])
        self._known: Any = _known(self._declared)
        self.schema: pa.Schema = pa.schema(fields_of(self._declared))
        self.has_more = False
        """Whether there are fields in it that are not declared, numbers perhaps."""

    def teaches(self, line: bytes) -> bool:
        """Whether a record has fields that are not known, and are worth it."""
        try:
            return _is_new(self._known, parse(line.decode()).value)
        except NotJson:
            return False

    def learn(self, line: bytes) -> None:
        """Take in the fields of one good record."""
        _learn(self._known, parse(line.decode()).value)
        while sum(one.undeclared for one in _objects(self._known)) > MOST:
            max(_objects(self._known), key=lambda one: one.undeclared).forget()
        self.schema = pa.schema(fields_of(self._known.kind))
        self.has_more = self._known.kind != self._declared

    def declared_part(self, number: int, column: Any) -> Any:
        """A column without what was learned."""
        return _without(column, self._declared.field(number).type)

    def check(self, found: pa.Table) -> None:
        """Undeclared numbers must be numbers: Arrow's reader takes NaN and Infinity as well."""
        if not self.has_more:
            return
        for name in found.column_names:
            _check(found.column(name).combine_chunks())


def _known(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        fields = {one.name: _known(one.type) for one in fields_of(kind)}
        return _Object(fields, declared=len(fields))
    return _Array(_known(kind.value_type)) if pa.types.is_list(kind) else _Plain(kind)


def _plain(value: Any) -> _Plain:
    number = isinstance(value, Number)
    return _Plain(pa.float64() if number else pa.bool_() if isinstance(value, bool) else pa.string())


def _objects(known: Any) -> Iterator[_Object]:
    if isinstance(known, _Array):
        yield from _objects(known.item)
    elif isinstance(known, _Object):
        yield known
        for one in known.fields.values():
            yield from _objects(one)


def _is_new(known: Any, value: Any, depth: int = 0) -> bool:
    """Whether `_learn` would change what is known."""
    if value is None or depth > DEEPEST_KNOWN:
        return False
    if isinstance(value, dict) and isinstance(known, _Object):
        for name, one in cast("dict[str, Any]", value).items():
            inner = known.fields.get(name)
            if (not known.keyed) if inner is None else _is_new(inner, one, depth + 1):
                return True
        return False
    if isinstance(value, list) and isinstance(known, _Array):
        return any(_is_new(known.item, one, depth + 1) for one in cast("list[Any]", value))
    return known is _NOTHING


def _learn(known: Any, value: Any, depth: int = 0) -> Any:
    """What is known after this value, too."""
    if value is None or depth > DEEPEST_KNOWN:
        return known
    if known is _NOTHING:
        known = _Object() if isinstance(value, dict) else _Array(_NOTHING) if isinstance(value, list) else _plain(value)
    # Of two kinds the first one stays: records with the other are read one by one.
    if isinstance(value, dict) and isinstance(known, _Object):
        held = cast("dict[str, Any]", value)
        if known.is_keyed(held):
            known.forget()
        for name, one in held.items():
            if name in known.fields or not known.keyed:
                known.fields[name] = _learn(known.fields.get(name, _NOTHING), one, depth + 1)
    elif isinstance(value, list) and isinstance(known, _Array):
        for one in cast("list[Any]", value):
            known.item = _learn(known.item, one, depth + 1)
    return known


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
