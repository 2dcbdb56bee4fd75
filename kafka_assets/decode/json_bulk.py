"""JSON records in bulk, by Arrow's reader; whatever it cannot vouch for is read exactly, record by record.

Each record is wrapped as {"v":RECORD}, a line of its own, so that a line is at least one object or an error, whatever
stands in it: behind the } that ends a line no { may stand, but where a new row begins. As many rows as lines are then
one row for each record.

Records that are laid out alike, as those of one program are, need none of this (`alike`): they are taken out before.

Arrow names the row at which it cannot parse on. It is read exactly, what stood before it is read in bulk, and so is
what comes behind. Where it cannot convert a number, it names none: then numbers are read as wide decimals, which take
all ways to write one, and at last a piece is read exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.json as pa_json

from kafka_assets.decode.alike import Alike
from kafka_assets.decode.columns import (
    Column,
    Marks,
    has_witness,
    kind_type,
    no_marks,
    simple_decimals,
    witness_type,
)
from kafka_assets.decode.contract import fields_of, landed_schema
from kafka_assets.decode.doubts import Doubts
from kafka_assets.decode.layout import Layout
from kafka_assets.decode.text import are_texts

pc: Any = pyarrow.compute

BLOCK = 10_000
"""Records that Arrow reads at a time: a few megabytes at most, which stay in the processor's cache."""
BLOCK_BYTES = 4 << 20
FEW = 64
"""So few records are read exactly rather than in bulk."""
STUMBLES = 32
"""Rows of one block at which Arrow may fail to parse before the rest of it is read exactly."""
PIECES = 16
SOUR = 0.25
PAUSE = 20
"""Where more than so much of a batch was read exactly after all, so many batches are not tried in bulk."""
LAYOUTS = 4
"""So many layouts are known at a time, and looked for in one block; and a new one at least."""
STRANGE = 0.5
"""Where more than so much of a block is laid out in other ways, so many blocks are not asked for their layouts."""

_ROW = re.compile(r" in row (\d+)\Z")
_FIRST, _LAST = pa.scalar(b'{"v":', pa.binary()), pa.scalar(b"}\n", pa.binary())
_NONE = pa.scalar(b"", pa.binary())


@dataclass
class Found:
    """What was made of a batch so far: tables with the places of their records, and places that are left."""

    tables: list[pa.Table] = field(default_factory=list[pa.Table])
    places: list[Any] = field(default_factory=list[Any])
    exact: list[int] = field(default_factory=list[int])

    def rows(self, schema: pa.Schema) -> pa.Table:
        """All tables as one, in the order of their records."""
        table = pa.concat_tables([schema.empty_table(), *self.tables])
        if len(self.tables) > 1:
            places = np.concatenate(self.places)
            if (places[1:] < places[:-1]).any():
                order: Any = np.argsort(places, kind="stable")
                return table.combine_chunks().take(order)
        return table


