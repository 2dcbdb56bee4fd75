"""Processes that outlive us: started apart, known by pid and start time, ended with all that they started."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from kafka_assets.birth import birth

MARK = "KAFKA_ASSETS_SERVICE"
"""In the environment of every service, as name@folder: finds those that a lost or damaged state file forgot."""

UNPRIVILEGED = "nobody"

LONG_LOG = 50_000_000
"""Bytes; Kafka and Spark turn their logs over by themselves, the others write into one for as long as they run."""

# What a program needs to know of its surroundings. The rest may be secrets (a broker's password, a cloud's key), and
# whoever may look at a service's process reads its environment: PostgreSQL's runs as `nobody`, as others do.
_HANDED_ON = ("PATH", "HOME", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "XDG_CACHE_HOME")
_SPEECH = {"LC_ALL": "C.UTF-8"}
"""File names are UTF-8 to a Java, too: in the plain C locale it can name no others than those of ASCII."""


def spawn(
    command: Sequence[str | Path],
    *,
    mark: str,
    env: Mapping[str, str],
    folder: Path,
    log: Path,
    unprivileged: bool = False,
    whole_environment: bool = False,
) -> psutil.Process:
    """Start a service in a session of its own: a Ctrl-C in our terminal is not for it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LONG_LOG:
        log.replace(log.with_name(f"{log.name}.1"))
    user = pwd.getpwnam(UNPRIVILEGED) if unprivileged else None
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**(os.environ if whole_environment else environment()), **env, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
        )
    service = psutil.Process(process.pid)
    # It is meant to outlive this object: without this, Popen warns of a process left behind.
    process.returncode = 0
    return service


def environment() -> dict[str, str]:
    """What a service, or a program that prepares one, learns of our own environment."""
    return {name: value for name in _HANDED_ON if (value := os.environ.get(name))} | _SPEECH


def find(pid: int, born: str) -> psutil.Process | None:
    """The process with this pid, if it still runs and is the one that was born then (:func:`birth`)."""
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None
    return process if birth(pid) == born and is_alive(process) else None


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; a child of ours that ended is collected on the way."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return process.is_running()
        process.wait(timeout=0)
    except (psutil.NoSuchProcess, psutil.TimeoutExpired):
        pass
    return False


def strays(folder: Path, name: str | None = None) -> list[psutil.Process]:
    """Processes that carry the mark of this state folder, whether or not its file knows them.

    What one of them started is its own, and not listed beside it, as PostgreSQL's fork for each connection.
    """
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(MARK, "")
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess, OSError):
            continue
        owner, _, where = mark.partition("@")
        if where == str(folder) and name in (None, owner) and process.pid != os.getpid():
            found.append(process)
    children = _children_of(found)
    return [process for process in found if process not in children and is_alive(process)]


def stop(
    processes: Iterable[psutil.Process], *, patience: float, ask: signal.Signals = signal.SIGTERM
) -> list[psutil.Process]:
    """End processes and all that they started: asked first, killed after `patience` seconds. Return the killed."""
    family = _with_descendants(processes)
    heads = [process for process in family if process not in _children_of(family)]
    for process in heads:
        _signal(process, ask)
    stubborn = _still_there(heads, timeout=patience)
    # What its parent left behind is asked, too, but not waited for as long.
    orphans = [process for process in family if process not in heads and is_alive(process)]
    for process in orphans:
        _signal(process, signal.SIGTERM)
    left = [*stubborn, *_still_there(orphans, timeout=2)]
    for process in left:
        _signal(process, signal.SIGKILL)
    _still_there(left, timeout=10)
    return left


def _still_there(processes: Sequence[psutil.Process], *, timeout: float) -> list[psutil.Process]:
    """Wait until all have ended; return those that have not. One that nobody collected yet (a zombie) has."""
    deadline = time.monotonic() + timeout
    alive = [process for process in processes if is_alive(process)]
    while alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = [process for process in alive if is_alive(process)]
    return alive


def _with_descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    family: dict[int, psutil.Process] = {}
    for process in processes:
        try:
            family |= {one.pid: one for one in (process, *process.children(recursive=True))}
        except psutil.NoSuchProcess:
            continue
    return list(family.values())


def _children_of(family: Iterable[psutil.Process]) -> list[psutil.Process]:
    pids = {process.pid for process in family}
    children: list[psutil.Process] = []
    for process in family:
        try:
            if process.ppid() in pids:
                children.append(process)
        except psutil.NoSuchProcess:
            continue
    return children


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def tail(log: Path, *, since: int = 0, lines: int = 12) -> str:
    """The last lines of a log, of what was written after `since` bytes."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        # A log that was rotated meanwhile is shorter than it was.
        file.seek(max(min(since, size) if size >= since else 0, size - 20_000))
        text = file.read().decode("utf-8", errors="replace")
    # Of a Java stack trace, the messages say what happened; the calls below them push those out.
    telling = [line for line in text.strip().splitlines() if not line.startswith("\tat ")]
    return "\n".join(telling[-lines:])
