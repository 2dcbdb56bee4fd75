"""Several processes of one stream: watched, begun again when they die, and never left behind.

A child's standard input is a pipe from here that says nothing: when it ends, however this process did, the child
drains and ends too. What a child prints are its figures, as JSON.
"""

from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kafka_assets.live.figures import Figures, total

_log = logging.getLogger(__name__)

FIRST, LONGEST = 1.0, 30.0
"""Seconds until a child that died is begun again: twice as long each time, until it has lived for a minute."""
_WELL = 60.0
_DRAIN = 120.0
"""Seconds that children are given to drain before they are killed."""
_LOOK = 0.2
_ERROR = {"error", "retryable"}
"""What a child says of the error that it ends with."""


@dataclass
class Child:
    """One process and what is known of it."""

    number: int
    process: subprocess.Popen[str] | None = None
    begun: float = 0.0
    pause: float = FIRST
    again: float | None = None
    """On the monotonic clock: when it is begun again; None while it lives, and when it has ended well."""
    figures: Figures = field(default_factory=Figures)
    before: list[Figures] = field(default_factory=list[Figures])
    """Of those that had its number and died."""
    said: dict[str, Any] = field(default_factory=dict[str, Any])
    """The error that it ended with, in its own words."""
    deaths: int = 0
    reader: threading.Thread | None = None


class Processes:
    """`command` begins one child, given its number."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        *,
        say: Callable[[Figures], None] | None = None,
        say_every: float = 10.0,
    ) -> None:
        self._command, self._say, self._say_every = command, say, say_every
        self.children = [Child(number) for number in range(count)]
        self._stopping = threading.Event()

    @property
    def figures(self) -> Figures:
        return total(one for child in self.children for one in (child.figures, *child.before))

    @property
    def deaths(self) -> int:
        """How often a child died and was begun again."""
        return sum(child.deaths for child in self.children)

    def stop(self) -> None:
        """Have all of them drain. From any thread, or a signal handler."""
        self._stopping.set()

    def run(self) -> str | None:
        """Until all have ended; why one gave up, if it did: then all the others were drained."""
        failure: str | None = None
        for child in self.children:
            self._begin(child)
        said = time.monotonic()
        try:
            while any(child.process is not None or child.again is not None for child in self.children):
                if self._stopping.is_set():
                    break
                for child in self.children:
                    failure = self._look(child) or failure
                if failure is not None:
                    break
                if self._say is not None and time.monotonic() - said >= self._say_every:
                    said = time.monotonic()
                    self._say(self.figures)
                self._stopping.wait(_LOOK)
        finally:
            self._drain()
        return failure or next((str(child.said["error"]) for child in self.children if child.said), None)

    def _begin(self, child: Child) -> None:
        child.again, child.begun = None, time.monotonic()
        child.process = subprocess.Popen(
            self._command(child.number), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        child.reader = threading.Thread(target=_read, args=(child, child.process), daemon=True)
        child.reader.start()

    def _look(self, child: Child) -> str | None:
        """See whether it lives. An error that stays ends all; anything else that ended it begins it again."""
        now = time.monotonic()
        if child.again is not None and now >= child.again:
            self._begin(child)
        if child.process is None or (code := child.process.poll()) is None:
            return None
        ran = child.figures.seconds > 0 or child.before
        _close(child)
        if code == 0:
            return None
        if child.said and not (child.said.get("retryable") and ran):
            return str(child.said["error"])
        child.deaths += 1
        child.pause = FIRST if now - child.begun > _WELL else min(child.pause * 2, LONGEST)
        child.again = now + child.pause
        child.before.append(child.figures)
        child.figures, child.said = Figures(), {}
        _log.warning("process %d ended with %s, and begins again in %.0f s", child.number, _said(code), child.pause)
        return None

    def _drain(self) -> None:
        living = [child for child in self.children if child.process is not None]
        for child in living:
            assert child.process is not None and child.process.stdin is not None
            child.process.stdin.close()
        deadline = time.monotonic() + _DRAIN
        for child in living:
            assert child.process is not None
            try:
                child.process.wait(timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                _log.error("process %d does not end, and is killed: its leases end by themselves", child.number)
                child.process.kill()
                child.process.wait()
            _close(child)


def _close(child: Child) -> None:
    """Read to the end what it said, and let go of it."""
    process, child.process = child.process, None
    if process is not None:
        assert process.stdin is not None
        process.stdin.close()
        if child.reader is not None:
            child.reader.join(timeout=5)


def _read(child: Child, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for text in process.stdout:
            found = _object(text)
            if found.keys() == _ERROR:
                child.said = found
            elif (figures := Figures.said(found)) is not None:
                child.figures = figures
            else:  # a stream's function prints what it likes, and a number is JSON, too
                _log.info("process %d: %s", child.number, text.rstrip())


def _object(text: str) -> dict[str, Any]:
    """Of JSON; empty where it is anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _said(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
