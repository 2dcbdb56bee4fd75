"""What a group did to one of its members: counted, timed, and told in the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from kafka_assets.broker.membership import LOGGER

Place = tuple[str, int]
"""A topic's name, and a partition."""
Kind = Literal["assigned", "revoked", "lost"]

_KEPT = 1000


@dataclass(frozen=True)
class Rebalance:
    """Partitions that came or went at once."""

    kind: Kind
    places: tuple[Place, ...]
    seconds: float
    """How long this member took to take them over, or to let go of them."""
    why: str = ""
    number: int = 0


@dataclass
class Rebalances:
    """All of one member's; the last thousand are kept."""

    count: int = 0
    seconds: float = 0.0
    kinds: dict[Kind, int] = field(default_factory=dict[Kind, int])
    last: deque[Rebalance] = field(default_factory=lambda: deque[Rebalance](maxlen=_KEPT))
    _told: int = 0

    def add(self, one: Rebalance) -> None:
        self.count += 1
        self.seconds += one.seconds
        self.kinds[one.kind] = self.kinds.get(one.kind, 0) + 1
        self.last.append(replace(one, number=self.count))

    @property
    def settled(self) -> bool:
        """Whether the last thing that the group did was to give: what it took, it gives anew, be it nothing."""
        return bool(self.last) and self.last[-1].kind == "assigned"

    def log(self, group: str, causes: Sequence[str], *, owned: int) -> None:
        """Tell of those that were not told yet; they share the causes, since one thing moved them all."""
        new = [one for one in self.last if one.number > self._told]
        self._told = self.count
        for one in new:
            why = "; ".join(dict.fromkeys(causes)) or _guess(one)
            known = replace(one, why=why)
            self.last[self.last.index(one)] = known
            LOGGER.info(
                "group %s, rebalance %d: %s %s in %.3f s, has %d now (%s)",
                group,
                known.number,
                known.kind,
                shown(known.places) or "nothing",
                known.seconds,
                owned,
                why,
            )


def shown(places: Iterable[Place]) -> str:
    """`orders:0,1,2 shop:0`"""
    return " ".join(
        f"{topic}:{','.join(str(partition) for _, partition in some)}"
        for topic, some in groupby(sorted(places), key=lambda place: place[0])
    )


def _guess(one: Rebalance) -> str:
    if one.kind == "lost":
        return "the group had counted this member as gone"
    return "this member joined" if one.number == 1 else "members came or went"
