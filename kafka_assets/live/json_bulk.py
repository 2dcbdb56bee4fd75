"""JSON records in bulk, by Arrow's reader; whatever it cannot vouch for goes to the exact one, record by record.

Arrow is told every field there is, declared or not, and fails for a block that has another one, a key twice in an
object, or a value of another kind. A block that fails is halved, down to a few records that are read exactly: so one
bad record costs a few blocks, and teaches what undeclared fields there are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from kafka_assets.live.json_columns import (
    Column,
    Marks,
    NotBulk,
    has_floats,
    has_witness,
    named_decimals,
    no_marks,
)
from kafka_assets.live.json_exact import Bad, ExactJson
from kafka_assets.live.json_lines import Lines
from kafka_assets.live.json_shape import Shape
from kafka_assets.schema import fields_of

BLOCK = 10_000
"""Records that Arrow reads at a time: a few megabytes at most, which stay in the processor's cache."""
FEW = 64
"""Records that are read exactly rather than halved once more."""
SOUR = 0.25
PAUSE = 20
"""Where more than so many of a batch's records were read exactly after all, so many batches are not tried in bulk."""
_ODD_NUMBER = re.compile(rb"[:\[,][ \t\r\n]*+-?(?:[0-9][0-9.]*+[eE]|[0-9.]{38})")


@dataclass
class _Found:
    """What was made of a batch so far."""

    tables: list[pa.Table] = field(default_factory=list[pa.Table])
    places: list[Any] = field(default_factory=list[Any])
    exact: list[int] = field(default_factory=list[int])


class BulkJson:
    """A schema's records, many at once."""

    def __init__(self, fields: pa.Schema, landed: pa.Schema, exact: ExactJson) -> None:
        declared = fields_of(fields)
        self.possible = all(has_witness(one.type, name=one.name) for one in declared)
        self._exact = exact
        self._landed = landed
        self._columns = [Column(one) for one in declared]
        self._decimals = sorted({name for one in declared for name in named_decimals(one.name, one.type)})
        self._floats = any(has_floats(one.type) for one in declared)
        self._shape = Shape(fields)
        self._pause = 0

    def read(self, values: Sequence[bytes | None]) -> tuple[list[pa.Table], list[Any], list[int]]:
        """Tables of rows with the places of their records, and the places of those that are left."""
        if self._pause or not self.possible or len(values) < FEW:
            self._pause = max(0, self._pause - 1)
            return [], [], list(range(len(values)))
        lines = Lines(values, decimals=self._decimals, floats=self._floats or self._shape.has_more)
        found = _Found()
        if lines.doubt.any():
            found.exact += np.flatnonzero(lines.doubt).tolist()
            places = np.flatnonzero(~lines.doubt)
            lines = Lines([values[at] for at in places.tolist()], decimals=(), floats=False)
        else:
            places = np.arange(len(values))
        for start in range(0, len(lines), BLOCK):
            self._block(lines, places, (start, min(start + BLOCK, len(lines))), found)
        if len(found.exact) > len(values) * SOUR:
            self._pause = PAUSE
        return found.tables, found.places, sorted(found.exact)

    def _block(self, lines: Lines, places: Any, part: tuple[int, int], found: _Found) -> None:
        start, end = part
        try:
            table, doubt = self._parse(lines, start, end)
        except (pa.ArrowInvalid, NotBulk) as why:
            if end - start > FEW:
                middle = (start + end) // 2
                self._block(lines, places, (start, middle), found)
                self._block(lines, places, (middle, end), found)
            elif self._learned(lines, range(start, end), why):
                self._block(lines, places, part, found)
            else:
                found.exact += places[start:end].tolist()
            return
        mine = places[start:end]
        if doubt.any():
            found.exact += mine[doubt].tolist()
            certain: Any = pa.array(~doubt)
            table, mine = table.filter(certain), mine[~doubt]
        found.tables.append(table)
        found.places.append(mine)

    def _learned(self, lines: Lines, part: range, why: Exception) -> bool:
        """Whether the records have told of fields that were not known."""
        if not any(words in str(why) for words in ("unexpected field", "changed from null")):
            return False
        learned = False
        for line in map(lines.line, part):
            if self._shape.teaches(line) and not isinstance(self._exact.read(line), Bad):
                self._shape.learn(line)
                learned = True
        return learned

    def _parse(self, lines: Lines, start: int, end: int) -> tuple[pa.Table, Marks]:
        block = lines.block(start, end)
        source: Any = pa.BufferReader(block)
        found = pa_json.read_json(
            source,
            read_options=pa_json.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=self._shape.schema, unexpected_field_behavior="error", newlines_in_values=True
            ),
        )
        count = end - start
        if found.num_rows != count:
            raise NotBulk
        zeros, doubt = no_marks(count), no_marks(count)
        columns: list[Any] = []
        for number, column in enumerate(self._columns):
            whole: Any = found.column(number).combine_chunks()
            columns.append(column.read(self._shape.declared_part(number, whole), zeros, doubt))
        self._shape.check(found)
        for at in np.flatnonzero(zeros & ~doubt).tolist():
            doubt[at] = _ODD_NUMBER.search(lines.line(start + at)) is not None
        return pa.Table.from_arrays(columns, schema=self._landed), doubt
