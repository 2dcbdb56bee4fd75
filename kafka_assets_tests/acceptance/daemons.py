"""Dagster's daemon alone, as production runs it: a process that a test may kill, and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from kafka_assets.devstack.dagster import MODULE, write_instance


class Daemon:
    """One daemon on one Dagster instance, with its code server and run workers in a session of their own."""

    def __init__(self, folder: Path, *, home: Path) -> None:
        self.folder, self.home = folder, home
        self.log = folder / f"daemon-{home.name}.log"
        self._started: list[subprocess.Popen[bytes]] = []
        self._streams = folder / "defs"

    def start(self) -> None:
        write_instance(self.home)
        with self.log.open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dagster._daemon", "run", "-m", MODULE],
                    cwd=self.folder,
                    env={**os.environ, "DAGSTER_HOME": str(self.home)},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def kill(self, *, everything: bool) -> None:
        """SIGKILL to the daemon alone, whose run workers go on, or to all that it started, too."""
        daemon = self._started[-1]
        if everything:
            os.killpg(daemon.pid, signal.SIGKILL)
        else:
            daemon.kill()
        daemon.wait(timeout=120)

    def end(self) -> None:
        """Leave nothing behind, not even the workers of a daemon that was killed."""
        for daemon in self._started:
            try:
                os.killpg(daemon.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            daemon.wait(timeout=120)
