"""How many heaps of glibc's the threads of a run's process have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

POOL = """
import pyarrow
from kafka_assets.arenas import share_arenas

share_arenas()
print(pyarrow.default_memory_pool().backend_name)
"""

HEAPS = """
import ctypes, sys, threading
from kafka_assets.arenas import share_arenas

share_arenas()
libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
together = threading.Barrier(12)

def taking():
    together.wait()
    kept.append(libc.malloc(5000))
    together.wait()

kept = []
threads = [threading.Thread(target=taking) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""


def heaps(folder: Path, **more: str) -> int:
    """Those of a process that has twelve threads at a time."""
    told = folder / "heaps.xml"
    given = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"} | more
    subprocess.run([sys.executable, "-c", HEAPS, told], check=True, env=given)
    return told.read_text().count("<heap nr=")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "confstr") or "CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="glibc alone")
def test_the_threads_of_a_run_share_two_heaps_unless_the_user_says_another_number(tmp_path: Path) -> None:
    assert heaps(tmp_path) == 2
    assert heaps(tmp_path, MALLOC_ARENA_MAX="5") == 5


@pytest.mark.slow
def test_arrow_takes_its_memory_from_them_unless_the_user_names_another_pool() -> None:
    def pool(**more: str) -> str:
        others = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
        return subprocess.check_output([sys.executable, "-c", POOL], env=others | more, text=True).strip()

    assert pool() == "system"
    assert pool(ARROW_DEFAULT_MEMORY_POOL="mimalloc") == "mimalloc"
