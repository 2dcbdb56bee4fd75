"""What was consumed and is not committed yet: by partition, bounded, and dropped where a partition goes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from kafka_assets.ledger.leases import Lease
from kafka_assets.slices import SliceKey

Place = tuple[str, int]
"""A topic's name, and a partition."""


class Message(Protocol):
    """What is asked of a message here; the decoder asks for more."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Part:
    """One partition's part of a batch: what was delivered of the offsets [start, end)."""

    lease: Lease
    place: Place
    start: int
    end: int
    messages: Sequence[Message]

    @property
    def key(self) -> SliceKey:
        source = self.lease.source
        return SliceKey(source.topic, source.incarnation, self.lease.partition, self.start, self.end)

    @property
    def torn(self) -> bool:
        """Whether it holds what it cannot: then the consumer is not where it is believed to be."""
        if not self.messages:
            return False
        first, last = (cast(int, self.messages[index].offset()) for index in (0, -1))
        return not self.start <= first <= last < self.end


@dataclass
class Held:
    """A partition that is read: up to where it went into batches, and what was consumed since."""

    lease: Lease
    position: int
    messages: list[Message] = field(default_factory=list[Message])


@dataclass
class Gathering:
    """The partitions that are read. Of one thread."""

    held: dict[Place, Held] = field(default_factory=dict[Place, Held])
    records: int = 0
    bytes: int = 0
    since: float | None = None
    """On the monotonic clock: since when the first record waits."""

    def begin(self, place: Place, lease: Lease, offset: int) -> None:
        self.drop([place])
        self.held[place] = Held(lease, offset)

    def add(self, messages: Iterable[Message]) -> None:
        """Take what was consumed; of a partition that is not read any more, nothing."""
        held = self.held
        place: Place | None = None
        mine: Held | None = None
        for message in messages:
            at = cast(Place, (message.topic(), message.partition()))
            if at != place:
                place, mine = at, held.get(at)
            if mine is not None:
                mine.messages.append(message)
                self.records += 1
                self.bytes += len(message)
        if self.records and self.since is None:
            self.since = time.monotonic()

    def drop(self, places: Iterable[Place]) -> None:
        """Forget these partitions, with what was consumed of them: nothing is lost, since nothing is committed."""
        for place in places:
            gone = self.held.pop(place, None)
            if gone is not None:
                self._let_go(gone.messages)

    def take(self, ends: Mapping[Place, int]) -> list[Part]:
        """All of it as a batch that ends at these positions, also where only holes were met."""
        parts: list[Part] = []
        for place, held in self.held.items():
            end = ends.get(place, held.position)
            if end > held.position or held.messages:
                parts.append(Part(held.lease, place, held.position, end, held.messages))
                self._let_go(held.messages)
                held.position, held.messages = max(end, held.position), []
        return parts

    def places(self) -> Collection[Place]:
        return list(self.held)

    def _let_go(self, messages: Sequence[Message]) -> None:
        self.records -= len(messages)
        self.bytes -= sum(map(len, messages))
        if not self.records:
            self.since = None
