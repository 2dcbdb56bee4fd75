"""What a stream declares its records to be: the DDL text as Arrow fields, read once, by one reader, without Spark.

A wrong text is refused when the stream is declared. Spark's own parser takes every text that is right here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from kafka_assets.decode.contract import fields_of, landed_schema, landed_type, spelled
from kafka_assets.errors import StreamError

__all__ = ["comment_of", "compares", "declared", "fields_of", "landed_schema", "landed_type", "orders", "spelled"]

_ATOMS: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    **dict.fromkeys(("TINYINT", "BYTE"), pa.int8()),
    **dict.fromkeys(("SMALLINT", "SHORT"), pa.int16()),
    **dict.fromkeys(("INT", "INTEGER"), pa.int32()),
    **dict.fromkeys(("BIGINT", "LONG"), pa.int64()),
    **dict.fromkeys(("FLOAT", "REAL"), pa.float32()),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), pa.timestamp("us", "UTC")),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_WIDEST = 38
_SUPPORTED = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, "
    "and ARRAY, MAP with STRING keys and STRUCT of these"
)
_OURS = ("kafka_", "_kafka")
_COMMENT = b"comment"
_TOKEN = re.compile(
    r"""\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<mark>[<>(),:]))""",
    re.DOTALL,
)


@lru_cache(maxsize=256)
def declared(schema: str, format: str) -> pa.Schema:
    """The declared fields, each NOT NULL as declared and with its COMMENT, or a StreamError that says what is wrong."""
    fields = _Reader(schema).fields()
    if not fields:
        raise StreamError(
            "the schema declares no field", cure='write one, for example schema: "id BIGINT, note STRING"'
        )
    _check_names([field.name for field in fields], inside="")
    for field in fields:
        _check_inner(field.type, where=field.name)
    if format in ("string", "bytes"):
        _check_single(fields, format)
    elif format != "json":
        raise StreamError(f"format {format!r} is not known here", cure="use json, string or bytes")
    return pa.schema(fields)


def compares(kind: Any) -> bool:
    """Whether two values of this type are equal in every database just when they are the same value."""
    return not (
        pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_duration(kind)
    )


def orders(kind: Any) -> bool:
    """Whether values of this type are ordered alike in every database."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def comment_of(field: Any) -> str | None:
    """What COMMENT says of a declared field."""
    said = None if field.metadata is None else field.metadata.get(_COMMENT)
    return None if said is None else said.decode()


