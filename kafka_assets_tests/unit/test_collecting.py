"""A process that consumes keeps the memory of its last batch for the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from kafka_assets.live.collecting import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        parts = [np.ones(3_000_000, np.uint8) for _ in range(3)]
        del parts
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
keep_memory()
faults()
print(first, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory as they like")
def test_what_a_batch_needed_is_there_for_the_next_one() -> None:
    run = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, run.stdout.split())
    assert before > 1_000  # else this asks for nothing that would be given back
    assert after < before / 10
