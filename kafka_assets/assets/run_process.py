"""The process that carries a forked run out: named in the run's tag, told from another with its pid, interrupted."""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass

import dagster as dg

from kafka_assets.birth import birth
from kafka_assets.devstack import processes

PROCESS_TAG = ".dagster/kafka_assets_process"
LAUNCHER_TAG = ".dagster/kafka_assets_launcher"
"""The same of the process that has a run started, until it has one of its own. Both have the prefix of tags that
Dagster's pages do not show."""


@dataclass(frozen=True)
class RunProcess:
    """A run's process on one host."""

    run_id: str
    host: str
    pid: int
    born: str
    """Of two processes that had this pid one after the other, says which: see :func:`birth`."""

    @classmethod
    def of(cls, run: dg.DagsterRun, tag: str = PROCESS_TAG) -> RunProcess | None:
        """The process of a run that was forked, or its launcher's; None for any other run.

        Dagster's retry of a run has the tags of the first: they tell nothing of its own process.
        """
        if (written := run.tags.get(tag)) is None:
            return None
        process = cls(**json.loads(written))
        return process if process.run_id == run.run_id else None

    @classmethod
    def launcher(cls, run_id: str) -> RunProcess:
        """This process, which has the run started."""
        return cls(run_id, this_host(), pid=os.getpid(), born=birth(os.getpid()) or "")

    def tag(self, name: str = PROCESS_TAG) -> dict[str, str]:
        return {name: json.dumps(vars(self))}

    @property
    def is_here(self) -> bool:
        """Whether it runs, or ran, on this host: nobody here can tell anything of another's processes."""
        return self.host == this_host()

    @property
    def lives(self) -> bool:
        """Whether it is there, and no zombie. Only where it `is_here`."""
        return processes.find(self.pid, self.born) is not None

    @property
    def may_live(self) -> bool:
        return not self.is_here or self.lives

    def interrupt(self) -> bool:
        """SIGINT, with which Dagster ends a run; False where the process is gone or elsewhere."""
        if not self.is_here:
            return False
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                # The handle is the process's own: what lives now cannot be another one when the signal is sent.
                if self.lives:
                    signal.pidfd_send_signal(handle, signal.SIGINT)
                    return True
            finally:
                os.close(handle)
        return False


def this_host() -> str:
    return socket.gethostname()
