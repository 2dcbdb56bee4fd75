"""Records one below the other in one buffer, and which of them must not be read in bulk: told before they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.live.json_columns import Marks
from kafka_assets.live.json_doubt import TOO_BIG
from kafka_assets.live.json_text import DEEPEST

pc: Any = pyarrow.compute
LONG = DEEPEST
"""Bytes that a record has at least if it may be too deep, or have too long a number."""
_SPACE = b" \t\r\n"
_LONG_NUMBER = r"[0-9]{300}"
"""One of a number's three parts has so many digits where all have more than a thousand."""
_BARE_NULL = re.compile(rb"\}[ \t\r\n]*+n")


class Lines:
    """Values as lines. Each begins with { and ends with }, or is marked; so each is at least one object.

    Proof: what follows a line is a line break and {. Inside an object or an array, { cannot follow the } of the line
    before; inside a text, a line break cannot. So as many objects as lines mean one object a line.
    """

    def __init__(self, values: Sequence[bytes | None], *, decimals: Sequence[str], floats: bool) -> None:
        self._decimals = decimals
        self._floats = floats
        self.values = values
        self._join([value or b"" for value in values] if None in values else cast("Sequence[bytes]", values))
        edges = self._edges()
        if edges.any():
            self._join([(value or b"").strip(_SPACE) for value in values])
            edges = self._edges()
        self.doubt = edges
        self._mark()

    def __len__(self) -> int:
        return len(self.values)

    def block(self, start: int, end: int) -> pa.Buffer:
        first, last = int(self._places[start]), int(self._places[end])
        return self._buffer.slice(first, last - first)

    def line(self, at: int) -> bytes:
        return self._bytes[self._places[at] : self._places[at + 1]]

    def _join(self, values: Sequence[bytes]) -> None:
        # The line break at the end ends the last record: what is cut off behind a line break is read by itself.
        self._bytes = b"\n".join([*values, b""])
        self._buffer = pa.py_buffer(self._bytes)
        lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        self._places = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(lengths + 1, out=self._places[1:])
        self._lengths = lengths

    def _edges(self) -> Marks:
        letters = np.frombuffer(self._bytes, dtype=np.uint8)
        first, last = self._places[:-1], self._places[1:] - 2
        empty = self._lengths < 2
        return (
            empty | (letters[np.where(empty, 0, first)] != ord("{")) | (letters[np.where(empty, 0, last)] != ord("}"))
        )

    def _mark(self) -> None:
        text = self._bytes
        if not text.isascii() and not _is_text(text):
            self._mark_each(lambda line: not _is_text(line))
        # A reader that takes zero for the end; one that forgets that a record is more than null.
        if b"\0" in text:
            self._mark_each(lambda line: b"\0" in line)
        if _BARE_NULL.search(text):
            self._mark_each(lambda line: _BARE_NULL.search(line) is not None)
        if self._decimals:
            self._mark_found(_decimals_pattern(self._decimals, escapes=b"\\u00" in text))
        long = self._lengths > LONG
        if long.any():
            pattern = re.compile(_LONG_NUMBER.encode())
            for at in np.flatnonzero(long).tolist():
                line = self.line(at)
                deep = line.count(b"[") + line.count(b"{") >= DEEPEST - 1
                if deep or len(line) >= TOO_BIG or (self._floats and pattern.search(line) is not None):
                    self.doubt[at] = True

    def _mark_each(self, doubtful: Callable[[bytes], bool]) -> None:
        self.doubt |= np.fromiter((doubtful(self.line(at)) for at in range(len(self))), np.bool_, len(self))

    def _mark_found(self, pattern: str) -> None:
        places: Any = self._places
        buffers = [None, pa.py_buffer(places), self._buffer]
        lines: Any = pa.Array.from_buffers(pa.large_binary(), len(self), buffers)
        found = pc.match_substring_regex(lines, pattern)
        if found.true_count:
            self.doubt |= found.to_numpy(zero_copy_only=False)


def _decimals_pattern(names: Sequence[str], *, escapes: bool) -> str:
    """Behind the name of a decimal, a number in quotes or one with an exponent: Arrow takes both.

    A name may be written with escapes; looking for them, too, takes three times as long.
    """
    found = rf'"(?:{"|".join(map(re.escape, sorted(names)))})"\s*:\s*-?[0-9.]*["eE]'
    return rf"\\u00[2-7]|{found}" if escapes else found


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
