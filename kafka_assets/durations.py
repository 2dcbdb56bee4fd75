"""Durations as people write them: `10s`, `15m`, `250ms`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
MOST = timedelta(days=36_500)
"""What is taken from today gives a date all the same."""


def duration(value: Any) -> Any:
    """`10s`, `15m`, `250ms`, or a number of seconds."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", value)
        if match is None:
            raise ValueError(f"{value!r} is no duration; write for example 10s, 15m or 250ms")
        return _bounded(float(match[1]) * _UNITS[match[2]])
    return value


def _bounded(seconds: float) -> timedelta:
    if not 0 <= seconds <= MOST.total_seconds():
        raise ValueError(f"a duration lies between nothing and {MOST.days}d")
    return timedelta(seconds=seconds)


def written(value: timedelta) -> str:
    """As `duration` reads it: never with an exponent."""
    return f"{value.total_seconds():f}".rstrip("0").rstrip(".") + "s"


def _known(value: timedelta) -> timedelta:
    return _bounded(value.total_seconds())


Duration = Annotated[
    timedelta, BeforeValidator(duration), AfterValidator(_known), PlainSerializer(written, when_used="json")
]
