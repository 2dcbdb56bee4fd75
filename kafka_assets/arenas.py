"""The heaps that a run's memory comes from, of which it needs few."""

from __future__ import annotations

import ctypes
import os

import pyarrow as pa

MOST = 2
_M_ARENA_MAX = -8
"""The number by which glibc knows this setting; other C libraries know none of its kind."""


def share_arenas() -> None:
    """Let all threads of this process share two heaps, where nobody has set `MALLOC_ARENA_MAX`; Arrow's buffers, too.

    glibc gives each thread one of its own, up to eight for each processor, and keeps what was freed in it for those
    threads: what a run's queries gave, again and again by other threads, took 50 MB more than was ever in use at a
    time. Arrow keeps what was freed in heaps of its own, another 20 MB, where nobody has set its memory pool. To be
    called before a process has many threads; a heap that is there stays.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    if "MALLOC_ARENA_MAX" not in os.environ and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)):
        set_option(_M_ARENA_MAX, MOST)
