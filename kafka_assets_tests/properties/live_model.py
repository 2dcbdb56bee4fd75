"""What live consumers, sensors and runs promise together, in plain Python: every offset once, whoever was faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

WINDOW = 6
"""So many offsets, or more, and a window is over."""


@dataclass
class Slice:
    start: int
    end: int
    kind: str = "normal"
    is_open: bool = False
    committed: bool = False
    published: bool = True
    """Whether it has a publication: what is skipped, and what a deleted topic left unplanned, has none."""
    attempt: int = 0
    """Of its claim."""
    notes: dict[int, str] = field(default_factory=dict[int, str])
    """Who wrote the row of each offset that has one."""
    bad: set[int] = field(default_factory=set[int])


@dataclass
class Place:
    """One partition of one incarnation of the topic."""

    known: bool = False
    """Whether it was ever observed."""
    end: int = 0
    """What was produced."""
    seen: int = 0
    """The end that was written down last."""
    planned: int = 0
    owner: str | None = None
    lease_ended: bool = False
    slices: list[Slice] = field(default_factory=list[Slice])

    @property
    def leased(self) -> bool:
        return self.owner is not None and not self.lease_ended

    @property
    def committed_through(self) -> int:
        return next((one.start for one in self.slices if one.kind == "normal" and not one.committed), self.planned)

    @property
    def tail(self) -> Slice | None:
        """The open window: nothing is after it."""
        return self.slices[-1] if self.slices and self.slices[-1].is_open else None

    def close(self) -> None:
        if self.tail is not None:
            self.tail.is_open = False

    def plan(self, expected: int, cuts: Sequence[tuple[int, int, str]], *, owner: str | None) -> bool:
        """A planner's compare-and-set, or an owner's own."""
        mine = self.owner == owner if owner is not None else not self.leased
        if self.planned != expected or not mine:
            return False
        self.close()
        self.slices += [Slice(*cut, published=cut[2] == "normal") for cut in cuts]
        self.planned = cuts[-1][1]
        return True

    def grow(self, end: int, notes: dict[int, str], bad: set[int]) -> None:
        """An owner's batch is committed."""
        window = self.tail
        if window is None or window.end - window.start >= WINDOW:
            self.close()
            window = Slice(self.planned, self.planned, is_open=True, committed=True, attempt=1)
            self.slices.append(window)
        window.end = self.planned = end
        window.notes |= notes
        window.bad |= bad
        self.lease_ended = False

    def gone(self) -> None:
        """The topic was deleted and created again."""
        self.owner = None
        self.close()
        for one in self.slices:
            if one.kind == "normal" and not one.committed:
                one.kind = "lost"
        if self.seen > self.planned:
            self.slices.append(Slice(self.planned, self.seen, "lost", published=False))
            self.planned = self.seen


@dataclass
class Model:
    topics: list[list[Place]]

    @property
    def incarnation(self) -> int:
        return len(self.topics)

    def at(self, incarnation: int, partition: int) -> Place:
        return self.topics[incarnation - 1][partition]

    def places(self) -> Iterator[tuple[int, int, Place]]:
        for incarnation, places in enumerate(self.topics, 1):
            for number, place in enumerate(places):
                yield incarnation, number, place
