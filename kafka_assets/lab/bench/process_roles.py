"""What each process of a project's services is for, by its command line; and what each role uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from kafka_assets.assets.nursery import NOBODY, RUN_WORD
from kafka_assets.lab.bench.run_cost import command_of, family, memory_of, seconds_of

NURSERY, RUNS, DAEMON = "nursery", "runs", "daemon"
ROLES = {
    f"{RUN_WORD}{NOBODY}": NURSERY,
    "kafka_assets.assets.nursery": RUNS,
    "multiprocessing.spawn": RUNS,
    "pyspark.daemon": "workers",
    "dagster_webserver": "webserver",
    "dagster._daemon": DAEMON,
    "spark_application": "spark",
    "kafka.Kafka": "kafka",
    "api grpc": "code",
    "code-server": "code",
    "dagster dev": "dev",
}
"""By what stands in their command lines; the first that does is meant."""


@dataclass(frozen=True)
class RoleUse:
    """What the processes of one role have used: user and system seconds since they began, and bytes now (PSS)."""

    seconds: float = 0.0
    memory: int = 0

    def __add__(self, other: RoleUse) -> RoleUse:
        return RoleUse(self.seconds + other.seconds, self.memory + other.memory)


def role_of(words: str) -> str | None:
    """What a process of this command line is for."""
    return next((role for part, role in ROLES.items() if part in words), None)


def used_by_role(services: Mapping[str, Iterable[int]]) -> dict[str, RoleUse]:
    """By role, what the services have used, with all that they started; those that have ended are in the seconds.

    `services`: the processes that each comes from, by what the role of a process is called that says nothing itself.
    The seconds of a child that ended are its parent's. The role `runs` has those of a nursery's children, and of the
    daemon's: they are runs, and nurseries that another one has followed, with all that they had forked.
    """
    found: dict[str, RoleUse] = {}
    for name, roots in services.items():
        for root in roots:
            for pid in {root, *family(root)}:
                with suppress(OSError):  # it is gone, and its parent has its time
                    role = role_of(" ".join(command_of(pid))) or name
                    own, of_ended = seconds_of(pid)
                    memory = 0
                    with suppress(OSError):  # a zombie has none, and of another user's it is not told
                        memory = memory_of(pid)[1]
                    ended = RUNS if role in (NURSERY, DAEMON) else role
                    found[role] = found.get(role, RoleUse()) + RoleUse(own, memory)
                    found[ended] = found.get(ended, RoleUse()) + RoleUse(of_ended)
    return found
