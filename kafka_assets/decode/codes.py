"""The codes of reasons why a record is bad: words that stay, to count by."""

from __future__ import annotations

TOMBSTONE = "tombstone"
ENCODING = "encoding"
NOT_JSON = "not_json"
TWICE = "duplicate_key"
MISFIT = "does_not_fit"
MISSING = "missing"
TOMBSTONE_KEY = "tombstone_key"
NO_KEY = "no_key"
