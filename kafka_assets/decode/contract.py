"""What becomes of a record: the words, the limits, and what a decoder gives.

What lands, in format json
- One JSON object (RFC 8259) in valid UTF-8, and nothing behind it. Names match exactly. A field that is missing or
  null lands as NULL, and is bad where the schema says NOT NULL. Fields that are not declared are ignored.
- A value lands when it fits its type exactly, however it is spelt: for whole numbers and DECIMAL `1`, `1.0` and `1e0`
  are one number. One that does not fit is bad, never rounded or cut. DOUBLE and FLOAT take the nearest value; what is
  beyond their range is bad. A number in quotes is a text.
- STRING: JSON strings alone, every character kept. BOOLEAN: true and false. BINARY: base64 with its padding.
- DATE: 2024-02-29. TIMESTAMP: 2024-02-29T23:59[:59[.999999999]][Z|+05:30|+0530|+05], with a blank for T if need be, in
  UTC where no zone stands; TIMESTAMP_NTZ: the same without a zone. Years 1 to 9999; no leap second; a fraction that
  is finer than a microsecond does not fit, zeros aside.
- ARRAY, MAP with STRING keys and STRUCT of these, to any depth, by the same rules.

What is bad besides
- A key that stands twice in one object, where its value is declared: a field of the record or of a STRUCT, any key of
  a MAP. Among fields that are not declared it passes.
- Half of a surrogate pair (\\ud800 to \\udfff) in a declared text or a key of a MAP: no database keeps it.
- JSON that is nested more than `DEEPEST` deep, or holds a number of more than `LONGEST_NUMBER` digits, declared or
  not: what reads it later may have less room.

NOT promised
- Which reason is told where several hold; the words of a reason (its code stays).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

DEEPEST = 1_000
"""Objects and arrays inside of each other."""
LONGEST_NUMBER = 1_000
"""Digits of one number, its exponent's among them."""
EXCERPT = 60
"""Characters of a value that a reason shows."""
REASON_CHARACTERS = 300
FIELD_CHARACTERS = 255


class Reason(NamedTuple):
    """Why a record is bad."""

    code: str
    words: str
    field: str = ""
    """The declared field that is to blame, with the way to it, where it is one."""


def reason(code: str, words: str, field: str = "") -> Reason:
    """A reason that any database keeps: bounded, and without halves of surrogate pairs."""
    return Reason(code, _storable(words)[:REASON_CHARACTERS], _storable(field)[:FIELD_CHARACTERS])


def _storable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True)
class Decoded:
    """The values of a batch: a row for each that is good, in their order, and why the others are bad."""

    rows: pa.Table
    bad: Mapping[int, Reason] = field(default_factory=dict[int, Reason])
    """By the value's place in the batch."""

    def good(self, count: int) -> np.ndarray[Any, Any] | None:
        """The places of the rows' values among so many; None where all are good."""
        return np.delete(np.arange(count), list(self.bad)) if self.bad else None


def fields_of(kind: Any) -> list[Any]:
    """The fields of a schema, or of a STRUCT."""
    return list(kind)


def landed_type(kind: Any) -> Any:
    """A declared type as it lands: nothing in it says NOT NULL, as in what Spark gives."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, landed_type(one.type)) for one in fields_of(kind)])
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), landed_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(landed_type(kind.value_type))
    return kind


def landed_schema(declared: Any) -> pa.Schema:
    """The columns that a decoder of these fields gives, all of them nullable."""
    return pa.schema([pa.field(one.name, landed_type(one.type)) for one in fields_of(declared)])


_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


def spelled(kind: Any) -> str:
    """A type as a schema names it."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return f"MAP<STRING,{spelled(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{spelled(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{','.join(f'{one.name.upper()}:{spelled(one.type)}' for one in fields_of(kind))}>"
    return _NAMES[kind]
