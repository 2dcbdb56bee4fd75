"""Processes of a measurement: told by a line what to do, let go together, heard when they are done."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from kafka_assets.errors import ServiceError


def together(jobs: Sequence[Mapping[str, object]]) -> list[tuple[float, float]]:
    """Begin all processes, let them go when every one is ready, and wait for their times."""
    command = [sys.executable, "-m", "kafka_assets.lab.bench.loop_process"]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in jobs]
    for child in children:
        threading.Thread(target=_end_together, args=(child, children), daemon=True).start()
    try:
        for child, job in zip(children, jobs, strict=True):
            tell(child, json.dumps(job))
        for child in children:
            hear(child)
        for child in children:
            tell(child, "go")
        told = [json.loads(hear(child)) for child in children]
        for child in children:
            child.wait(timeout=60)
        return [(one["first"], one["last"]) for one in told]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()


def _end_together(child: subprocess.Popen[str], children: Sequence[subprocess.Popen[str]]) -> None:
    """One that fails takes the others with it: they would wait for it for ever."""
    if child.wait() != 0:
        for other in children:
            other.kill()


def tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def hear(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise ServiceError(
            f"a process of the benchmark ended with {child.wait()} before it was done",
            why="it printed the reason above",
            cure="correct it, and run the benchmark again",
        )
    return line.strip()
