"""The way to a nursery: start one where there is none, and have it fork a run."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_assets.assets.nursery import NOBODY, RUN_WORD, TALK, line, read_line, short_path
from kafka_assets.devstack.locks import held
from kafka_assets.errors import ServiceError

LONGEST_START = 120.0
"""Seconds that importing the definitions may take, on a machine that does much else."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""NumPy's and Arrow's libraries start threads when they are imported, and a process with threads must not fork."""


class NoNurseryError(Exception):
    """There is no nursery for this run, and why; nothing of it has been started."""


@dataclass(frozen=True)
class Newborn:
    """A child that has been forked for a run, and waits until it is told to begin."""

    pid: int
    born: str
    connection: socket.socket

    def begin(self) -> None:
        """Raises OSError where it is gone."""
        self.connection.sendall(b"go\n")


@dataclass(frozen=True)
class NurseryDoor:
    """The place of one code location's nursery, in a folder that is its owner's alone."""

    folder: Path
    name: str
    executable: str
    told: Mapping[str, str]
    """What a new one is told: see :func:`nursery.main`."""

    @contextmanager
    def forked(self, run_id: str, args: str) -> Generator[Newborn]:
        """A child for this run. Where it is not told to begin in the block, it ends. Raises NoNurseryError."""
        asked = {"run": run_id, "args": args, "server": self.told["server"]}
        try:
            _require_private(self.folder)
            found = self._ask(asked) or self._ask_first(asked)
        except (OSError, ServiceError, ValueError) as error:
            raise NoNurseryError(str(error)) from error
        if found is None:
            raise NoNurseryError("it renews itself as soon as it is there")
        connection, told = found
        with connection:
            yield Newborn(pid=told["pid"], born=told["born"], connection=connection)

    def end(self) -> None:
        """Tell it to fork no more; it is gone when its last child is."""
        with suppress(OSError), self._connected() as connection:
            connection.sendall(line({"end": True}))

    def _ask_first(self, asked: Mapping[str, str]) -> tuple[socket.socket, Any] | None:
        """Start one, unless somebody else does; two at once would cost a machine twice."""
        with held(self.folder / f"{self.name}.lock", timeout=LONGEST_START, on_wait=lambda: None):
            if (found := self._ask(asked)) is None:
                self._start()
                found = self._ask(asked)
            return found

    def _ask(self, asked: Mapping[str, str]) -> tuple[socket.socket, Any] | None:
        """Its answer, and the connection to the child; None where nobody is there, or it is the last thing it says."""
        try:
            connection = self._connected()
        except OSError:
            return None
        try:
            connection.sendall(line(asked))
            told: dict[str, Any] = json.loads(read_line(connection) or "{}")
        except OSError:
            told = {}
        if "pid" in told:
            return connection, told
        connection.close()
        if "refused" in told:
            raise NoNurseryError(told["refused"])
        return None

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(2 * TALK)
            with short_path(self.folder, f"{self.name}.sock") as short:
                connection.connect(short)
        except OSError:
            connection.close()
            raise
        return connection

    def _start(self) -> None:
        reading, writing = os.pipe()
        try:
            # In the group of its starter, as all that Dagster starts: Ctrl-C in a terminal is for its runs, too.
            process = subprocess.Popen(
                [self.executable, "-m", "kafka_assets.assets.nursery", self.name, f"{RUN_WORD}{NOBODY}"],
                stdin=subprocess.PIPE,
                env={**ONE_THREAD, **os.environ},
                pass_fds=[writing],
            )
        finally:
            os.close(writing)
        with os.fdopen(reading, "rb") as ready:
            threading.Thread(target=process.wait, name="nursery", daemon=True).start()  # no zombie stays
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(line({**self.told, "folder": str(self.folder), "ready": writing}))
            if not select.select([ready], [], [], LONGEST_START)[0]:
                process.send_signal(signal.SIGKILL)
                raise NoNurseryError(f"it was not ready within {LONGEST_START:.0f} s")
            told = json.loads(ready.readline() or '{"refused": "it ended while it imported the definitions"}')
        if "refused" in told:
            raise NoNurseryError(told["refused"])


def _require_private(folder: Path) -> None:
    """Who can write to the socket can have any code run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise NoNurseryError(f"others than its owner may use {folder}: run `chmod 700 {folder}`")
