"""When the Spark road looks at a record a second time, and what it refuses then: the same must be refused here.

There a second look is dear, and taken only where a record has room for harm; what it finds depends on it. Whoever
reads the same record here must therefore ask the same questions: the words are those of `spark/decode_doubt.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from kafka_assets.live.json_numbers import WIDEST, Misfit, fits, is_kept, is_wide, room_of, rounded
from kafka_assets.live.json_text import DEEPEST, Number, Parsed
from kafka_assets.live.json_values import EXACT_INTEGERS, is_changed
from kafka_assets.schema import fields_of

ESCAPE_BYTES = 5
KEY_BYTES = 5
LEAST = 2
TOO_BIG = 16 << 20
"""A VARIANT holds less than this."""
_WORDS = ("true", "false", '"Infinity"', '"-Infinity"')
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:E-?[0-9]+)?")


@dataclass(frozen=True)
class Field:
    """One top-level field as it is declared."""

    name: str
    kind: Any

    @cached_property
    def bytes(self) -> int:
        return len(self.name.encode())

    @cached_property
    def name_lengths(self) -> list[int]:
        """The bytes of each name that an object in it may have, its own first."""
        return [self.bytes, *_name_lengths(self.kind)]

    @cached_property
    def is_witnessed(self) -> bool:
        return pa.types.is_decimal(self.kind) and not is_wide(self.kind)

    @cached_property
    def length(self) -> Callable[[Any, Any], int]:
        """At least so many bytes does a value take in the text."""
        kind = self.kind
        if pa.types.is_integer(kind):
            return lambda given, value: len(str(value))
        if pa.types.is_boolean(kind):
            return lambda given, value: 4 if value else 5
        if pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and not self.is_witnessed):
            return lambda given, value: 1
        if pa.types.is_decimal(kind):
            return lambda given, value: len(f"{abs(value):f}".strip("0.")) if value else 1
        if pa.types.is_nested(kind):
            return lambda given, value: LEAST
        return lambda given, value: len(given.encode(errors="replace")) + 2


def _name_lengths(kind: Any) -> Iterator[int]:
    if pa.types.is_struct(kind):
        for field in fields_of(kind):
            yield len(field.name.encode())
            yield from _name_lengths(field.type)
    elif pa.types.is_list(kind):
        yield from _name_lengths(kind.value_type)
    elif pa.types.is_map(kind):
        yield 0
        yield from _name_lengths(kind.item_type)


@dataclass(frozen=True)
class Record:
    """A record that was read: its fields with what is given for each and the value that was made of it."""

    text: str
    parsed: Parsed
    fields: Sequence[Field]
    values: Sequence[Any]

    def is_refused(self) -> bool:
        """Whether the second look is taken, and refuses."""
        if not (self._is_harmed or any(map(self._is_questionable, self.fields, self.values))):
            return False
        if not self._is_doubted:
            return False
        return self._is_harmed or any(map(self.is_disproved, self.fields, self.values))

    @property
    def _is_harmed(self) -> bool:
        parsed = self.parsed
        return parsed.twice or parsed.half or parsed.depth >= DEEPEST or len(self.text) >= TOO_BIG

    def _given(self, field: Field) -> Any:
        return self.parsed.value.get(field.name)

    def _is_questionable(self, field: Field, value: Any) -> bool:
        """Cheap, and true of all that might be disproved."""
        if value is None:
            return False
        if field.is_witnessed:
            return not fits(self._given(field), field.kind.scale)
        return pa.types.is_floating(field.kind) and (value == 0 or abs(value) >= EXACT_INTEGERS)

    @cached_property
    def _spare(self) -> int:
        spare = len(self.text.encode()) - 1
        for field, value in zip(self.fields, self.values, strict=True):
            if value is not None:
                spare -= field.length(self._given(field), value) + field.bytes + 4
        return spare

    @cached_property
    def _has_small(self) -> bool:
        return "e-" in self.text.lower()

    @property
    def _is_doubted(self) -> bool:
        text, spare = self.text, self._spare
        second_key = min(length for field in self.fields for length in field.name_lengths) + KEY_BYTES
        return (
            not text.startswith("{")
            or not text.endswith("}")
            or spare >= second_key
            or (spare >= ESCAPE_BYTES and "\\u" in text)
            or (spare >= 1 and re.search(rf"\}}[^}}]{{0,{second_key}}}\}}\Z", text) is not None)
            or any(map(self._field_doubted, self.fields, self.values))
        )

    def _field_doubted(self, field: Field, value: Any) -> bool:
        given = self._given(field)
        if given is None:
            return False
        if field.is_witnessed:
            room = room_of(field.kind)
            zero = not rounded(given, precision=field.kind.precision + room, scale=field.kind.scale + room)
            return self._spare > room or (zero and self._has_small)
        if pa.types.is_floating(field.kind):
            return self._double_doubted(float(given))
        if pa.types.is_string(field.kind) or pa.types.is_binary(field.kind):
            return given.startswith(("{", "[")) or given in _WORDS or _NUMBER.fullmatch(given) is not None
        return False

    def _double_doubted(self, double: float) -> bool:
        return abs(double) >= EXACT_INTEGERS or (double == 0 and self._has_small)

    def is_disproved(self, field: Field, value: Any) -> bool:
        given = self._given(field)
        if value is None:
            return False
        if field.is_witnessed:
            return not (fits(given, field.kind.scale) or self._says_the_same(field, given, value))
        if pa.types.is_floating(field.kind):
            double = float(given)
            return self._double_doubted(double) and is_changed(given, double)
        return False

    def _says_the_same(self, field: Field, given: Number, value: Any) -> bool:
        """With an exponent: where the widest decimal says the same, and had the room for it."""
        if is_kept(given):
            return False
        room = WIDEST - field.kind.precision
        try:
            if rounded(given, precision=WIDEST, scale=field.kind.scale + room) != value:
                return False
        except Misfit:
            return False
        name = field.name
        plain = name.isascii() and name.isprintable()
        if re.search(r"\\u00[2-7]" if plain else r"\\u", self.text):
            return False
        key = rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*+:\s*+-?"

        def found(pattern: str) -> bool:
            return re.search(key + pattern, self.text, re.ASCII) is not None

        if not value:
            return found(r"0(?:\.0++)?[eE]") and not found(r"[0-9.]*?[1-9][0-9.]*+[eE]")
        return found(rf"[0-9.]{{1,{room - 1}}}[eE]") and not found(rf"[0-9.]{{{room}}}")
