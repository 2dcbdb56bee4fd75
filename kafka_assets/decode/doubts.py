"""Which JSON records Arrow's reader would take too kindly, or not at all: told from their bytes, before they are read.

A pattern looks at each byte several times as long as all else that is asked of it. So it is first seen whether there
is anything for it to find: most records have nothing that even looks like it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow.compute

from kafka_assets.decode.contract import DEEPEST, LONGEST_NUMBER
from kafka_assets.decode.text import are_texts, is_text

pc: Any = pyarrow.compute

Marks = np.ndarray[Any, np.dtype[np.bool_]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_LONG_NUMBER = re.compile(rb"[0-9][0-9.eE+-]{%d}" % (LONGEST_NUMBER - 1))
_WORDS = (b"NaN", b"Inf")
"""What Arrow takes for numbers, where a value may stand."""
_A_WORD = r"(?:\A|[\[:,\s-])(?:NaN|Inf)"
_QUOTE, _COLON = ord('"'), ord(":")
_BLANKS = np.isin(np.arange(256), list(b" \t\n\r"))


class Doubts:
    """About records in whose schema decimals stand behind these names, and nowhere else."""

    def __init__(self, decimals: Collection[str]) -> None:
        self._names = [name.encode() for name in sorted(decimals)]
        self._pattern = _A_WORD
        if decimals:
            # Behind one of them Arrow takes a text for a number, too. A name may be written with escapes.
            names = "|".join(map(re.escape, sorted(decimals)))
            self._pattern += rf'|"(?:{names}|[^"]*\\u00[2-7][^"]*)"\s*:\s*"'

    def of(self, values: Any) -> Marks:
        """A mark for each of these values, a binary array, that is to be read exactly."""
        text = _bytes(values)
        if _has_a_word(text) or self._has_a_quoted_decimal(text):
            found = pc.match_substring_regex(values, self._pattern).fill_null(True)
        else:
            found = pc.is_null(values)
        doubt = np.array(found.to_numpy(zero_copy_only=False), dtype=np.bool_)
        if not are_texts(values):
            doubt |= np.fromiter((not is_text(value) for value in values.to_pylist()), np.bool_, len(values))
        lengths = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        # A short one holds nothing that is nested too deep, and no number that is too long.
        for at in np.flatnonzero(lengths > min(DEEPEST, LONGEST_NUMBER)).tolist():
            line = values[at].as_py()
            deep = line.count(b"[") + line.count(b"{") >= DEEPEST
            if deep or _LONG_NUMBER.search(line) is not None:
                doubt[at] = True
        return doubt

    def _has_a_quoted_decimal(self, text: _Bytes) -> bool:
        """Whether there may be one; where that takes a closer look, there may."""
        if not self._names or not len(text):
            return False
        colons = np.flatnonzero(text == _COLON)
        before = text[colons - 1]
        if _BLANKS[before].any() or len(_pairs(text, b"\\u")):
            return True
        colons = colons[before == _QUOTE]
        after = colons + 1
        after = after[after < len(text)]
        after += _BLANKS[text[after]]
        after = after[after < len(text)]
        if _BLANKS[text[after]].any():
            return True
        ends = colons[: len(after)][text[after] == _QUOTE] - 2
        return any(_stands_at(text, ends, name) for name in self._names)


def _stands_at(text: _Bytes, ends: Any, name: bytes) -> bool:
    """Whether the name ends at one of these places."""
    for back, letter in enumerate(reversed(name)):
        ends = ends[(ends >= back)]
        ends = ends[text[ends - back] == letter]
        if not len(ends):
            return False
    return True


def _has_a_word(text: _Bytes) -> bool:
    for word in _WORDS:
        third = _pairs(text, word[:2]) + 2
        if (text[third[third < len(text)]] == word[2]).any():
            return True
    return False


def _pairs(text: _Bytes, pair: bytes) -> Any:
    """Where these two bytes stand side by side."""
    wanted = np.frombuffer(pair, dtype=np.uint16)[0]
    even, odd = (text[first : first + (len(text) - first) // 2 * 2].view(np.uint16) == wanted for first in (0, 1))
    return np.concatenate([np.flatnonzero(even) * 2, np.flatnonzero(odd) * 2 + 1])


def _bytes(values: Any) -> _Bytes:
    """Those of all values, one after the other."""
    _, places, data = values.buffers()
    if data is None:
        return np.empty(0, dtype=np.uint8)
    ends = np.frombuffer(places, dtype=np.int32)[values.offset :]
    return np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[len(values)]]
