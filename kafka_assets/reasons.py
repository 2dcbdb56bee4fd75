"""What kind of reason made a record bad: a code for each, so that a million of them are told in a few lines.

The words of a reason quote the record, so no two are alike. They are ours in all cases but one: what the table
refuses, its database says in its own words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TOMBSTONE, ENCODING, NOT_JSON, TWICE = "tombstone", "encoding", "not_json", "duplicate_key"
MISFIT, MISSING, NOT_STORABLE, TOO_LARGE = "does_not_fit", "missing", "not_storable", "too_large"
NO_KEY, TOMBSTONE_KEY, REFUSED, HANDLED = "no_key", "tombstone_key", "refused_by_table", "function_failed"

_FIELD = r"(?P<field>[^\n]{1,255}?): "
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (code, re.compile(words, re.DOTALL))
    for code, words in (
        (TOMBSTONE, r"the value is null \(a tombstone\)"),
        (TOMBSTONE_KEY, r"a tombstone (?:without a key|whose key does not tell)"),
        (NO_KEY, r"the row has no value in (?P<field>.{1,255}?), its key or order"),
        (ENCODING, r"the value is not valid UTF-8"),
        (TWICE, r"(?:(?P<field>[^\n]{1,255}?): )?the key .* stands twice in one object"),
        (NOT_JSON, r"the value (?:is nested more than|holds a number of more than) "),
        (NOT_JSON, r"the value is (?:empty|only white space|not a JSON object|not valid JSON)"),
        (NOT_JSON, r"the value begins with a byte order mark|text, or a second object, follows"),
        (TOO_LARGE, r"its row of [\d,]+ bytes is beyond"),
        (MISSING, _FIELD + r"missing or null, and declared NOT NULL"),
        (MISFIT, _FIELD + r".* does not fit .* exactly"),
        (ENCODING, _FIELD + r"(?:it|the value) is not valid UTF-8"),
        (ENCODING, _FIELD + r"the text holds half of a surrogate pair"),
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
    """The kind of a reason, by its words; what is none of ours a table has said."""
    for code, words in _KINDS:
        if found := words.match(reason):
            return Kind(code, found.groupdict().get("field"))
    return Kind(REFUSED)
