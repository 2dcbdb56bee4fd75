"""What Python and the C library do about memory by themselves, in a process that does nothing but consume.

The cycle collector looks through all objects again and again while messages come by the thousand, and finds nothing:
none of them is in a cycle. With its own thresholds it takes as long as consuming and decoding together (measured).

The C library gives memory back to the system as soon as a batch is done with it, and the next batch gets it anew, page
by page, each of them cleared: a sixth of what a consumer's own time was (measured).
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

_SELDOM = 200_000
"""Objects that may come before it looks: those of several batches, most of which are gone by then."""
_KEPT = 16 << 20
"""Bytes: twice as many may lie unused before glibc gives them back. Elsewhere nothing comes of it."""


@contextmanager
def seldom_collected() -> Generator[None]:
    """What is there now is not looked through any more; what comes, seldom. Of the whole process."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_SELDOM, 20, 100)
    keep_memory()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def keep_memory() -> None:
    """Memory that is free is kept for the next batch, up to a bound. Of the whole process, and for good."""
    # glibc learns from the largest block that was asked for and given back; nobody has to touch it.
    np.empty(_KEPT, dtype=np.uint8)
