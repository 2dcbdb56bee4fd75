"""Python's search for garbage, and when it is of no use."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """What is imported in the block stays: nobody looks for garbage meanwhile, nor afterwards in what is there then.

    Dagster, pandas and Spark's client are a million objects; looking through them again and again while they come is a
    fifth of the time that their import takes.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
