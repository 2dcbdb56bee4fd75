"""Which texts are numbers as JSON writes them, and of how many digits: many at once, and no others than those."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.decode.contract import LONGEST_NUMBER

pc: Any = pyarrow.compute

Marks = np.ndarray[Any, np.dtype[np.bool_]]
_Counts = np.ndarray[Any, np.dtype[np.int32]]

_ZERO, _MINUS, _POINT = map(ord, "0-.")
_GRAMMAR = r"\A-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\z"


class Numerals(NamedTuple):
    """What some texts are; the counts mean something where a text is plain."""

    are: Marks
    are_plain: Marks
    """Which of them are digits with a sign and a point at most."""
    whole: _Counts
    """Digits before the point, but for a zero that stands alone."""
    fraction: _Counts
    """Digits behind it."""


def numerals(texts: Any) -> Numerals:
    """Which of these texts are numbers; none of them is empty or null."""
    _, places, data = texts.buffers()
    ends = np.frombuffer(places, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    written = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
    first, last = ends[:-1] - ends[0], ends[1:] - ends[0] - 1
    digit = written - np.uint8(_ZERO) < 10
    negative = written[first] == _MINUS
    lead = np.minimum(first + negative, last)
    plain = digit[lead] & digit[last] & (last - first < LONGEST_NUMBER)
    zero = written[lead] == _ZERO
    digit[first[negative]] = True
    odd = np.flatnonzero(~digit)
    point = last + 1
    if len(odd):
        # Between two digits, a text's only mark that is none can only be a point.
        marks = np.add.reduceat(~digit, first, dtype=np.int32)
        plain &= marks <= 1
        if not (points := written[odd] == _POINT).all():
            plain[np.searchsorted(first, odd[~points], side="right") - 1] = False
        pointed = np.flatnonzero(marks == 1)
        point[pointed] = odd if len(pointed) == len(odd) else odd[np.searchsorted(odd, first[pointed])]
    whole = point - lead
    # No other digit stands behind a leading zero.
    plain &= ~zero | (whole == 1)
    are = plain
    if not plain.all():
        others = np.flatnonzero(~plain)
        told = pc.match_substring_regex(texts.take(pa.array(others)), _GRAMMAR)
        are = plain.copy()
        are[others] = np.asarray(told.to_numpy(zero_copy_only=False), dtype=np.bool_)
        are &= last - first < LONGEST_NUMBER
    return Numerals(are, plain, whole - zero, np.maximum(last - point, 0))
