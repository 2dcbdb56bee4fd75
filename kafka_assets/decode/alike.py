"""Records of one layout become columns without a parser: each value is cut out where it stands.

What is made of them is what Arrow's JSON reader would give, for the same columns to look at. A record with a value that
does not fit as it is written, which may be bad or written in another way, is left to that reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.decode.columns import witness_type
from kafka_assets.decode.contract import fields_of
from kafka_assets.decode.layout import Layout, Path, Places
from kafka_assets.decode.numerals import Numerals, numerals

pc: Any = pyarrow.compute


class Alike:
    """The fields of a schema in records of one layout."""

    def __init__(self, fields: Sequence[Any], layout: Layout) -> None:
        self._fields = [pa.field(one.name, _witness(one.type)) for one in fields]
        self._layout = layout
        self._quoted = {value.path: value.quoted for value in layout.values}
        self._kinds = dict[Path, Any]()
        """Those of the witnesses, by where they stand."""
        self.suits = all(self._meet(one, (one.name,)) for one in self._fields)
        """Whether each field has the form that its type wants; else no such record can be read so."""

    def _meet(self, field: Any, path: Path) -> bool:
        if path in self._layout.objects:
            inner = fields_of(field.type) if pa.types.is_struct(field.type) else []
            return bool(inner) and all(self._meet(one, (*path, one.name)) for one in inner)
        self._kinds[path] = field.type
        return pa.types.is_string(field.type) or not self._quoted.get(path, False)

    def read(self, values: Any) -> tuple[Places | None, list[Any]]:
        """Which of these values, in valid UTF-8, are laid out so (None: all of them), and their witnesses."""
        _, places, data = values.buffers()
        bounds = np.frombuffer(places, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
        block = data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
        found = self._layout.spans(np.frombuffer(block, dtype=np.uint8), bounds.astype(np.int64) - bounds[0])
        rows, count = found.rows, len(found.begins[0])
        if not count:
            return rows, [_nulls(0, one.type) for one in self._fields]
        cut, fits = dict[Path, Any](), np.ones(count, dtype=np.bool_)
        for (path, quoted), begins, ends in zip(self._layout.values, found.begins, found.ends, strict=True):
            kind = self._kinds.get(path)
            if quoted and kind is None:
                continue
            cut[path] = _texts(block, begins, ends)
            if not quoted:
                cut[path], good = _bare(cut[path], kind)
                fits &= good
        if not fits.all():
            kept: Any = pa.array(fits)
            rows = np.flatnonzero(fits) if rows is None else rows[fits]
            cut, count = {path: column.filter(kept) for path, column in cut.items()}, len(rows)
        return rows, [self._witness(one, (one.name,), cut, count) for one in self._fields]

    def _witness(self, field: Any, path: Path, cut: dict[Path, Any], count: int) -> Any:
        if path in cut:
            return cut[path] if cut[path].type == field.type else cut[path].cast(field.type)
        if path in self._layout.objects:
            children = [self._witness(one, (*path, one.name), cut, count) for one in fields_of(field.type)]
            made: Any = pa.StructArray.from_arrays(children, fields=fields_of(field.type))
            return made
        return _nulls(count, field.type)


def _witness(kind: Any) -> Any:
    """As what a declared type is given; a decimal as itself, since its digits are counted."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _witness(one.type)) for one in fields_of(kind)])
    return kind if pa.types.is_decimal(kind) else witness_type(kind, wide=False)


def _texts(block: Any, begins: Places, ends: Places) -> Any:
    """What stands between these places; each begins behind the one before."""
    count = len(begins)
    # With what lies between them they are bytes without a gap, and need no copy; every second of them is one.
    bounds: Any = np.empty(2 * count + 1, dtype=np.int32)
    bounds[:-1:2], bounds[1::2], bounds[-1:] = begins, ends, ends[-1:]
    every: Any = pa.Array.from_buffers(pa.string(), 2 * count, [None, pa.py_buffer(bounds), block])
    return every.take(pa.array(np.arange(0, 2 * count, 2)))


def _bare(texts: Any, kind: Any) -> tuple[Any, Any]:
    """What stands without quotes as a column for a witness of this kind, and which of it suits one.

    Of no kind, in a field that is not declared, each value does that JSON has. Numbers stay texts: of those that do not
    suit, none may be cast.
    """
    number = numerals(texts)
    if kind is None:
        return texts, number.are if number.are.all() else number.are | _are(texts, "null", "true", "false")
    null = np.zeros(len(texts), dtype=np.bool_) if number.are.all() else _are(texts, "null")
    if pa.types.is_string(kind) or pa.types.is_nested(kind):
        return _nulls(len(texts), kind), null
    if pa.types.is_boolean(kind):
        good = null | _are(texts, "true", "false")
        texts = pc.equal(texts, "true")
    else:
        good = null | _fitting(texts, number, kind)
    return (pc.if_else(pa.array(null), None, texts) if null.any() else texts), good


def _fitting(texts: Any, number: Numerals, kind: Any) -> Any:
    """Which of these numbers a cast to this kind takes, and takes exactly, by their digits."""
    if pa.types.is_decimal(kind):
        # Of more digits than these Arrow makes another number without a word.
        return number.are_plain & (number.whole <= kind.precision - kind.scale) & (number.fraction <= kind.scale)
    if not pa.types.is_integer(kind):
        return number.are
    most = str(2 ** (kind.bit_width - 1) - 1)
    fits = number.are_plain & (number.fraction == 0) & (number.whole <= len(most))
    if (longest := np.flatnonzero(fits & (number.whole == len(most)))).size:
        digits = pc.utf8_ltrim(texts.take(pa.array(longest)), "-")
        fits[longest] = _flags(pc.less_equal(digits, most))
    return fits


def _nulls(count: int, kind: Any) -> Any:
    nulls: Any = pa.nulls
    return nulls(count, kind)


def _are(texts: Any, *words: str) -> Any:
    return _flags(pc.is_in(texts, value_set=pa.array(words)))


def _flags(flags: Any) -> Any:
    return np.asarray(flags.to_numpy(zero_copy_only=False), dtype=np.bool_)
