"""Python's cycle collector, in a process that does nothing but consume.

It looks through all objects again and again while messages come by the thousand, and finds nothing: none of them is
in a cycle. With its own thresholds it takes as long as consuming and decoding together (measured).
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

_SELDOM = 200_000
"""Objects that may come before it looks: those of several batches, most of which are gone by then."""


@contextmanager
def seldom_collected() -> Generator[None]:
    """What is there now is not looked through any more; what comes, seldom. Of the whole process."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_SELDOM, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
