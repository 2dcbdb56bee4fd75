"""A JSON value as its record has it, for a reason: only its beginning is made, however long or deep it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from kafka_assets.live.json_text import Number

EXCERPT = 60


class _Mark(str):
    """What stands between values."""

    __slots__ = ()


_NO_MORE = object()


def shown(value: Any) -> str:
    """Numbers as they are written, texts in quotes."""
    if type(value) is str:
        return f'"{excerpt(value)}"'
    found, length, open_ones = list[str](), 0, [iter((value,))]
    while open_ones and length <= EXCERPT:
        one = next(open_ones[-1], _NO_MORE)
        if one is _NO_MORE:
            open_ones.pop()
        elif isinstance(one, dict | list):
            open_ones.append(_parts(one))
        else:
            found.append(one if isinstance(one, _Mark | Number) else _written(one))
            length += len(found[-1])
    return excerpt("".join(found))


def excerpt(text: str) -> str:
    return f"{text[:EXCERPT]}…" if len(text) > EXCERPT else text


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield _Mark("{")
        for at, (key, one) in enumerate(cast("dict[str, Any]", value).items()):
            yield _Mark(f"{',' if at else ''}{_written(key)}:")
            yield one
        yield _Mark("}")
        return
    yield _Mark("[")
    for at, one in enumerate(cast("list[Any]", value)):
        if at:
            yield _Mark(",")
        yield one
    yield _Mark("]")


def _written(value: Any) -> str:
    return json.dumps(value[: EXCERPT + 1] if isinstance(value, str) else value, ensure_ascii=False)
