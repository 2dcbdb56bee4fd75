"""A process that says where it stands, waits there for a word, and is killed where it stands.

Both ends are here. Nothing secret is on a command line: what the child is to do comes by its standard input.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, cast

from kafka_assets.broker.connection import Connection
from kafka_assets.errors import Permanent

SILENCE = 60.0
"""Seconds in which a child must say something."""
GO = "go\n"


class Child:
    """A Python process that runs one module of this package. It ends with its block, however that ends."""

    def __init__(self, module: str, task: Mapping[str, Any]) -> None:
        self.module = module
        self._trouble = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._trouble
        )
        self.pid = self._process.pid
        self._unread = b""
        self._say(json.dumps(task) + "\n")

    def said(self, *, patience: float = SILENCE) -> dict[str, Any] | None:
        """What it says next; None when it has ended by itself, in peace."""
        deadline = time.monotonic() + patience
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._out], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise self._failed(f"said nothing for {patience:.0f} s")
            read = os.read(self._out, 65536)
            if not read:
                if self._process.wait() != 0:
                    raise self._failed(f"ended with {self._process.returncode}")
                return None
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return cast("dict[str, Any]", json.loads(line))

    def heard(self) -> list[dict[str, Any]]:
        """All that it has said by now, without waiting."""
        found: list[dict[str, Any]] = []
        while b"\n" in self._unread or select.select([self._out], [], [], 0)[0]:
            one = self.said()
            if one is None:
                break
            found.append(one)
        return found

    def go(self) -> None:
        """Let it go on from where it stands."""
        self._say(GO)

    def kill(self) -> list[dict[str, Any]]:
        """SIGKILL, and wait until it is gone; what it had said by then. Half a line is not said."""
        self._process.kill()
        self._process.wait()
        while read := os.read(self._out, 65536):
            self._unread += read
        *lines, self._unread = self._unread.split(b"\n")
        return [cast("dict[str, Any]", json.loads(line)) for line in lines]

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._trouble):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()

    @property
    def _out(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        # One that is gone is noticed by `said`, with its reason.
        with suppress(BrokenPipeError):
            self._process.stdin.write(text.encode("utf-8"))
            self._process.stdin.flush()

    def _failed(self, how: str) -> Permanent:
        self._trouble.seek(0)
        told = self._trouble.read().decode("utf-8", errors="replace").strip()
        return Permanent(
            f"a process of the experiment ({self.module}) {how}",
            why=told[-1500:] or "it told no reason",
            cure="run the experiment again; if it stays so, look at broker and database with `kafka-assets doctor`",
        )


class Parent:
    """The child's end: what it is to do, what it says, and where it waits."""

    def __init__(self) -> None:
        self.task: dict[str, Any] = json.loads(sys.stdin.readline())

    @property
    def connection(self) -> Connection:
        return Connection(self.task["bootstrap_servers"], self.task["properties"])

    def say(self, stage: str, **more: Any) -> None:
        """Say it, and go on."""
        print(json.dumps({"stage": stage, **more}), flush=True)

    def told(self) -> bool:
        """Whether there is a word for it, or no parent any more."""
        return bool(select.select([sys.stdin], [], [], 0)[0])

    def wait(self, stage: str, **more: Any) -> None:
        """Say it, and stand still until told to go on; without a parent, end."""
        self.say(stage, **more)
        if sys.stdin.readline() != GO:
            sys.exit(1)


def reaching(connection: Connection) -> dict[str, Any]:
    """The part of a child's task that says how to reach the broker."""
    return {"bootstrap_servers": connection.bootstrap_servers, "properties": dict(connection.properties)}
