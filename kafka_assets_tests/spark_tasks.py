"""What became of the tasks of a Spark cluster, and on which executors: as its driver's log tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LOGGED = """
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = info
logger.executors.name = org.apache.spark.scheduler.cluster
logger.executors.level = info
"""
"""What the driver's log4j needs beside its own configuration, so that its log tells it."""

_LINE = re.compile(
    r"Starting task \d+\.(?P<attempt>\d+) in stage \S+ \(TID (?P<started>\d+)\) \([^)]*?executor (?P<executor>\d+)"
    r"|Finished task \S+ in stage \S+ \(TID (?P<finished>\d+)\)"
    r"|Lost task \S+ in stage \S+ \(TID (?P<lost>\d+)\)"
    r"|Lost executor (?P<gone>\d+) on"
    r"|Registered executor .* with ID (?P<registered>\d+)"
)


@dataclass
class Task:
    """One try at a part of a query."""

    executor: int
    attempt: int
    """0 for the first try."""
    ended: str = ""
    """'finished', 'lost', or nothing while it runs."""


@dataclass(frozen=True)
class Told:
    """All that the log has."""

    tasks: list[Task]
    executors: set[int]
    """Those that have ever come, by their number."""


def told(log: Path) -> Told:
    tasks: dict[str, Task] = {}
    executors: set[int] = set()
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        match = _LINE.search(line)
        if match is None:
            continue
        if started := match["started"]:
            tasks[started] = Task(int(match["executor"]), int(match["attempt"]))
        elif registered := match["registered"]:
            executors.add(int(registered))
        elif gone := match["gone"]:
            # Of those that died with a worker no line tells.
            for task in tasks.values():
                if task.executor == int(gone) and not task.ended:
                    task.ended = "lost"
        else:
            tasks[match["finished"] or match["lost"]].ended = "finished" if match["finished"] else "lost"
    return Told(list(tasks.values()), executors)