class BulkJson:
    """A schema's records, many at once."""

    def __init__(self, declared: pa.Schema) -> None:
        fields = fields_of(declared)
        self.possible = all(has_witness(one.type) for one in fields)
        self._landed = landed_schema(declared)
        self._readers = [Column(one) for one in fields]
        self._witness = {wide: _wrapped(fields, wide=wide) for wide in (False, True)} if self.possible else {}
        names = _named_decimals(fields)
        self._doubts = Doubts(names or set())
        self._kinds = {
            False: None if names is not None else _kinds(fields, wide=False),
            True: _kinds(fields, wide=True),
        }
        self._fields = fields
        self._layouts = list[Alike]()
        """The one that most records had comes first."""
        self._strange = 0
        self._wide = False
        self._pause = 0

    def read(self, values: Any) -> Found:
        """What of these values can be read in bulk, and the places of the others."""
        found = Found()
        if self._pause or not self.possible or len(values) < FEW:
            self._pause = max(0, self._pause - 1)
            found.exact = list(range(len(values)))
            return found
        for start, end in _blocks(values):
            self._block(values.slice(start, end - start), start, found)
        if len(found.exact) > len(values) * SOUR:
            self._pause = PAUSE
        found.exact.sort()
        return found

    def _block(self, values: Any, first: int, found: Found) -> None:
        places = np.arange(first, first + len(values))
        if values.null_count:
            there = _flags(pc.is_valid(values))
            found.exact += places[~there].tolist()
            values, places = values.drop_null(), places[there]
        values, places = self._laid_out(values, places, found)
        if not len(values):
            return
        doubt = self._doubts.of(values)
        if doubt.any():
            found.exact += places[doubt].tolist()
            values, places = values.filter(pa.array(~doubt)), places[~doubt]
        stumbles = 0
        while len(values):
            try:
                self._take(values, places, found)
                return
            except pa.ArrowInvalid as error:
                row = _ROW.search(str(error))
                if row is None or stumbles == STUMBLES:
                    self._pieces(values, places, found)
                    return
            stumbles += 1
            at = int(row[1])
            if at:
                self._pieces(values.slice(0, at), places[:at], found, whole=True)
            found.exact.append(int(places[at]))
            values, places = values.slice(at + 1), places[at + 1 :]

    def _laid_out(self, values: Any, places: Any, found: Found) -> tuple[Any, Any]:
        """Take the records that are laid out alike, and give the others."""
        if self._strange or len(values) < FEW or not are_texts(values):
            self._strange = max(0, self._strange - 1)
            return values, places
        count, known, took = len(values), self._layouts, list[tuple[int, Alike]]()
        for at in range(LAYOUTS + 1):
            if len(values) < FEW:
                break
            one = known[at] if at < len(known) else self._new_layout(values)
            if one is None:
                break
            rows, witnesses = one.read(values)
            table, doubt = self._columns(witnesses, len(values) if rows is None else len(rows))
            self._add(table, doubt, places if rows is None else places[rows], found)
            took.append((len(doubt), one))
            if rows is None:
                values, places = values.slice(0, 0), places[:0]
                break
            left = ~no_marks(len(values))
            left[rows] = False
            values, places = values.filter(pa.array(left)), places[left]
            if at >= len(known) and len(rows) < FEW:
                break  # few others, or each in its own way
        self._layouts = [one for rows, one in sorted(took, key=lambda one: -one[0]) if rows >= FEW]
        self._layouts += known[len(took) : LAYOUTS - len(self._layouts)]
        self._strange = PAUSE if len(values) > count * STRANGE else 0
        return values, places

    def _new_layout(self, values: Any) -> Alike | None:
        """That of one of these records, where it has one that suits the schema."""
        for at in (0, len(values) // 2, len(values) - 1):
            layout = Layout.of(values[at].as_py())
            if layout is not None and (one := Alike(self._fields, layout)).suits:
                return one
        return None

    def _pieces(self, values: Any, places: Any, found: Found, *, whole: bool = False) -> None:
        """Rows of which some cannot be converted, or many cannot be parsed: what can be read of them in bulk."""
        size = len(values) if whole else max(FEW, -(-len(values) // PIECES))
        for start in range(0, len(values), size):
            part, mine = values.slice(start, size), places[start : start + size]
            try:
                self._take(part, mine, found)
            except pa.ArrowInvalid:
                if whole and len(part) > FEW:
                    self._pieces(part, mine, found)
                else:
                    found.exact += mine.tolist()

    def _take(self, values: Any, places: Any, found: Found) -> None:
        """Read these rows, or fail as Arrow does, with nothing taken."""
        try:
            table, doubt = self._parse(values, wide=self._wide)
        except pa.ArrowInvalid as error:
            if self._wide or _ROW.search(str(error)):
                raise
            table, doubt = self._parse(values, wide=True)
            self._wide = True
        self._add(table, doubt, places, found)

    def _add(self, table: pa.Table, doubt: Marks, places: Any, found: Found) -> None:
        if doubt.any():
            found.exact += places[doubt].tolist()
            table, places = table.filter(pa.array(~doubt)), places[~doubt]
        found.tables.append(table)
        found.places.append(places)

    def _parse(self, values: Any, *, wide: bool) -> tuple[pa.Table, Marks]:
        lines = pc.binary_join_element_wise(_FIRST, values, _LAST, _NONE)
        ends = np.frombuffer(lines.buffers()[1], dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
        block = lines.buffers()[2].slice(int(ends[0]), int(ends[-1] - ends[0]))
        if (kinds := self._kinds[wide]) is not None:
            _read(block, kinds, len(values))
        whole = _read(block, self._witness[wide], len(values))
        table, doubt = self._columns([whole.field(at) for at in range(len(self._fields))], len(values))
        if whole.null_count:
            doubt |= _flags(pc.is_null(whole))
        return table, doubt

    def _columns(self, witnesses: list[Any], count: int) -> tuple[pa.Table, Marks]:
        """What is made of so many rows, and which of them are in doubt."""
        doubt = no_marks(count)
        made = [column.read(one, doubt) for column, one in zip(self._readers, witnesses, strict=True)]
        return pa.Table.from_arrays(made, schema=self._landed), doubt


def _read(block: Any, schema: pa.Schema, count: int) -> Any:
    source: Any = pa.BufferReader(block)
    found = pa_json.read_json(
        source,
        read_options=pa_json.ReadOptions(use_threads=False, block_size=block.size + 1),
        parse_options=pa_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore", newlines_in_values=False
        ),
    )
    if found.num_rows != count:
        raise pa.ArrowInvalid("a record is more than one object")
    whole: Any = found.column(0).combine_chunks()
    return whole


def _flags(flags: Any) -> Marks:
    return np.asarray(flags.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _wrapped(fields: list[Any], *, wide: bool) -> pa.Schema:
    inside = [pa.field(one.name, witness_type(one.type, wide=wide)) for one in fields]
    return pa.schema([pa.field("v", pa.struct(inside))])


def _kinds(fields: list[Any], *, wide: bool) -> pa.Schema | None:
    told = kind_type(pa.struct(fields), wide=wide)
    return None if told is None else pa.schema([pa.field("v", told)])


def _named_decimals(fields: list[Any]) -> set[str] | None:
    """The names behind which decimals stand; None where no pattern can find them all."""
    names = set[str]()
    for one in fields:
        inner = simple_decimals(one.name, one.type)
        if inner is None:
            return None
        names |= inner
    return names


def _blocks(values: Any) -> Iterator[tuple[int, int]]:
    """Parts of the values that are bounded in number and in bytes; a longer record is a part by itself."""
    if values.nbytes <= BLOCK_BYTES:
        yield from ((start, min(start + BLOCK, len(values))) for start in range(0, len(values), BLOCK))
        return
    ends = np.cumsum(pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
    start = 0
    while start < len(values):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + BLOCK_BYTES, side="right"))
        end = min(max(end, start + 1), start + BLOCK, len(values))
        yield start, end
        start = end
