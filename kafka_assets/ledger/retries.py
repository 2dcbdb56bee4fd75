"""Retrying a whole transaction, never a statement of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from kafka_assets.errors import LedgerBusy

T = TypeVar("T")

TRIES = 5


def retried(transaction: Callable[[], T]) -> T:
    """Run a transaction again, from its first statement, while the database says that it was only busy.

    MariaDB's lock timeout undoes one statement and leaves the rest standing: a retry of the
    statement alone would commit half of it.
    """
    for attempt in range(1, TRIES):
        try:
            return transaction()
        except LedgerBusy:
            time.sleep(random.uniform(0.5, 1.0) * 0.2 * 2**attempt)  # apart, so that two do not meet again
    return transaction()
