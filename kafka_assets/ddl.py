"""The columns that a stream's schema declares, read without Spark: for people to look at, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COLUMN = re.compile(
    r"""\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<name>\w+))\s*:?\s*(?P<type>.*?)
        (?P<required>\s+NOT\s+NULL)?(?:\s+COMMENT\s+(?P<comment>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))?\s*""",
    flags=re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class DeclaredColumn:
    """One column as the declaration names it; what is not valid is refused by Spark, when the stream lands."""

    name: str
    type: str
    required: bool
    comment: str | None


def declared_columns(schema: str) -> tuple[DeclaredColumn, ...]:
    """The columns of a DDL text; a part that cannot be read is left out, it is Spark that says what is wrong."""
    found = (_COLUMN.fullmatch(part) for part in _parts(schema))
    return tuple(
        DeclaredColumn(
            name=(match["quoted"] or "").replace("``", "`") or match["name"],
            type=" ".join(match["type"].split()).upper(),
            required=match["required"] is not None,
            comment=None if match["comment"] is None else re.sub(r"\\(.)", r"\1", match["comment"][1:-1]),
        )
        for match in found
        if match is not None and match["type"].strip()
    )


def _parts(schema: str) -> Iterator[str]:
    """Cut at the commas that stand in no bracket and in no quotes."""
    depth, quote, start = 0, "", 0
    for at, letter in enumerate(schema):
        if quote:
            if letter == quote and schema[at - 1] != "\\":
                quote = ""
        elif letter in "'\"`":
            quote = letter
        elif letter in "(<":
            depth += 1
        elif letter in ")>":
            depth -= 1
        elif letter == "," and depth == 0:
            yield schema[start:at]
            start = at + 1
    yield schema[start:]
