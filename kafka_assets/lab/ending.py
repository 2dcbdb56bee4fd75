"""SIGTERM as an exception: what was frozen or killed for an experiment is put back before the process ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from kafka_assets.errors import ServiceError


class _Terminated(BaseException):
    """No Exception: nobody on the way takes it for trouble of the cluster."""


@contextmanager
def put_back(restore: Callable[[], None]) -> Generator[None]:
    """Call `restore` after the block, however it ends. SIGTERM ends it, and is a ServiceError after that."""
    before = signal.getsignal(signal.SIGTERM)

    def unwind(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    def wait(number: int, frame: FrameType | None) -> None:
        """No SIG_IGN, which the brokers that are started again would inherit."""

    signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    except _Terminated:
        raise ServiceError(
            "the experiment was ended by SIGTERM", why="somebody asked for it", cure="run it again"
        ) from None
    finally:
        signal.signal(signal.SIGTERM, wait)
        try:
            restore()
        finally:
            signal.signal(signal.SIGTERM, before)
