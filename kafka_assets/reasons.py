"""What kind of reason made a record bad: a code for each, so that a million of them are told in a few lines.

The decoder's reasons have theirs (`decode/contract.py`). A table refuses a row in words: ours, where a sink looked at
it before, else the database's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafka_assets.decode.codes import ENCODING

NOT_STORABLE, TOO_LARGE, REFUSED, HANDLED = "not_storable", "too_large", "refused_by_table", "function_failed"

_FIELD = r"(?P<field>[^\n]{1,255}?): "
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (code, re.compile(words, re.DOTALL))
    for code, words in (
        (TOO_LARGE, r"its row of [\d,]+ bytes is beyond"),
        (ENCODING, _FIELD + r"it is not valid UTF-8"),
        (
            NOT_STORABLE,
            _FIELD + r"(?:it lies outside of the years|it has a NUL|in it|it is (?:NaN|infinite))",
        ),
    )
)


@dataclass(frozen=True)
class Kind:
    """The code of a reason, and the declared field that it is about, where it is one."""

    code: str
    field: str | None = None


def kind_of(reason: str) -> Kind:
    """The kind of a table's reason, by its words; what is none of ours the database has said."""
    for code, words in _KINDS:
        if found := words.match(reason):
            return Kind(code, found.groupdict().get("field"))
    return Kind(REFUSED)
