"""Where the sensor's telling stands, kept in Dagster: whoever deletes Dagster's storage deletes this with it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
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
