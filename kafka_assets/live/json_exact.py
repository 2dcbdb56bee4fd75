"""One JSON record at a time, exactly: its values, or the reason why it is bad.

This is the judge of the bulk road: what that one cannot vouch for comes here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafka_assets.live.json_doubt import Field, Record
from kafka_assets.live.json_numbers import Misfit
from kafka_assets.live.json_shown import excerpt, shown
from kafka_assets.live.json_text import NotJson, Parsed, parse
from kafka_assets.live.json_values import reader
from kafka_assets.schema import fields_of, spelled

REASON_CHARACTERS = 300
TOMBSTONE = "the value is null (a tombstone)"
_SPACES = " \t\r\n"
_HALF = "the value holds half of a surrogate pair (\\ud800 to \\udfff)"
_FOLLOWS = "text, or a second object, follows the JSON object"
_NOT_JSON = "the value is not valid JSON"
_TWICE = "a key stands twice in one JSON object (or it is too big to tell)"
_HALF_PAIR = re.compile(
    r"(?i)(?<!\\)(?:\\\\)*(?:\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2})"
    r"|(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2})"
)


@dataclass(frozen=True)
class Bad:
    """A record that cannot become a row."""

    reason: str


class ExactJson:
    """A schema's records, one after the other."""

    def __init__(self, schema: pa.Schema) -> None:
        self.fields = [Field(field.name, field.type) for field in fields_of(schema)]
        self._required = [not field.nullable for field in fields_of(schema)]
        self._readers = [reader(field.type) for field in fields_of(schema)]

    def read(self, value: bytes | None) -> list[Any] | Bad:
        """The values in the order of the schema."""
        found = self._read(value)
        return Bad(found[:REASON_CHARACTERS]) if isinstance(found, str) else found

    def _read(self, value: bytes | None) -> list[Any] | str:
        if value is None:
            return TOMBSTONE
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return "the value is not valid UTF-8"
        if not text.startswith("{") and (said := _not_an_object(text)):
            return said
        try:
            parsed = parse(text)
        except NotJson:
            return _HALF if _HALF_PAIR.search(text) else _NOT_JSON
        if parsed.follows:
            alone = not (parsed.twice or parsed.half)
            return _HALF if parsed.half else _FOLLOWS if alone else _TWICE
        return self._values(text, parsed)

    def _values(self, text: str, parsed: Parsed) -> list[Any] | str:
        values, said = list[Any](), ""
        for field, required, read in zip(self.fields, self._required, self._readers, strict=True):
            given = parsed.value.get(field.name)
            try:
                value = None if given is None else read(given)
            except Misfit:
                said = said or _misfit(field, given)
                break
            if required and value is None:
                said = said or f"{field.name}: missing or null, and declared NOT NULL"
                break
            values.append(value)
        if not said:
            record = Record(text=text, parsed=parsed, fields=self.fields, values=values)
            if not record.is_refused():
                return values
            disproved = (
                _misfit(field, parsed.value.get(field.name))
                for field, value in zip(self.fields, values, strict=True)
                if record.is_disproved(field, value)
            )
            said = next(disproved, _TWICE)
        return _HALF if parsed.half else _TWICE if parsed.twice else said


def _not_an_object(text: str) -> str | None:
    start = text.lstrip(_SPACES)
    if not text:
        return "the value is empty"
    if not start:
        return "the value is only white space"
    if text.startswith("\ufeff"):
        return "the value begins with a byte order mark, not with {"
    return None if start.startswith("{") else f"the value is not a JSON object: {excerpt(start)}"


def _misfit(field: Field, given: Any) -> str:
    return f"{field.name}: {shown(given)} does not fit {spelled(field.kind)[:100]} exactly"


def bad_of(found: Sequence[list[Any] | Bad]) -> dict[int, str]:
    return {number: one.reason for number, one in enumerate(found) if isinstance(one, Bad)}
