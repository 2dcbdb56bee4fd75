"""Locks between processes: the kernel releases them when their holder ends, however it ends."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from kafka_assets.errors import ServiceError


@contextmanager
def held(path: Path, *, timeout: float, on_wait: Callable[[], None]) -> Generator[None]:
    """Hold the lock file while inside; call `on_wait` once where another process holds it first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    waited = False
    with path.open("a") as file:
        while not _taken(file.fileno()):
            if not waited:
                on_wait()
                waited = True
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{path} is still locked after {timeout:.0f} s",
                    why="another kafka-assets process is at work there",
                    cure=f"wait for it, or find it with `fuser {path}` and end it",
                )
            time.sleep(0.1)
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
