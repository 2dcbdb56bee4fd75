"""One JSON text, read strictly: the standard library's scanner, and one without recursion for what is nested deep."""

from __future__ import annotations

import json
import re
from json import decoder
from typing import Any, NoReturn, cast

from kafka_assets.decode.codes import NOT_JSON
from kafka_assets.decode.contract import DEEPEST, LONGEST_NUMBER, Reason, reason

_SPACE = re.compile(r"[ \t\r\n]*")
_NO_DIGIT = re.compile(r"[^0-9]")


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Twice(dict[str, Any]):
    """An object in which a key stands twice; of equal keys the last one stays."""

    __slots__ = ("names",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        met, twice = set[str](), set[str]()
        for name, _ in pairs:
            (twice if name in met else met).add(name)
        self.names = twice


class NotJson(ValueError):
    """The text is no JSON value."""

    def __init__(self, why: Reason) -> None:
        super().__init__(why.words)
        self.reason = why


class Unbounded(NotJson):
    """It may be one, but is past all bounds."""


def parse(text: str) -> Any:
    """What the text says; numbers stay as they are written."""
    start = _SPACE.match(text, 0).end()  # type: ignore[union-attr]
    if start == len(text):
        raise NotJson(reason(NOT_JSON, "the value is only white space" if text else "the value is empty"))
    # Less than this holds no number that is too long, and nothing that is nested too deep.
    small = len(text) <= min(LONGEST_NUMBER, DEEPEST)
    if not small and text.count("[") + text.count("{") >= DEEPEST:
        value, end = _parse_deep(text)
    else:
        try:
            value, end = (_SMALL if small else _ANY).raw_decode(text, start)
        except json.JSONDecodeError as error:
            said = f"the value is not valid JSON (character {error.pos}: {error.msg[:1].lower()}{error.msg[1:]})"
            raise NotJson(reason(NOT_JSON, said)) from error
        except RecursionError:
            value, end = _parse_deep(text)
    if _SPACE.match(text, end).end() < len(text):  # type: ignore[union-attr]
        raise NotJson(reason(NOT_JSON, "text, or a second object, follows the JSON object"))
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Twice(pairs)


def _bounded(text: str) -> Number:
    if len(text) > LONGEST_NUMBER and len(_NO_DIGIT.sub("", text)) > LONGEST_NUMBER:
        raise Unbounded(reason(NOT_JSON, f"the value holds a number of more than {LONGEST_NUMBER:,} digits"))
    return Number(text)


def _constant(word: str) -> NoReturn:
    raise NotJson(reason(NOT_JSON, f"the value is not valid JSON ({word} is none of its words)"))


def _scanner(number: Any) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_object, parse_int=number, parse_float=number, parse_constant=_constant, strict=True
    )


_SMALL, _ANY = _scanner(Number), _scanner(_bounded)

_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:(?P<mark>[{}\[\],:])
    |"(?P<text>(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+)"
    |(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)
    |(?P<word>true|false|null))""",
    re.VERBOSE,
)
_unescaped: Any = cast("Any", decoder).scanstring
_WORDS = {"true": True, "false": False, "null": None}
_BROKEN = reason(NOT_JSON, "the value is not valid JSON")


def _parse_deep(text: str) -> tuple[Any, int]:  # noqa: PLR0912, PLR0915 - one automaton, a branch for each token
    """The first value of a text and where it ends, without recursion."""
    match, at = _TOKEN.match, 0
    # What is not closed yet: the innermost with its members, the key that its next value has, and those around it.
    held: list[Any] | None = None
    is_object = False
    key = ""
    outer: list[tuple[list[Any] | None, bool, str]] = []
    # What may stand next: a value, a value or the end of its array, a key, a key or the end, a colon, what follows.
    state = "value"
    while True:
        found = match(text, at)
        if found is None:
            raise NotJson(_BROKEN)
        at = found.end()
        kind = found.lastgroup
        value: Any = None
        if kind == "mark":
            mark = found["mark"]
            if mark in "{[":
                if state not in ("value", "item"):
                    raise NotJson(_BROKEN)
                outer.append((held, is_object, key))
                if len(outer) > DEEPEST:
                    raise Unbounded(reason(NOT_JSON, f"the value is nested more than {DEEPEST:,} deep"))
                held, is_object = [], mark == "{"
                state = "first" if is_object else "item"
                continue
            if mark == ":":
                if state != "colon":
                    raise NotJson(_BROKEN)
                state = "value"
                continue
            if mark == ",":
                if state != "after":
                    raise NotJson(_BROKEN)
                state = "key" if is_object else "value"
                continue
            if held is None or state not in ("after", "first", "item") or is_object is not (mark == "}"):
                raise NotJson(_BROKEN)
            value = _object(held) if is_object else held
            held, is_object, key = outer.pop()
        elif kind == "text":
            value = found["text"]
            if "\\" in value:
                value = _unescaped(text, found.start("text"))[0]
            if state in ("key", "first"):
                key = value
                state = "colon"
                continue
            if state not in ("value", "item"):
                raise NotJson(_BROKEN)
        else:
            if state not in ("value", "item"):
                raise NotJson(_BROKEN)
            value = _bounded(found["number"]) if kind == "number" else _WORDS[found["word"]]
        if held is None:
            return value, at
        held.append((key, value) if is_object else value)
        state = "after"
