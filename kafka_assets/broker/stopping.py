"""The event that ends consumers, set by the signals that end processes: what is in hand is done first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_signals(*numbers: signal.Signals) -> Generator[threading.Event]:
    """An event for `stop=`, which SIGTERM and SIGINT (or those named) set; a second signal does what it always did.

    Only in the main thread, as all of Python's signals.
    """
    stop = threading.Event()
    chosen = numbers or (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in chosen}

    def drain(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)])
        stop.set()

    for number in chosen:
        signal.signal(number, drain)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
