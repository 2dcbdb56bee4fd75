"""What a function raised, in words that can be kept: an exception may say anything, at any length, or fail to."""

from __future__ import annotations

from traceback import TracebackException

LONGEST = 1_000
"""Characters."""


def message_of(error: BaseException) -> str:
    """Its own words."""
    return _kept(str(TracebackException.from_exception(error, limit=0)))


def kind_of(error: BaseException) -> str:
    return _kept(type(error).__name__)


def said(error: BaseException) -> str:
    """Both, for a line of a log."""
    return f"{kind_of(error)}: {message_of(error)}"


def _kept(text: str) -> str:
    whole = text.encode(errors="backslashreplace").decode()
    return whole if len(whole) <= LONGEST else f"{whole[:LONGEST]}…"
