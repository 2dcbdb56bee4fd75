"""A process that stands still: alive to the system, and heard by nobody."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def freeze(pid: int) -> None:
    """Stop a process, and see all of its threads stand: one that runs when the signal is sent may still answer."""
    os.kill(pid, signal.SIGSTOP)
    while not _stands(pid):
        time.sleep(0.01)


@contextmanager
def frozen(pid: int) -> Generator[None]:
    """Stopped for the length of the block."""
    try:
        freeze(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _stands(pid: int) -> bool:
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except FileNotFoundError:  # a thread ended meanwhile, so it was running
        return False
    return {stat.rpartition(")")[2].split()[0] for stat in stats} == {"T"}
