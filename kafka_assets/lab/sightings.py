"""What the members of a group said: which records they handled when, and whose the partitions were."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

GIVEN, COMMITTED = "assigned", "committed"
TAKEN = ("revoked", "lost")

LAST = 5000
"""Of so many handlings at the end of the list a member has some, if it handles anything."""


@dataclass(frozen=True)
class Handling:
    """One record, handled once."""

    at: float
    member: str
    partition: int
    offset: int


class Sightings:
    """All members' words in one place; times are those at which they say it was."""

    def __init__(self) -> None:
        self.handlings: list[Handling] = []
        self.owned: dict[str, set[int]] = defaultdict(set)
        self.moved_at = 0.0
        """When a partition was last given to somebody."""
        self._committed_at: dict[str, float] = {}
        self._stops: list[tuple[float, int]] = []

    def add(self, member: str, said: Mapping[str, Any]) -> None:
        at = float(said["at"])
        if said["stage"] == GIVEN:
            self.owned[member].update(said["partitions"])
            self.moved_at = max(self.moved_at, at)
        elif said["stage"] in TAKEN:
            self.owned[member].difference_update(said["partitions"])
            self._stops += [(at, partition) for partition in said["partitions"]]
        elif said["stage"] == COMMITTED:
            self._committed_at[member] = at
        else:
            self.handlings += [
                Handling(at, member, int(partition), offset)
                for partition, offsets in said["offsets"].items()
                for offset in offsets
            ]

    def gone(self, member: str) -> None:
        """What it still had stopped with it."""
        self._stops += [(time.time(), partition) for partition in self.owned.pop(member, ())]

    def owes(self, member: str, *, since: float) -> bool:
        """Whether it handled something so many seconds after its last commit, or later."""
        moment = self._committed_at.get(member, 0.0) + since
        return any(one.at > moment for one in reversed(self.handlings[-LAST:]) if one.member == member)

    def handled_since(self, partition: int, moment: float) -> bool:
        return any(one.partition == partition and one.at > moment for one in reversed(self.handlings))

    def stopped(self, began: float, ended: float) -> set[int]:
        """The partitions that were taken from somebody in this time, or whose owner went."""
        return {partition for at, partition in self._stops if began <= at < ended}

    def pause(self, partition: int, began: float, ended: float) -> float:
        """The longest time without a record of this partition that ended within this time."""
        times = sorted({one.at for one in self.handlings if one.partition == partition})
        return max((then - before for before, then in pairwise(times) if began <= then < ended), default=0.0)
