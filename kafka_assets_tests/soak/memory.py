"""The processes of a soak's services: what each is for, and the memory that they take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from kafka_assets.devstack.processes import MARK
from kafka_assets.lab.bench.process_roles import role_of


@dataclass
class Memory:
    """Of the processes of one role: how many there are, and their resident megabytes, added up."""

    processes: int = 0
    megabytes: float = 0.0


def marked(state: Path) -> list[psutil.Process]:
    """All processes of the services of this folder."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").endswith(f"@{state}"):
                found.append(process)
        except psutil.Error:
            continue
    return found


def role(process: psutil.Process) -> str:
    try:
        words = " ".join(process.cmdline())
    except psutil.Error:
        return "gone"
    return role_of(words) or "other"


def memory_of(state: Path) -> dict[str, Memory]:
    """By role."""
    found: dict[str, Memory] = {}
    for process in marked(state):
        try:
            megabytes = process.memory_info().rss / 1e6
        except psutil.Error:
            continue
        of_role = found.setdefault(role(process), Memory())
        of_role.processes += 1
        of_role.megabytes += megabytes
    return found
