"""When a process began: with its pid, a name that the kernel never gives twice."""

from __future__ import annotations

from pathlib import Path

import psutil

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_START_TIME = 19
"""The place of `starttime` in /proc/PID/stat, counted behind the program's name, which may hold blanks."""


def birth(pid: int) -> str | None:
    """When the process began, as a word to compare; None where there is none.

    It is counted in the kernel's ticks since the boot that it names. A time of day would not do: it is worked out
    from the boot's time, which moves whenever somebody sets the clock, and a living process would look like another.
    """
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = _BOOT.read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        # Not a Linux, or not there.
        try:
            return f"{psutil.Process(pid).create_time():.2f}"
        except psutil.NoSuchProcess:
            return None
    return f"{told.rpartition(')')[2].split()[_START_TIME]}@{boot[:8]}"
