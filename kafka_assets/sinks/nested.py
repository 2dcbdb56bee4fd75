"""Nested values as JSON, the same text in every database."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

Shaping = Callable[[Any], Any]


def json_texts(column: Any) -> list[str | None]:
    """A nested column, value by value. A MAP with text for keys is an object; of any other, a list of its pairs."""
    shape = shaping(column.type)
    values: list[Any] = column.to_pylist()
    return [None if value is None else json_text(value if shape is None else shape(value)) for value in values]


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain, separators=(",", ":"))


def shaping(kind: Any) -> Shaping | None:
    """What makes of a value, as Arrow gives it to Python, what JSON has for it; None where that is the same."""
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_struct(kind):
        return _struct(kind)
    return _list(kind) if pa.types.is_nested(kind) else None


def _map(kind: Any) -> Shaping:
    key, item = shaping(kind.key_type) or _as_it_is, shaping(kind.item_type) or _as_it_is
    if pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type):
        return _or_null(lambda pairs: {name: item(value) for name, value in pairs})
    return _or_null(lambda pairs: [[key(name), item(value)] for name, value in pairs])


def _struct(kind: Any) -> Shaping | None:
    fields = [kind.field(number) for number in range(kind.num_fields)]
    shapes = {field.name: shape for field in fields if (shape := shaping(field.type)) is not None}
    if not shapes:
        return None
    return _or_null(lambda value: {**value, **{name: shape(value[name]) for name, shape in shapes.items()}})


def _list(kind: Any) -> Shaping | None:
    each = shaping(kind.value_type)
    return None if each is None else _or_null(lambda values: [each(value) for value in values])


def leaves_of(kind: Any) -> Generator[Any]:
    """The plain types in a nested one; a plain one is its own."""
    if pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from leaves_of(kind.field(number).type)
    else:
        yield kind


def timestamp_text(value: datetime) -> str:
    """UTC, so that text sorts as time does; without a zone, as it stands."""
    plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return plain.isoformat(sep=" ", timespec="microseconds")


def _or_null(shape: Shaping) -> Shaping:
    return lambda value: None if value is None else shape(value)


def _as_it_is(value: Any) -> Any:
    return value


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return timestamp_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no JSON form here")
