"""Arrow as PostgreSQL's binary COPY, column by column: no number becomes text, and none is parsed again.

A row is its number of fields, and each field its length and its bytes, in network order. What lies side by side and
has one width is one block for all rows, into which each column is laid; blocks and texts are then joined row by row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.sinks.nested import json_texts
from kafka_assets.sinks.parts import filled

HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TAIL = b"\xff\xff"
MAX_ROWS = 50_000
"""Rows that are made at a time: few enough to stay small, enough to pay nothing per batch."""

pc: Any = pyarrow.compute
_BYTES = pa.large_binary()  # 32-bit offsets would end at 2 GiB
_NULL = pa.scalar(b"\xff\xff\xff\xff", _BYTES)
_DAYS, _MICROS = 10_957, 946_684_800_000_000
"""From 1970 to 2000, where PostgreSQL's time begins."""
_LONG_DIGITS = 18
_DIGITS = 10_000
"""A numeric's digits are of this base."""
_JSONB = b"\x01"

_FIXED: dict[Any, tuple[str, str]] = {
    pa.bool_(): ("u1", "bool"),
    pa.int8(): (">i2", "int2"),
    pa.int16(): (">i2", "int2"),
    pa.int32(): (">i4", "int4"),
    pa.int64(): (">i8", "int8"),
    pa.float32(): (">f4", "float4"),
    pa.float64(): (">f8", "float8"),
    pa.date32(): (">i4", "date"),
}


def sent_as(kind: Any) -> str | None:
    """The type, as pg_type names it, whose binary form is made of this Arrow type; None where none is."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_decimal128(kind):
        return "numeric" if kind.precision <= _LONG_DIGITS and kind.scale >= 0 else None
    if pa.types.is_nested(kind):
        return "jsonb"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytea"
    found = _FIXED.get(kind)
    return None if found is None else found[1]


def binary(rows: pa.Table, columns: Sequence[str], *, first: int) -> Iterator[memoryview]:
    """The rows, each begun with the BIGINT `first`, in bounded parts; HEAD goes before all of them, TAIL behind."""
    begin = (len(columns) + 1).to_bytes(2, "big") + (8).to_bytes(4, "big") + first.to_bytes(8, "big", signed=True)
    for batch in filled(rows.select(list(columns)), most=MAX_ROWS):
        row = _Rows(batch.num_rows)
        row.block.same(begin)
        parts: list[Any] = cast("list[Any]", batch.columns)
        for column in parts:
            _field(row, column)
        yield row.joined()


class _Block:
    """As many bytes for each row: what is the same in all of them, and in its gaps the values of columns."""

    def __init__(self) -> None:
        self._row = bytearray()
        self._gaps: list[tuple[int, str, Any]] = []

    def same(self, given: bytes) -> None:
        self._row += given

    def put(self, values: Any, kind: str) -> None:
        """A column's values, in a form of numpy's."""
        self._gaps.append((len(self._row), kind, values))
        self._row += bytes(np.dtype(kind).itemsize)

    def column(self, count: int) -> Any:
        """The rows as byte strings; None where it has no bytes."""
        width = len(self._row)
        if not width:
            return None
        rows = self._row * count
        laid: Any = np.frombuffer(rows, dtype=np.uint8).reshape(count, width)
        for at, kind, values in self._gaps:
            laid[:, at : at + np.dtype(kind).itemsize].view(kind)[:, 0] = values
        places: Any = np.arange(0, (count + 1) * width, width, dtype=np.int64)
        return pa.Array.from_buffers(_BYTES, count, [None, pa.py_buffer(places), pa.py_buffer(rows)])


class _Rows:
    """Rows in the making: pieces side by side, and the block that stands last."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.block = _Block()
        self._pieces: list[Any] = []

    def add_piece(self, piece: Any) -> None:
        """What is not as long in each row; another block begins behind it."""
        self._end_block()
        self._pieces.append(piece)

    def joined(self) -> memoryview:
        self._end_block()
        whole = self._pieces[0]
        if len(self._pieces) > 1:
            whole = pc.binary_join_element_wise(*self._pieces, pa.scalar(b"", _BYTES))
        _, offsets, data = whole.buffers()
        places = memoryview(offsets).cast("q")
        return memoryview(data)[places[whole.offset] : places[whole.offset + len(whole)]]

    def _end_block(self) -> None:
        if (made := self.block.column(self.count)) is not None:
            self._pieces.append(made)
            self.block = _Block()


def _field(row: _Rows, column: Any) -> None:
    kind = column.type
    if pa.types.is_nested(kind):
        texts = [None if one is None else _JSONB + one.encode() for one in json_texts(column)]
        _varying(row, pa.array(texts, _BYTES))
    elif sent_as(kind) in ("text", "bytea"):
        _varying(row, column.cast(pa.large_binary()))
    else:
        lay = _numeric if pa.types.is_decimal128(kind) else _fixed
        if column.null_count:
            block = _Block()
            lay(block, column)
            row.add_piece(pc.if_else(pc.is_valid(column), block.column(row.count), _NULL))
        else:
            lay(row.block, column)


def _varying(row: _Rows, column: Any) -> None:
    lengths = pc.binary_length(column)
    row.block.put((pc.fill_null(lengths, -1) if column.null_count else lengths).to_numpy(zero_copy_only=False), ">i4")
    row.add_piece(pc.fill_null(column, b"") if column.null_count else column)


def _fixed(block: _Block, column: Any) -> None:
    kind, form = column.type, _FIXED.get(column.type, (">i8", ""))[0]
    block.same(np.dtype(form).itemsize.to_bytes(4, "big"))
    if pa.types.is_timestamp(kind):
        block.put(_numbers(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())) - _MICROS, form)
    elif pa.types.is_date(kind):
        block.put(_numbers(column.cast(pa.int32())) - _DAYS, form)
    else:
        block.put(_numbers(column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column), form)


def _numeric(block: _Block, column: Any) -> None:
    """Groups of four digits, as many for each row: leading zeros and those at the end are taken off on arrival."""
    kind = column.type
    _, data = column.buffers()
    # The lower half of the 128 bits is the value, where that has 18 digits at most.
    unscaled = np.frombuffer(data, dtype="<i8")[::2][column.offset : column.offset + len(column)]
    size = np.abs(np.where(_valid(column), unscaled, 0) if column.null_count else unscaled)
    whole, fraction = _divided(size, 10**kind.scale)
    front = -(-(kind.precision - kind.scale) // 4)
    groups: list[Any] = []
    for _ in range(front):
        whole, group = _divided(whole, _DIGITS)
        groups.insert(0, group)
    left = kind.scale
    while left > 0:
        width = min(left, 4)
        left -= width
        group, fraction = _divided(fraction, 10**left)
        groups.append(group * 10 ** (4 - width))
    block.same(struct.pack(">ihh", 8 + 2 * len(groups), len(groups), front - 1))
    block.put(np.where(unscaled < 0, 0x4000, 0), ">i2")
    block.same(struct.pack(">h", kind.scale))
    for group in groups:
        block.put(group, ">i2")


def _divided(numbers: Any, by: int) -> tuple[Any, Any]:
    """What numpy's divmod gives, for no number below zero, in half of its time."""
    parts = numbers // by
    return parts, numbers - parts * by


def _numbers(column: Any) -> Any:
    """Its values, and anything where it is null."""
    return (pc.fill_null(column, 0) if column.null_count else column).to_numpy(zero_copy_only=False)


def _valid(column: Any) -> Any:
    return pc.is_valid(column).to_numpy(zero_copy_only=False)
