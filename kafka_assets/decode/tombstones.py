"""Records of an upsert stream without a value: which key each deletes, or why that cannot be told.

Only the record's own key can say:

- Where the Kafka key itself is the table's key: that key; as text where the column is one.
- One column: the whole Kafka key as UTF-8 text (`7`, `abc`, `"abc"`), or a JSON object that has the column. A text in
  quotes is read as JSON; a BINARY column takes the bytes as they are.
- Several columns: a JSON object that has them all, under the names that the table has.

A column that the key tells is read as the same column of a value is, so that equal ones become equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa

from kafka_assets.decode.codes import TOMBSTONE_KEY
from kafka_assets.decode.contract import Reason, fields_of, landed_schema, reason
from kafka_assets.decode.json_exact import ExactJson
from kafka_assets.decode.json_text import NotJson, Unbounded, parse

_SIMPLE = re.compile(r"\s*[-+.\w]+\s*", re.ASCII)


class Tombstones:
    """What the Kafka keys of records say, where a key is all that a record has."""

    def __init__(self, landed: pa.Schema, names: Sequence[str], *, whole_key: str | None = None) -> None:
        """`names` are the columns of `landed` that the key must tell; `whole_key` is the one that is the key itself."""
        inside = [name for name in names if name != whole_key]
        types: Any = landed
        self._inside = pa.schema([pa.field(name, types.field(name).type, nullable=False) for name in inside])
        self._key: Any = landed.field(whole_key) if whole_key is not None else None
        self._bytes = self._inside.types == [pa.binary()]
        self._alone: Any = self._inside.field(0) if len(inside) == 1 and whole_key is None else None
        self._exact = ExactJson(self._inside) if inside and not self._bytes else None
        fields = [*([] if self._key is None else [self._key]), *fields_of(landed_schema(self._inside))]
        self.schema = pa.schema(fields)

    def read(self, keys: Any) -> tuple[pa.Table, dict[int, Reason]]:
        """The columns that tell what is deleted, a row for each key that does, and the reason for the others."""
        told: list[list[Any]] = []
        refused: dict[int, Reason] = {}
        for at, key in enumerate(keys.to_pylist()):
            found = self._read(key)
            if isinstance(found, Reason):
                refused[at] = found
            else:
                told.append(found)
        columns: list[Any] = [pa.array([row[at] for row in told], kind) for at, kind in enumerate(self.schema.types)]
        return pa.Table.from_arrays(columns, schema=self.schema), refused

    def _read(self, key: bytes | None) -> list[Any] | Reason:  # noqa: PLR0911 - one for each form of a key
        if key is None:
            return reason(TOMBSTONE_KEY, "a tombstone without a key")
        values: list[Any] = []
        if self._key is not None:
            if not pa.types.is_string(self._key.type):
                values.append(key)
            elif (text := _text(key)) is None:
                return _cannot("it is not valid UTF-8")
            else:
                values.append(text)
        if self._bytes:
            return [*values, key]
        if self._exact is None:
            return values
        document = key
        if self._alone is not None:
            if (text := _text(key)) is None:
                return _cannot("it is not valid UTF-8")
            try:
                document = _document(text, self._alone)
            except Unbounded as error:
                return _cannot(error.reason.words.replace("the value", "the key"))
        found = self._exact.read(document)
        if isinstance(found, Reason):
            return _cannot(found.words.replace("the value", "the key"))
        return [*values, *found]


def _text(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def _document(text: str, alone: Any) -> bytes:
    """The key as a JSON object: as it is, or made of a plain value. Raises Unbounded where that cannot be told."""
    first: Any = _parsed(text)
    if isinstance(first, dict) and alone.name in cast("dict[str, Any]", first):
        return text.encode()
    is_text = first.__class__ is str
    as_json = f"{{{json.dumps(alone.name)}:{text}}}".encode()
    if pa.types.is_string(alone.type) or pa.types.is_temporal(alone.type):
        return as_json if is_text else json.dumps({alone.name: text}).encode()
    # Nothing but one number or word: else a comma in it could make another object of it.
    return as_json if _SIMPLE.fullmatch(text) else text.encode()


def _parsed(text: str) -> Any:
    try:
        return parse(text)
    except NotJson as error:
        if isinstance(error, Unbounded) and text.lstrip().startswith("{"):
            raise  # it may well be an object that has the column
        return None


def _cannot(why: str) -> Reason:
    return reason(TOMBSTONE_KEY, f"a tombstone whose key does not tell what it deletes: {why}")


NO_TIME = _cannot("the record has no timestamp")
"""Where the order of versions is that of their timestamps, and one that deletes has none."""
