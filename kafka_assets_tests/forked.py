"""A module's `main` in a process of its own that begins at once: forked from one that has imported what it needs.

What a test freezes or kills must be a process. Each that imports SQLAlchemy, pydantic and a client of Kafka by itself
takes a second of a processor for that; one that is forked takes a hundredth. The process that they are forked from is
begun with the first of them, ends with the worker, has no threads and opens nothing.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [f"kafka_assets_tests.integration.{one}" for one in ("publisher", "owner", "killed_consumer", "live_member")]
)


class Forked:
    """`main(*arguments)` of a module: with standard input and output to speak to it, or a log that both outputs go to.

    It holds back the signals of `held` until it lets them through itself.
    """

    def __init__(
        self, module: str, *arguments: str, log: Path | None = None, held: Collection[signal.Signals] = ()
    ) -> None:
        told, self._tells = _CONTEXT.Pipe(duplex=False)
        self._says, says = _CONTEXT.Pipe(duplex=False)
        begun, begins = _CONTEXT.Pipe(duplex=False)
        given: dict[str, Any] = {"log": log, "held": list(held), "environment": dict(os.environ)}
        # Who began it may end without a word: then it is ended, too.
        self._process = _CONTEXT.Process(
            target=_main, args=(module, arguments, told, says, begins), kwargs=given, daemon=True
        )
        self._process.start()
        for theirs in (told, says, begins):
            theirs.close()
        begun.recv()
        begun.close()
        self.stdin = open(self._tells.fileno(), "w", closefd=False)  # noqa: SIM115 a pipe's, closed with it
        self.stdout = open(self._says.fileno(), closefd=False)  # noqa: SIM115
        self.pid = self._process.pid or 0

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; none while it lives."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise TimeoutError(f"process {self.pid} lives after {timeout} s")
        for mine in (self.stdin, self.stdout, self._tells, self._says):
            mine.close()
        return code


def _main(
    module: str,
    arguments: Collection[str],
    told: Connection,
    says: Connection,
    begins: Connection,
    *,
    log: Path | None,
    held: Collection[signal.Signals],
    environment: Mapping[str, str],
) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.dup2(told.fileno(), 0)
    if log:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    else:
        os.dup2(says.fileno(), 1)
    told.close()
    says.close()
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in enumerate("rww"))  # noqa: SIM115
    begins.send(None)
    begins.close()
    importlib.import_module(module).main(*arguments)
