"""What a road costs: processor seconds of each part of it, and the most memory of its own processes."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from kafka_assets import devstack

T = TypeVar("T")
CLIENT = "client"
"""The part that is the road's own processes: the command, the loops, the streaming query with its Spark."""
EVERY = 0.3
"""Seconds from one look at the memory to the next."""
TRIES = 5
"""A process may end while its family is looked at: once it is counted by itself, and once by its parent, or never."""
_IGNORED = re.compile(r"^SigIgn:\s+([0-9a-f]+)$", flags=re.MULTILINE)
_HIGHEST = re.compile(r"^VmHWM:\s+(\d+) kB$", flags=re.MULTILINE)


@dataclass(frozen=True)
class Usage:
    """What was used: user and system seconds by part, and the client's peaks in bytes, its processes added up.

    `rss` is exact for each process, but counts what they share once for each; `pss` counts that once, and is looked
    for several times a second, so a peak between two looks is not seen.
    """

    seconds: Mapping[str, float]
    rss: int
    pss: int


def service_parts(state: Path) -> dict[str, list[int]]:
    """The processes of the services of this folder, by the part that they have in a landing."""
    parts: dict[str, list[int]] = {}
    for one in devstack.status(state):
        part = {"spark": "Spark server", "kafka": "broker", "dagster": "Dagster"}.get(
            one.name.partition("-")[0], "database"
        )
        parts.setdefault(part, []).append(one.pid)
    return parts


class Meter:
    """Measures one thing at a time. `services`: by part, the processes that serve it and live on."""

    def __init__(self, services: Mapping[str, Sequence[int]]) -> None:
        self._services = {part: _Family(pids) for part, pids in services.items()}
        self._mine = psutil.Process()

    def measured(self, work: Callable[[], T], *, child: int | None = None) -> tuple[T, Usage]:
        """Do the work, and say what it used.

        Its client is what this process starts meanwhile and ends again, and its child `child`, which may live on.
        """
        # What a service starts meanwhile, as PostgreSQL a process for each connection, is the service's.
        standing = {one.pid for one in self._mine.children()}
        before = self._seconds(child)
        with _Peaks(self._mine, standing, child, self._services.values()) as peaks:
            done = work()
        after = self._seconds(child)
        used = {part: round(after[part] - before[part], 3) for part in after}
        return done, Usage(used, rss=peaks.rss, pss=peaks.pss)

    def _seconds(self, child: int | None) -> dict[str, float]:
        times = self._mine.cpu_times()
        client = times.children_user + times.children_system + (0.0 if child is None else _Family([child]).seconds())
        return {CLIENT: client, **{part: family.seconds() for part, family in self._services.items()}}


class _Family:
    """Some processes, and all that they started.

    What a process has used that ended is its parent's, if that waits for it. Spark's daemon of Python workers does not:
    what they used is forgotten with them, so it counts what was last seen of each.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._roots = [psutil.Process(pid) for pid in pids]
        self._forgotten = dict[psutil.Process, float]()
        """By process that nobody waits for, living ones too."""

    def look(self) -> None:
        """See what those have used that would be forgotten."""
        self._used()

    def seconds(self) -> float:
        """What all of them have used, user and system; those that have ended, too."""
        used = self._used()
        for _ in range(TRIES):
            if used.keys() == set(self._members()):
                break
            used = self._used()
        gone = sum(spent for process, spent in self._forgotten.items() if process not in used)
        return sum(used.values()) + gone

    def _members(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for root in self._roots:
            with suppress(psutil.NoSuchProcess):
                found += [root, *root.children(recursive=True)]
        return found

    def _used(self) -> dict[psutil.Process, float]:
        found: dict[psutil.Process, float] = {}
        for process in self._members():
            with suppress(psutil.NoSuchProcess, OSError):
                found[process] = sum(process.cpu_times()[:4])
                if process not in self._roots and _waits_for_none(process.ppid()):
                    self._forgotten[process] = found[process]
        return found


def _waits_for_none(pid: int) -> bool:
    said = _IGNORED.search(Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return said is not None and bool(int(said[1], 16) >> (signal.SIGCHLD - 1) & 1)


class _Peaks:
    """Looks at the memory of the client's processes until the work is done, and at the services' families."""

    def __init__(
        self, mine: psutil.Process, standing: Iterable[int], child: int | None, families: Iterable[_Family]
    ) -> None:
        self._mine, self._standing, self._child = mine, set(standing), child
        self._families = list(families)
        self._highest: dict[int, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self.pss = 0

    @property
    def rss(self) -> int:
        return sum(self._highest.values())

    def __enter__(self) -> _Peaks:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._done.wait(EVERY):
            self._look()
            for family in self._families:
                family.look()

    def _look(self) -> None:
        pss = 0
        for process in self._client():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):  # it has just ended
                pss += process.memory_full_info().pss
                said = _HIGHEST.search(Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"))
                if said is not None:
                    self._highest[process.pid] = int(said[1]) * 1024
        self.pss = max(self.pss, pss)

    def _client(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for one in self._mine.children():
            if one.pid not in self._standing or one.pid == self._child:
                with suppress(psutil.NoSuchProcess):
                    found += [one, *one.children(recursive=True)]
        return found
