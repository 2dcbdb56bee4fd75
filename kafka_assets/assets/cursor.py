"""Where the sensor's telling stands, kept in Dagster: whoever deletes Dagster's storage deletes this with it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast


@dataclass
class Cursor:
    """Ids of publications. None of them is a truth about progress: with an empty one, all is told again."""

    met: int = 0
    """All up to here were met: told, or in `waiting`."""
    waiting: set[int] = field(default_factory=set[int])
    """Met, and not committed yet, or their run may tell of them itself."""
    swept: int = 0
    """The sweep, which goes through all of it again and again, has come to here."""
    settled: dict[str, int] = field(default_factory=dict[str, int])
    """Per asset: all up to here is forgotten for good, by keep_keys, and no sweep looks at it again."""
    unsettled: set[str] = field(default_factory=set[str])
    """Assets of which this sweep has seen a publication that is not."""
    turn: int = 0
    """Which stream is planned first."""
    out_since: float | None = None
    """Since when ticks could not do their work, in s since 1970; None while they can."""

    @property
    def out_seconds(self) -> float:
        return 0.0 if self.out_since is None else max(0.0, time.time() - self.out_since)

    def answered(self) -> Cursor:
        """After a tick that could do its work."""
        return replace(self, out_since=None)

    def unanswered(self) -> Cursor:
        """After one that could not."""
        return self if self.out_since is not None else replace(self, out_since=time.time())

    @classmethod
    def parse(cls, text: str | None) -> Cursor:
        """What `written` wrote; anything else (another sensor's, an older version's) is an empty one."""
        try:
            found = cast("dict[str, Any]", json.loads(text or "{}"))
            return cls(
                met=int(found["met"]),
                waiting=_ids(found["waiting"]),
                swept=int(found["swept"]),
                settled={str(asset): int(through) for asset, through in found["settled"].items()},
                unsettled=set(map(str, found["unsettled"])),
                turn=int(found["turn"]),
                out_since=None if found.get("out_since") is None else float(found["out_since"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def written(self) -> str:
        return json.dumps(
            {
                "met": self.met,
                "waiting": _ranges(self.waiting),
                "swept": self.swept,
                "settled": self.settled,
                "unsettled": sorted(self.unsettled),
                "turn": self.turn,
                **({} if self.out_since is None else {"out_since": self.out_since}),
            }
        )


def _ranges(ids: Iterable[int]) -> str:
    """`1-3 7`: slices are planned side by side, so a backlog is a few ranges."""
    ranges: list[list[int]] = []
    for number in sorted(ids):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return " ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


def _ids(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
