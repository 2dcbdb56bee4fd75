"""The end of a test run: a process that waits until the run is over, however that comes, and ends what it left.

Its standard input is a pipe into which nobody writes. The kernel closes it with the run's first process, so a run that
was interrupted, broken or killed leaves as little behind as one that passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

RUN = "KAFKA_ASSETS_TESTS_RUN"
"""In the environment of all that a test run starts: the folder of its services."""


class Keeper:
    """The keeper as the run's first process sees it: it is told of the end, and waited for."""

    def __init__(self, run: Path, *, temporary: Path) -> None:
        # A session of its own: a Ctrl-C in the terminal is not for it.
        self._process = subprocess.Popen(
            [sys.executable, __file__, run, temporary], stdin=subprocess.PIPE, start_new_session=True
        )

    def end(self, *, patience: float = 60) -> None:
        """The run is over."""
        self._process.communicate(timeout=patience)


def wait_and_end(run: Path, temporary: Path) -> None:
    """Wait for the end of the run; then end its processes, and services whose state lies in one of these folders."""
    import psutil

    from kafka_assets import devstack
    from kafka_assets.devstack import processes

    sys.stdin.read()
    left: list[psutil.Process] = []
    states: set[Path] = set()
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue
        _, _, named = environment.get(processes.MARK, "").partition("@")
        state = Path(named) if any(named.startswith(f"{place}/") for place in (run, temporary)) else None
        if (state or environment.get(RUN) == str(run)) and process.pid != os.getpid():
            left.append(process)
        if state:
            states.add(state)
    processes.stop(left, patience=10)
    # Their data may lie elsewhere, where another user can go.
    for state in states:
        devstack.down(state, delete=True)
    shutil.rmtree(run, ignore_errors=True)


if __name__ == "__main__":
    wait_and_end(*map(Path, sys.argv[1:]))
