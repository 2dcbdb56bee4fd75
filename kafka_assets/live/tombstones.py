"""Records of an upsert stream without a value: which key each deletes, or why that cannot be told.

The rules are those of `spark/deletes.py`; its docstring says them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kafka_assets.live.json_doubt import Field
from kafka_assets.live.json_exact import REASON_CHARACTERS, Bad, ExactJson
from kafka_assets.live.json_text import NotJson, parse
from kafka_assets.records import KEY, TIMESTAMP
from kafka_assets.schema import fields_of, landed_schema
from kafka_assets.streams import Upsert

_TEXT = re.compile(r"\s*\"", re.ASCII)
_SIMPLE = re.compile(r"\s*[-+.\w]+\s*", re.ASCII)
_NO_KEY = "a tombstone without a key"
NO_TIME = "a tombstone whose key does not tell what it deletes: the record has no timestamp"
_NOT_TEXT = "it is not valid UTF-8"


class Tombstones:
    """What the keys of an upsert stream's records say, where that is all they have."""

    def __init__(self, landed: pa.Schema, upsert: Upsert) -> None:
        inside = [name for name in needed(upsert) if name not in (KEY, TIMESTAMP)]
        self._inside = _required(landed, inside)
        self._key: Any = landed.field(KEY) if KEY in upsert.key else None
        types: list[Any] = self._inside.types
        self._whole = types == [pa.binary()]
        self._alone = (
            Field(inside[0], self._inside.field(0).type) if len(inside) == 1 and KEY not in upsert.key else None
        )
        self._exact = ExactJson(self._inside) if inside and not self._whole else None

    def read(self, keys: Sequence[bytes | None]) -> tuple[pa.Table, dict[int, str]]:
        """The columns that tell what is deleted, a row for each key that does, and the reason for the others."""
        told: list[list[Any]] = []
        refused: dict[int, str] = {}
        for at, key in enumerate(keys):
            found = self._read(key)
            if isinstance(found, Bad):
                refused[at] = found.reason
            else:
                told.append(found)
        fields = [*([] if self._key is None else [self._key]), *fields_of(landed_schema(self._inside))]
        columns: list[Any] = [pa.array([row[at] for row in told], one.type) for at, one in enumerate(fields)]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields)), refused

    def _read(self, key: bytes | None) -> list[Any] | Bad:
        if key is None:
            return Bad(_NO_KEY)
        values: list[Any] = []
        if self._key is not None:
            if not pa.types.is_string(self._key.type):
                values.append(key)
            else:
                try:
                    values.append(key.decode())
                except UnicodeDecodeError:
                    return _cannot(_NOT_TEXT)
        if self._whole:
            values.append(key)
        elif self._exact is not None:
            try:
                text = key.decode()
            except UnicodeDecodeError:
                return _cannot(_NOT_TEXT)
            found = self._exact.read(key if self._alone is None else _document(key, text, self._alone))
            if isinstance(found, Bad):
                return _cannot(found.reason.replace("the value", "the key"))
            values += found
        return values


def _required(landed: Any, names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, landed.field(name).type, nullable=False) for name in names])


def needed(upsert: Upsert) -> list[str]:
    """The columns that a row must have a value in."""
    return list(dict.fromkeys([*upsert.key, *([] if upsert.order_by == "offset" else [upsert.order_by])]))


def _document(key: bytes, text: str, alone: Field) -> bytes:
    """The key as a JSON object: as it is, or made of a plain value."""
    first = _first(text)
    if isinstance(first, dict) and alone.name in first:
        return key
    as_json = f"{{{json.dumps(alone.name, ensure_ascii=False)}:{text}}}"
    kind = alone.kind
    if pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        if _TEXT.match(text) and first is not None:
            return as_json.encode()
        return json.dumps({alone.name: text}, ensure_ascii=False).encode()
    return as_json.encode() if _SIMPLE.fullmatch(text) else key


def _first(text: str) -> Any:
    """What the text begins with, or nothing where a VARIANT would refuse it."""
    try:
        parsed = parse(text)
    except NotJson:
        return None
    return None if parsed.twice or parsed.half else parsed.value


def _cannot(why: str) -> Bad:
    return Bad(f"a tombstone whose key does not tell what it deletes: {why}"[:REASON_CHARACTERS])
