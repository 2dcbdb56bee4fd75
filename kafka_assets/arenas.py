"""The heaps that glibc gives to threads, of which a run needs few."""

from __future__ import annotations

import ctypes
import os

MOST = 2
_M_ARENA_MAX = -8
"""The number by which glibc knows this setting; other C libraries know none of its kind."""


def share_arenas() -> None:
    """Let all threads of this process share two heaps, where nobody has set `MALLOC_ARENA_MAX`.

    glibc gives each thread one of its own, up to eight for each processor, and keeps what was freed in it for those
    threads: what a run's queries gave, again and again by other threads, took 50 MB more than was ever in use at a
    time. To be called before a process has many threads; a heap that is there stays.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)):
        set_option(_M_ARENA_MAX, MOST)
