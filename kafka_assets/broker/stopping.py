"""The signals that end processes, heard in time: what is in hand is done first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

Item = TypeVar("Item")

ENDING = (signal.SIGTERM, signal.SIGINT)


class Stopped(KeyboardInterrupt):
    """One of these signals came."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number
        super().__init__(f"stopped by {number.name}")


class UntilStopped:
    """Hands on what an iterator gives, until a signal: that ends the waiting for the next item, and no work on one."""

    def __init__(self) -> None:
        self._number: signal.Signals | None = None
        self._waiting = False

    def __call__(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items; raises Stopped in place of the next one."""
        while True:
            self._waiting = True
            try:
                if self._number is not None:
                    raise Stopped(self._number)
                item = next(items)
            except StopIteration:
                return
            finally:
                self._waiting = False
            yield item

    def hear(self, number: signal.Signals) -> None:
        self._number = number
        if self._waiting:  # else a read of a pipe that nobody writes to would go on after the handler
            raise Stopped(number)


@contextmanager
def stopped_by_signals(*numbers: signal.Signals) -> Generator[threading.Event]:
    """An event for `stop=`, which SIGTERM and SIGINT (or those named) set; a second signal does what it always did.

    Only in the main thread, as all of Python's signals.
    """
    stop = threading.Event()
    with _first(numbers or ENDING, lambda _: stop.set()):
        yield stop


@contextmanager
def until_signalled() -> Generator[UntilStopped]:
    """The same for what reads: SIGTERM or SIGINT ends the reading; a second one does what it always did."""
    until = UntilStopped()
    with _first(ENDING, until.hear):
        yield until


@contextmanager
def _first(numbers: tuple[signal.Signals, ...], heard: Callable[[signal.Signals], None]) -> Generator[None]:
    before = {number: signal.getsignal(number) for number in numbers}

    def hear(number: int, frame: FrameType | None) -> None:
        named = signal.Signals(number)
        signal.signal(named, before[named])
        heard(named)

    for number in numbers:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
