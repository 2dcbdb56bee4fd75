"""SIGTERM and Ctrl-C where runs are carried out in this process: it ends within seconds, whatever it was doing.

Dagster takes both signals while a run goes on: what it raises fails the run, may be caught on the way, and is put off
where it would harm Dagster. So each signal is heard a second way, which nobody takes over: Python writes its number
into a pipe, and a thread reads there.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from kafka_assets.broker.stopping import ENDING, Stopped

GRACE = 8.0
"""Seconds in which a process that was told to end may end by itself: give its claims back, and say so."""
SAME = 1.0
"""Seconds within which a signal that comes again is the same: a terminal gives it to all, a wrapper passes it on."""
LAST = 3.0
"""Seconds for what another thread does in its place then."""


@dataclass
class _Ending:
    """The end of this process: who told it, and what is done about it."""

    pipe: int
    last: Callable[[], None] | None = None
    number: signal.Signals | None = None
    raised: bool = False
    told_at: float = 0.0
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def listen(self) -> None:
        """Hear what comes, until the pipe is closed."""
        while True:
            select.select([self.pipe], [], [])
            if not self.hear():
                os.close(self.pipe)
                return

    def hear(self) -> bool:
        """Read what has come, without waiting for more; False at the pipe's end."""
        with self._reading:
            while select.select([self.pipe], [], [], 0)[0]:
                if not (read := os.read(self.pipe, 1)):
                    return False
                if read[0] in ENDING:
                    self._take(signal.Signals(read[0]))
        return True

    def _take(self, number: signal.Signals) -> None:
        if self.number is not None:
            if number != self.number or time.monotonic() - self.told_at > SAME:
                os._exit(128 + self.number)  # whoever asks twice waits for nobody
            return
        self.number, self.told_at = number, time.monotonic()
        threading.Thread(target=self._end, args=(number,), name="end", daemon=True).start()

    def _end(self, number: signal.Signals) -> None:
        """The process's last seconds. Where it ends by itself, this thread is gone with it."""
        time.sleep(GRACE)
        if self.last is not None:
            doing = threading.Thread(target=self.last, name="last", daemon=True)
            doing.start()
            doing.join(LAST)  # what hangs, too, is left behind
        os._exit(128 + number)


_ending: _Ending | None = None


@contextmanager
def ended_by_signals() -> Generator[None]:
    """SIGTERM and SIGINT raise Stopped in the block; where the process does not end by that, it is ended, with 128
    and the signal's number for its exit code. A second one, later than in the same moment, ends it at once.

    Only in the main thread, as all of Python's signals.
    """
    global _ending  # noqa: PLW0603 - a process has but one end
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _ending = _Ending(reading)
    before = {number: signal.getsignal(number) for number in ENDING}
    another = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_ending.listen, name="ending", daemon=True).start()
    for number in ENDING:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        if told_to_end() is None:  # else what hangs when the process ends is ended, too
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(another)
            os.close(writing)
            _ending = None


@contextmanager
def at_last(do: Callable[[], None]) -> Generator[None]:
    """Where the process is ended in the midst of the block, because it hangs, another thread does this before."""
    if _ending is not None:
        _ending.last = do
    yield
    if _ending is not None:
        _ending.last = None


def told_to_end() -> signal.Signals | None:
    """The signal that told this process to end, if one did: what fails from then on says nothing against a slice."""
    if _ending is None:
        return None
    _ending.hear()
    return _ending.number


def end_if_told(*, interrupted: bool = False) -> None:
    """Raise Stopped where a signal came that Dagster took for itself.

    `interrupted`: one did come; where nobody listens, it was a Ctrl-C.
    """
    if (number := told_to_end()) is not None or interrupted:
        raise Stopped(number or signal.SIGINT)


def ended(error: BaseException) -> bool:
    """Whether this is somebody's ending the run, or what came of that on the way: an import that was interrupted is an
    ImportError, or worse. It says nothing against a slice; a function that calls `sys.exit` is nobody's ending."""
    from dagster import DagsterExecutionInterruptedError

    if told_to_end() is not None or not isinstance(error, Exception | SystemExit):
        return True
    met = set[int]()
    at: BaseException | None = error
    while at is not None and id(at) not in met:
        met.add(id(at))
        at = at.__cause__ or at.__context__
        if isinstance(at, KeyboardInterrupt | DagsterExecutionInterruptedError):
            return True
    return False


def _stop(number: int, frame: FrameType | None) -> None:
    if _ending is not None and not _ending.raised:  # a second one must not meet what the first one set off
        _ending.raised = True
        raise Stopped(signal.Signals(number))
