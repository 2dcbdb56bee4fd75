"""Arrow as lines of text, a column after the other: what COPY and LOAD DATA read.

Tab between fields, newline after rows, backslash before both and before itself, NULL as \\N: the
two databases agree on it. Everything but nested values is made column by column, without Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from kafka_assets.sinks.nested import json_texts
from kafka_assets.sinks.parts import filled

MAX_ROWS = 50_000
"""Rows that are lines at the same time: few enough to stay small, enough to pay nothing per batch."""

_TEXT = pa.large_string()  # 32-bit offsets would end at 2 GiB
_NAIVE = pa.timestamp("us")
_ESCAPES = ((b"\\", "\\\\"), (b"\t", "\\t"), (b"\n", "\\n"), (b"\r", "\\r"), (b"\0", "\\0"))


@dataclass(frozen=True)
class Spelling:
    """Where the databases differ."""

    true: str
    false: str
    bytes_prefix: str
    """What stands before the hexadecimal digits of a binary value."""
    widens_floats: bool
    """Whether a 32-bit float is written as the double that it is: not every digit of it, else."""


def lines(rows: pa.Table, columns: Sequence[str], *, last: int, spelling: Spelling) -> Iterator[tuple[memoryview, int]]:
    """The rows as lines, each ended with the number `last`; in bounded parts, with the rows that each has."""
    end = pa.scalar(f"{last}\n", _TEXT)
    for batch in filled(rows.select(list(columns)), most=MAX_ROWS):
        parts: list[Any] = cast("list[Any]", batch.columns)
        yield _joined([*(_field(column, spelling) for column in parts), end]), batch.num_rows


def _joined(fields: list[Any]) -> memoryview:
    join: Any = pc.binary_join_element_wise
    joined = join(*fields, pa.scalar("\t", _TEXT), null_handling="replace", null_replacement="\\N")
    # The values of a text column lie one after the other: that is the file.
    _, offsets, characters = joined.buffers()
    places = memoryview(offsets).cast("q")
    return memoryview(characters)[places[joined.offset] : places[joined.offset + len(joined)]]


def _field(column: Any, spelling: Spelling) -> Any:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _escaped(column.cast(_TEXT))
    if pa.types.is_nested(kind):
        return _escaped(pa.array(json_texts(column), _TEXT))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _hexadecimal(column.cast(pa.large_binary()), spelling.bytes_prefix)
    if pa.types.is_boolean(kind):
        return pc.if_else(column, pa.scalar(spelling.true, _TEXT), pa.scalar(spelling.false, _TEXT))
    if pa.types.is_timestamp(kind):
        # Without its zone it reads as UTC, which the session's time zone is.
        column = column.cast(pa.timestamp("us", kind.tz)).view(_NAIVE)
    elif pa.types.is_float32(kind) and spelling.widens_floats:
        column = column.cast(pa.float64())
    return column.cast(_TEXT)


def _escaped(column: Any) -> Any:
    _, offsets, characters = column.buffers()
    if characters is None:
        return column
    places = memoryview(offsets).cast("q")
    standing = memoryview(characters)[places[column.offset] : places[column.offset + len(column)]].tobytes()
    for character, escaped in _ESCAPES:
        if character in standing:
            column = pc.replace_substring(column, character.decode(), escaped)
    return column


def _hexadecimal(column: Any, prefix: str) -> Any:
    """Two digits for each byte: twice the offsets, the same gaps."""
    column = pa.concat_arrays([column])  # begins at 0 then
    validity, offsets, characters = column.buffers()
    digits = b"" if characters is None else memoryview(characters).hex().encode()
    doubled = pc.multiply(pa.Array.from_buffers(pa.int64(), len(column) + 1, [None, offsets]), 2)
    text: Any = pa.Array.from_buffers(
        _TEXT, len(column), [validity, doubled.buffers()[1], pa.py_buffer(digits)], null_count=column.null_count
    )
    return pc.binary_join_element_wise(pa.scalar(prefix, _TEXT), text, pa.scalar("", _TEXT)) if prefix else text
