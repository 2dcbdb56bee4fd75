"""Times as most clients write them, all of one form in a column: seen in a tenth of what a pattern takes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

_LEAST, _MOST = b"0000-00-00T00:00:00", b"9999-19-39T29:59:59"
_FRACTIONS = range(1, 7)
"""Digits behind the point: microseconds at most."""
_ROWS = 10_000


def are_alike(texts: Any, *, zoned: bool) -> bool:
    """Whether all these texts are 2024-02-29T23:59:59[.999999] with as many digits, with Z where `zoned`.

    Which of them are a day and a time is not looked at: 2024-19-39T29:59:59 is alike, too.
    """
    _, places, data = texts.buffers()
    count = len(texts)
    if not count or texts.null_count or data is None:
        return False
    ends = np.frombuffer(places, dtype=np.int32)[texts.offset : texts.offset + count + 1]
    size = int(ends[1] - ends[0])
    digits = size - len(_LEAST) - zoned - 1
    if not (digits == -1 or digits in _FRACTIONS) or (np.diff(ends) != size).any():
        return False
    written = np.frombuffer(data, dtype=np.uint8)[int(ends[0]) : int(ends[-1])]
    least, room = _bounds(digits, zoned=zoned)
    parts = (written[at : at + len(least)] for at in range(0, len(written), len(least)))
    return all((part - least[: len(part)] <= room[: len(part)]).all() for part in parts)


@lru_cache(maxsize=8)
def _bounds(digits: int, *, zoned: bool) -> tuple[Any, Any]:
    """The least that each letter may be, and how much more; for many rows, one after the other."""
    forms: list[Any] = []
    for clock, digit in ((_LEAST, b"0"), (_MOST, b"9")):
        fraction = b"" if digits < 0 else b"." + digit * digits
        forms.append(np.tile(np.frombuffer(clock + fraction + b"Z" * zoned, dtype=np.uint8), _ROWS))
    least, most = forms
    return least, most - least
