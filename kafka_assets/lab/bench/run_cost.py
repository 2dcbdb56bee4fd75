"""What each run of a Dagster costs, seen from outside while it lives: processor seconds, and memory of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import sysconf
from pathlib import Path

from kafka_assets.assets.nursery import NOBODY, RUN_WORD

EVERY = 0.1
"""Seconds from one look to the next. A run that has ended is still there, as a zombie, until whoever started it looks
after its children, twice a second: so the last look at it tells all that it used."""
PATIENCE = 60.0
_TICKS = sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class RunCost:
    """One run that has ended.

    `seconds` are user and system seconds, of its process and of all that it started and saw end. `private` are the
    most bytes that it shared with nobody; `pss` the most with its part of what it shared, so with the process that it
    was forked from. Both are added up over the processes that lived at one look.
    """

    pid: int
    seconds: float
    private: int
    pss: int


class RunWatch:
    """Looks at the runs of one Dagster, from entering the block to its end; those that were there before are no one's.

    `root` is the process that all of the Dagster's come from.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._there = set(family(root))
        self._costs: dict[int, RunCost] = {}
        self._live: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="run watch", daemon=True)

    def __enter__(self) -> RunWatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def await_ends(self, seconds: float = PATIENCE) -> None:
        """Wait until no run is under way, or so long: one goes on after its commit, and after Dagster knows its end."""
        until = time.monotonic() + seconds
        while self._live and time.monotonic() < until:
            time.sleep(EVERY)

    @property
    def costs(self) -> list[RunCost]:
        """Of the runs that have ended by now."""
        return [cost for pid, cost in self._costs.items() if pid not in self._live]

    def _look_on(self) -> None:
        while not self._over.wait(EVERY):
            self._look()

    def _look(self) -> None:
        live: set[int] = set()
        # The kernel's list of a process's children may leave one out while another one ends: those that were there at
        # the last look are asked by themselves.
        for pid in {*family(self._root), *self._live}:
            # A zombie has no command line any more.
            if pid in self._costs or (pid not in self._there and is_run(command_of(pid))):
                with suppress(OSError):  # it is gone
                    self._costs[pid] = self._cost(pid)
                    live.add(pid)
        self._live = live

    def _cost(self, pid: int) -> RunCost:
        before = self._costs.get(pid, RunCost(pid, 0.0, 0, 0))
        private = pss = 0
        for one in (pid, *family(pid)):
            with suppress(OSError):
                of_one = memory_of(one)
                private, pss = private + of_one[0], pss + of_one[1]
        seconds = max(before.seconds, sum(seconds_of(pid)))
        return RunCost(pid, seconds, max(before.private, private), max(before.pss, pss))


def is_run(command: Sequence[str]) -> bool:
    """Whether a process of this command line carries out a run: forked from a nursery, or an interpreter of its own."""
    if "kafka_assets.assets.nursery" in command:
        return command[-1] != f"{RUN_WORD}{NOBODY}"
    return "multiprocessing.spawn" in " ".join(command)


def family(pid: int) -> Iterator[int]:
    """All that a process has started, with what they have started."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in map(int, (thread / "children").read_text(encoding="ascii").split()):
                    yield child
                    yield from family(child)


def command_of(pid: int) -> list[str]:
    """The words of its command line; none of a zombie, and of one that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return []


def seconds_of(pid: int) -> tuple[float, float]:
    """User and system seconds of a process, and of its children that have ended; raises OSError where it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    user, system, ended_user, ended_system = (int(one) / _TICKS for one in fields[11:15])
    return user + system, ended_user + ended_system


def memory_of(pid: int) -> tuple[int, int]:
    """Bytes that a process shares with nobody, and those with its part of the shared ones; OSError of a zombie."""
    private = pss = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name in ("Private_Clean", "Private_Dirty"):
            private += int(rest.split()[0]) << 10
        elif name == "Pss":
            pss = int(rest.split()[0]) << 10
    return private, pss
