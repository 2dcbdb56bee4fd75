"""How long to wait until something is tried again that failed before: longer each time, and not as long as others."""

from __future__ import annotations

import random

_FIRST, _MOST = 0.2, 30.0
"""Seconds between two tries: at first, and at most."""
_DOUBLED = 10
"""So often it may become twice as long; bounded before it is a float, which 2**1024 is not."""


class Backoff:
    """Of one consumer, which has one database and one broker."""

    def __init__(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        self._failures += 1

    def worked(self) -> None:
        self._failures = 0

    def seconds(self) -> float:
        return random.uniform(0.5, 1.0) * min(_FIRST * 2 ** min(self._failures, _DOUBLED), _MOST)
