"""One JSON text, read strictly and without recursion: what it says, and what about it may make a record bad."""

from __future__ import annotations

import re
from dataclasses import dataclass
from json import decoder
from typing import Any, cast

DEEPEST = 1_000
LONGEST_NUMBER = 1_000
LONGEST_STRING = 20_000_000

_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:(?P<mark>[{}\[\],:])
    |"(?P<text>(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+)"
    |(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)
    |(?P<word>true|false|null))""",
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\r\n]*")
_SIGNS = re.compile(r"[^0-9]")
_unescaped: Any = cast("Any", decoder).scanstring
_WORDS = {"true": True, "false": False, "null": None}


class Number(str):
    """A number as it is written."""

    __slots__ = ()

    @property
    def plain(self) -> bool:
        """Whether it has no exponent."""
        return "e" not in self and "E" not in self


class NotJson(ValueError):
    """The text does not begin with a JSON value, or it is one past all bounds."""


@dataclass(frozen=True)
class Parsed:
    """The first value of a text."""

    value: Any
    follows: bool
    """Whether more than white space stands behind it."""
    twice: bool
    """Whether a key stands twice in one of its objects."""
    half: bool
    """Whether half a surrogate pair stands in one of its strings or keys."""
    depth: int


def parse(text: str) -> Parsed:  # noqa: PLR0912, PLR0915 - one automaton, a branch for each token
    """Parse the first value; of equal keys the last one stays. Whole numbers, too, stay as they are written."""
    match, at = _TOKEN.match, 0
    # What is not closed yet: the innermost, the key that its next value has, and those around it.
    holder: Any = None
    key = ""
    outer: list[tuple[Any, str]] = []
    root: Any = None
    twice = half = False
    depth = deepest = 0
    # What may stand next: a value, a value or the end of its array, a key, a key or the end, a colon, what follows.
    state = "value"
    while True:
        found = match(text, at)
        if found is None:
            raise NotJson
        at = found.end()
        kind = found.lastgroup
        value: Any = None
        if kind == "mark":
            mark = found["mark"]
            if mark in "{[":
                if state not in ("value", "item"):
                    raise NotJson
                depth += 1
                deepest = max(deepest, depth)
                if depth > DEEPEST:
                    raise NotJson
                opened: Any = {} if mark == "{" else []
                outer.append((holder, key))
                holder = opened
                state = "first" if mark == "{" else "item"
                continue
            if mark == ":":
                if state != "colon":
                    raise NotJson
                state = "value"
                continue
            if mark == ",":
                if state != "after":
                    raise NotJson
                state = "key" if holder.__class__ is dict else "value"
                continue
            wanted = dict if mark == "}" else list
            if state not in ("after", "first", "item") or holder.__class__ is not wanted:
                raise NotJson
            value = holder
            holder, key = outer.pop()
            depth -= 1
        elif kind == "text":
            value = found["text"]
            if "\\" in value:
                value = _unescaped(text, found.start("text"))[0]
                half = half or _has_half(value)
            if len(value) > LONGEST_STRING:
                raise NotJson
            if state in ("key", "first"):
                twice = twice or value in holder
                key = value
                state = "colon"
                continue
            if state not in ("value", "item"):
                raise NotJson
        else:
            if state not in ("value", "item"):
                raise NotJson
            if kind == "number":
                value = Number(found["number"])
                if len(value) > LONGEST_NUMBER and len(_SIGNS.sub("", value)) > LONGEST_NUMBER:
                    raise NotJson
            else:
                value = _WORDS[found["word"]]
        if holder is None:
            root = value
            break
        if holder.__class__ is dict:
            holder[key] = value
        else:
            holder.append(value)
        state = "after"
    end = _SPACE.match(text, at)
    follows = end is None or end.end() < len(text)
    return Parsed(value=root, follows=follows, twice=twice, half=half, depth=deepest)


def _has_half(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
