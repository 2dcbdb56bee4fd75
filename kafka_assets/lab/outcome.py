"""What an experiment found: of so many records, how many are gone, and how many came again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """One mode's result. `lost` records should be there and are not; each copy above the first is `doubled`."""

    mode: str
    records: int
    lost: int
    doubled: int
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else is known, for the table and the JSON."""

    @property
    def row(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "records": self.records,
            "lost": self.lost,
            "doubled": self.doubled,
            **self.more,
        }


def counted(
    mode: str, *, records: int, expected: Collection[Hashable], found: Iterable[Hashable], **more: Any
) -> Outcome:
    """Compare what must be there with what an independent reader found; what was not promised may be there or not."""
    copies = Counter(found)
    lost = sum(one not in copies for one in set(expected))
    doubled = sum(count - 1 for count in copies.values())
    return Outcome(mode, records, lost, doubled, more)
