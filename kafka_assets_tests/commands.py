"""The command line, run here: what it printed, and how it ended."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_assets import cli


@contextmanager
def signals_kept() -> Iterator[None]:
    """A command is a process's last act, and need not give back the signals that it took."""
    taken = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Commands:
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, code: int = 0) -> Said:
        """Run it, and see that it ends with this code, and never with a traceback."""
        self.monkeypatch.setattr(sys, "argv", ["kafka-assets", *arguments])
        # Nobody is there to answer: a question that is asked all the same ends the command.
        self.monkeypatch.setattr(sys, "stdin", io.StringIO())
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended, signals_kept():
            cli.main()
        shown = self.capsys.readouterr()
        said = Said(int(ended.value.code or 0), shown.out, shown.err)
        assert said.code == code, said
        assert "Traceback" not in said.err
        assert bool(said.err.strip()) or code == 0
        return said