class _Reader:
    """A DDL text, token after token."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(schema.rstrip()):
            match = _TOKEN.match(schema, at)
            if match is None:
                raise self._unreadable(f"{schema[at:].strip()[:20]!r} begins nothing that is known")
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind]))
            at = match.end()
        self.at = 0

    def fields(self) -> list[pa.Field[Any]]:
        if not self.tokens:
            return []
        words = [token.upper() for _, token in self.tokens[:2]]
        if words == ["STRUCT", "<"]:
            whole: Any = self._type("")
            found = list(whole)
        elif len(words) == 1 and (words[0] in _ATOMS or words[0] in _DECIMALS):
            raise StreamError(
                f"the schema {self.schema!r} is a type without a name",
                why="each field becomes a column",
                cure=f'name it, for example "value {self.schema}"',
            )
        else:
            found = self._fields(inside="")
        if self.at < len(self.tokens):
            raise self._unreadable(f"{self._next()[1]!r} stands where a comma or the end should")
        return found

    def _fields(self, *, inside: str) -> list[pa.Field[Any]]:
        found = [self._field(inside)]
        while self._took(","):
            found.append(self._field(inside))
        return found

    def _field(self, inside: str) -> pa.Field[Any]:
        kind, token = self._next()
        if kind not in ("word", "quoted"):
            raise self._unreadable(f"{token!r} stands where a name should")
        name = token.replace("``", "`") if kind == "quoted" else token
        self._took(":")
        declared_type = self._type(f"{inside}{name}")
        required = self._took("NOT")
        if required and not self._took("NULL"):
            raise self._unreadable("NOT stands without NULL")
        return pa.field(name, declared_type, nullable=not required, metadata=self._comment())

    def _comment(self) -> dict[bytes | str, bytes | str] | None:
        if not self._took("COMMENT"):
            return None
        kind, text = self._next()
        if kind != "text":
            raise self._unreadable("COMMENT stands without a text in quotes")
        return {_COMMENT: re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)}

    def _type(self, where: str) -> pa.DataType:
        kind, token = self._next()
        word = token.upper() if kind == "word" else ""
        if word in _ATOMS:
            if word == "STRING" and self._took("COLLATE"):
                raise _unsupported(where, f"STRING COLLATE {self._next()[1].upper()}")
            return _ATOMS[word]
        if word in _DECIMALS:
            precision, scale = self._numbers() if self._took("(") else (10, 0)
            if not 0 <= scale <= precision <= _WIDEST or precision < 1:
                raise self._unreadable(f"DECIMAL({precision},{scale}) has more digits than {_WIDEST}, or than it has")
            return pa.decimal128(precision, scale)
        if word == "ARRAY":
            self._must("<")
            item = self._type(f"{where}[]")
            self._must(">")
            return pa.list_(item)
        if word == "MAP":
            self._must("<")
            key = self._type(where)
            self._must(",")
            item = self._type(f"{where}{{}}")
            self._must(">")
            if key != pa.string():
                raise _unsupported(where, f"MAP<{spelled(key)},{spelled(item)}>")
            return pa.map_(pa.string(), item)
        if word == "STRUCT":
            self._must("<")
            fields = [] if self._took(">") else self._fields(inside=f"{where}.")
            if fields:
                self._must(">")
            return pa.struct(fields)
        if word in ("VARIANT", "INTERVAL", "TIME", "CHAR", "CHARACTER", "VARCHAR", "VOID", "NULL"):
            length = f"({self._next()[1]})" if self._took("(") else ""
            raise _unsupported(where, word + length)
        raise self._unreadable(f"{token!r} is no type" if token else "a type is missing")

    def _numbers(self) -> tuple[int, int]:
        precision = self._number()
        scale = self._number() if self._took(",") else 0
        self._must(")")
        return precision, scale

    def _number(self) -> int:
        _, token = self._next()
        if not re.fullmatch(r"[0-9]{1,3}", token):
            raise self._unreadable(f"{token!r} is no number of digits")
        return int(token)

    def _next(self) -> tuple[str, str]:
        if self.at == len(self.tokens):
            return "", ""
        self.at += 1
        return self.tokens[self.at - 1]

    def _took(self, wanted: str) -> bool:
        there = self.at < len(self.tokens)
        kind, token = self.tokens[self.at] if there else ("", "")
        if kind not in ("word", "mark") or token.upper() != wanted:
            return False
        self.at += 1
        return True

    def _must(self, wanted: str) -> None:
        if not self._took(wanted):
            raise self._unreadable(f"{wanted!r} is missing before {self._next()[1]!r}")

    def _unreadable(self, why: str) -> StreamError:
        return StreamError(
            f"the schema {self.schema!r} cannot be read",
            why=why,
            cure='write a column list, for example "id BIGINT NOT NULL, amount DECIMAL(12,2), placed_at TIMESTAMP"',
        )


def _check_names(names: Sequence[str], *, inside: str) -> None:
    seen: set[str] = set()
    for name in names:
        where = f"{inside}{name}"
        if not inside and name.lower().startswith(_OURS):
            raise StreamError(
                f"the schema's field {name!r} has a name that is ours",
                why="names that begin with kafka_ or _kafka are the record's own columns",
                cure="name the field otherwise, or leave it out: kafka_key and its kind come anyway",
            )
        if '"' in name and "'" in name:
            raise StreamError(
                f"the schema's field {where!r} has a name that cannot be looked up in JSON",
                why="a name needs a character, and may not hold both kinds of quotes",
                cure="leave the field out",
            )
        if name.lower() in seen:
            raise StreamError(
                f"the schema declares {where!r} twice",
                why="columns differ in more than capitals, or a query cannot tell them apart",
                cure="leave one out",
            )
        seen.add(name.lower())


def _check_inner(kind: Any, *, where: str) -> None:
    if pa.types.is_map(kind):
        _check_inner(kind.item_type, where=f"{where}{{}}")
    elif pa.types.is_list(kind):
        _check_inner(kind.value_type, where=f"{where}[]")
    elif pa.types.is_struct(kind):
        _check_names([field.name for field in fields_of(kind)], inside=f"{where}.")
        for field in fields_of(kind):
            _check_inner(field.type, where=f"{where}.{field.name}")


def _unsupported(where: str, named: str) -> StreamError:
    return StreamError(
        f"the schema's field {where!r} is {named}, which cannot be decoded exactly",
        why=f"supported are {_SUPPORTED}",
        cure="declare one of these, and cast it in the function",
    )


def _check_single(fields: Sequence[pa.Field[Any]], format: str) -> None:
    wanted = pa.string() if format == "string" else pa.binary()
    if len(fields) != 1 or fields[0].type != wanted:
        raise StreamError(
            f"format {format!r} needs exactly one field, of type {spelled(wanted)}",
            why="the whole value of a record is that field",
            cure=f'write schema: "value {spelled(wanted)}"',
        )
