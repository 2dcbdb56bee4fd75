"""What one consumer has done and where it stands: counted as it goes, told now and then."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass
class Figures:
    """Written by the consumer's own thread; what others read is a moment old."""

    records: int = 0
    rows: int = 0
    quarantined: int = 0
    bytes: int = 0
    commits: int = 0
    retries: int = 0
    """Batches that were tried again, since the database or the broker did not answer."""
    restarts: int = 0
    """Partitions that were begun with again, from the ledger: fenced, expired, created again."""
    rebalances: int = 0
    rebalance_seconds: float = 0.0
    partitions: int = 0
    """That are read now."""
    waiting: dict[str, str] = field(default_factory=dict[str, str])
    """Partitions that are this consumer's and not read yet, each with the reason."""
    lag: int = 0
    """Records that are in these partitions and not committed, as far as the broker has said."""
    left: int = 0
    """Offsets of the whole stream that were there when it began and are not committed: with `until_caught_up`."""
    committing: int = 0
    """Records of the batch that the database has and has not confirmed."""
    troubles: dict[str, str] = field(default_factory=dict[str, str])
    """What somebody should look at, by partition."""
    seconds: float = 0.0
    """Since it began."""

    def __post_init__(self) -> None:
        self._begun = time.monotonic()

    def now(self) -> Figures:
        self.seconds = time.monotonic() - self._begun
        return self

    def as_dict(self) -> dict[str, Any]:
        """Of any thread: the mappings are copied at once, since the consumer's own may write them at this moment."""
        self.now()
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value.copy() if isinstance(value, dict) else value for name, value in found.items()}

    @classmethod
    def said(cls, found: Mapping[str, Any]) -> Figures | None:
        """What `as_dict` gave, come back as JSON; None for anything else."""
        if found and all(name in _KINDS and isinstance(value, _KINDS[name]) for name, value in found.items()):
            return cls(**found)
        return None


_OF_ALL = {"seconds", "left"}
_KINDS: dict[str, Any] = {
    one.name: {"int": int, "float": (int, float)}.get(str(one.type), dict) for one in fields(Figures)
}


def total(figures: Iterable[Figures]) -> Figures:
    """Of several consumers; the longest of their times, and the most that one of them found left."""
    summed = Figures()
    for one in figures:
        for name, value in one.as_dict().items():
            if isinstance(value, Mapping):
                getattr(summed, name).update(value)
            elif name in _OF_ALL:
                setattr(summed, name, max(getattr(summed, name), value))
            else:
                setattr(summed, name, getattr(summed, name) + value)
    return summed


def line(now: Figures, before: Figures | None = None) -> str:
    """For people: what it does, and what it waits for."""
    records, seconds = now.records - (before.records if before else 0), now.seconds - (before.seconds if before else 0)
    words = [
        f"{records / seconds if seconds > 0 else 0:,.0f} records/s",
        f"{now.records:,} records in {now.commits:,} commits",
        # Of partitions that it does not read it knows no lag.
        f"lag {now.lag:,} · {now.partitions} partitions" if now.partitions else "reads no partition",
        *_happened(now),
    ]
    words += [f"waiting for {place}: {why}" for place, why in sorted(now.waiting.items())[:2]]
    more = len(now.waiting) - 2
    words += [f"and {more} more partitions wait"] if more > 0 else []
    return " · ".join(words)


def last_line(now: Figures) -> str:
    """For people: all that it has done, when it has ended."""
    rate = now.records / now.seconds if now.seconds > 0 else 0
    words = [
        f"ended after {now.seconds:,.1f} s",
        f"{now.records:,} records in {now.commits:,} commits",
        f"{now.rows:,} rows",
        f"{rate:,.0f} records/s",
        *_happened(now),
    ]
    return " · ".join(words)


def _happened(now: Figures) -> list[str]:
    words = [f"{now.rebalances} rebalances"]
    words += [f"{now.quarantined:,} quarantined"] if now.quarantined else []
    words += [f"{now.retries} retries"] if now.retries else []
    words += [f"{now.left:,} offsets left"] if now.left else []
    return words
