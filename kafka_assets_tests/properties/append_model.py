"""What append promises, said once more in plain Python: no SQL, and nothing of the code that it judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Place = tuple[int, int, int]
"""Incarnation, partition, offset: one record."""


@dataclass(frozen=True)
class Delivered:
    """What one read of a slice came to: which of its offsets became rows, were bad, were left out, or had expired."""

    landed: frozenset[int]
    bad: frozenset[int]
    filtered: frozenset[int]
    expired: int
    deleting: frozenset[int] = frozenset()
    """Upsert: those that delete their key."""
    moving: frozenset[int] = frozenset()
    """Of those that landed or delete: the ones whose key is met in every partition."""

    @property
    def read(self) -> int:
        return len(self.landed) + len(self.bad) + len(self.filtered) + len(self.deleting)


@dataclass(frozen=True)
class Result:
    """A committed result: of which attempt and run, what it delivered, and what became of that."""

    attempt: int
    run: str
    delivered: Delivered
    landed: int
    superseded: int = 0
    tombstoned: int = 0


@dataclass
class Slice:
    incarnation: int
    partition: int
    start: int
    end: int
    kind: str = "normal"
    published: bool = True
    """Whether a publication and its claim exist: what was lost when it was planned, or never planned, has none."""
    state: str = "planned"
    attempt: int = 0
    lease: str = "none"
    """none, live, or ended."""
    holder: str = ""
    failures_alone: int = 0
    result: Result | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        return self.incarnation, self.partition, self.start


@dataclass
class Partition:
    """One partition of one incarnation: its end at the broker, as the ledger last saw it, and its slices."""

    end: int = 0
    last_stable: int = 0
    known: bool = False
    planned_through: int = 0
    slices: list[Slice] = field(default_factory=list[Slice])

    @property
    def committed_through(self) -> int:
        """Everything below is committed, lost or skipped."""
        for one in self.slices:
            if one.kind == "normal" and one.result is None:
                return one.start
        return self.planned_through


@dataclass
class Model:
    topics: list[dict[int, Partition]] = field(default_factory=list[dict[int, Partition]])
    """The topic's incarnations in order, each with its partitions; the last one is the topic."""

    @property
    def incarnation(self) -> int:
        return len(self.topics)

    def partition(self, incarnation: int, number: int) -> Partition:
        return self.topics[incarnation - 1].setdefault(number, Partition())

    def slices(self) -> Iterator[Slice]:
        for partitions in self.topics:
            for number in sorted(partitions):
                yield from partitions[number].slices

    def slice_at(self, incarnation: int, partition: int, start: int) -> Slice:
        return next(one for one in self.slices() if one.key == (incarnation, partition, start))

    def waiting(self, number: int) -> list[Slice]:
        """What is not committed yet of a partition of the topic."""
        part = self.partition(self.incarnation, number)
        return [one for one in part.slices if one.kind == "normal" and one.result is None]

    # What may happen.

    def observe(self, incarnation: int, ends: Mapping[int, int]) -> dict[int, int]:
        """A planner wrote down what the broker says; where planning stands."""
        for number, end in ends.items():
            seen = self.partition(incarnation, number)
            seen.known, seen.last_stable = True, end
        known = self.topics[incarnation - 1].items()
        return {number: one.planned_through for number, one in known if one.known}

    def plan(self, incarnation: int, number: int, *, expected: int, cuts: list[tuple[int, int, str]]) -> bool:
        """Compare and set; False where another planner was faster."""
        part = self.partition(incarnation, number)
        if part.planned_through != expected:
            return False
        part.slices += [
            Slice(incarnation, number, start, end, kind=kind, published=kind == "normal") for start, end, kind in cuts
        ]
        part.planned_through = cuts[-1][1]
        return True

    def topic_gone(self) -> None:
        """Another topic id: what the old one left unread is lost."""
        for number, part in self.topics[-1].items():
            for one in part.slices:
                if one.result is None:
                    one.kind = "lost"
            if part.known and part.last_stable > part.planned_through:
                rest = Slice(self.incarnation, number, part.planned_through, part.last_stable, "lost", published=False)
                part.slices.append(rest)
                part.planned_through = part.last_stable
        self.topics.append({})

    def commit(self, run: str, written: Sequence[tuple[Slice, Delivered]]) -> None:
        """A run's slices, all at once."""
        for one, found in written:
            one.state, one.result = "committed", Result(one.attempt, run, found, landed=len(found.landed))

    # What must be true.

    def rows(self) -> set[tuple[int, int, int, str]]:
        """Incarnation, partition, offset and the run that landed it."""
        return {
            (one.incarnation, one.partition, offset, f"{one.result.run}#{one.result.attempt}")
            for one in self.slices()
            if one.result is not None
            for offset in one.result.delivered.landed
        }

    def quarantined(self) -> set[Place]:
        return {
            (one.incarnation, one.partition, offset)
            for one in self.slices()
            if one.result is not None
            for offset in one.result.delivered.bad
        }
