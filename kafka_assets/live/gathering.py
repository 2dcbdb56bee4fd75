"""What was consumed and is not committed yet: by partition, bounded, and dropped where a partition goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_assets.decode.messages import Message
from kafka_assets.ledger.leases import Lease
from kafka_assets.live.batch import Batch, Place, by_place
from kafka_assets.slices import SliceKey

AT_ONCE = 10_000
"""Messages to ask Kafka for at a time: they are taken apart while they are in the processor's cache."""


@dataclass(frozen=True)
class Part:
    """One partition's part of a batch: what was delivered of the offsets [start, end)."""

    lease: Lease
    place: Place
    start: int
    end: int
    batch: Batch

    @property
    def key(self) -> SliceKey:
        source = self.lease.source
        return SliceKey(source.topic, source.incarnation, self.lease.partition, self.start, self.end)

    @property
    def torn(self) -> bool:
        """Whether it holds what it cannot: then the consumer is not where it is believed to be."""
        ends = self.batch.ends
        return ends is not None and not self.start <= ends[0] <= ends[1] < self.end


@dataclass
class Held:
    """A partition that is read: up to where it went into batches, and what was consumed since."""

    lease: Lease
    position: int
    batch: Batch = field(default_factory=Batch)
    bytes: int = 0


@dataclass
class Gathering:
    """The partitions that are read. Of one thread."""

    held: dict[Place, Held] = field(default_factory=dict[Place, Held])
    records: int = 0
    bytes: int = 0
    since: float | None = None
    """On the monotonic clock: since when the first record waits."""
    begin_ahead: Callable[[Batch], None] = lambda batch: None
    """Told of each batch that has grown."""

    def begin(self, place: Place, lease: Lease, offset: int) -> None:
        self.drop([place])
        self.held[place] = Held(lease, offset)

    def add(self, messages: Sequence[Message]) -> None:
        """Take what was consumed; of a partition that is not read any more, nothing."""
        for place, some in by_place(messages).items():
            if (mine := self.held.get(place)) is not None:
                size = mine.batch.extend(some)
                mine.bytes += size
                self.records += len(some)
                self.bytes += size
                self.begin_ahead(mine.batch)
        if self.records and self.since is None:
            self.since = time.monotonic()

    def drop(self, places: Iterable[Place]) -> None:
        """Forget these partitions, with what was consumed of them: nothing is lost, since nothing is committed."""
        for place in places:
            gone = self.held.pop(place, None)
            if gone is not None:
                self._let_go(gone)

    def take(self, ends: Mapping[Place, int]) -> list[Part]:
        """All of it as a batch that ends at these positions, also where only holes were met."""
        parts: list[Part] = []
        for place, held in self.held.items():
            end = ends.get(place, held.position)
            if end > held.position or held.batch.parts:
                parts.append(Part(held.lease, place, held.position, end, held.batch))
                self._let_go(held)
                held.position, held.batch, held.bytes = max(end, held.position), Batch(), 0
        return parts

    def places(self) -> Collection[Place]:
        return list(self.held)

    def _let_go(self, held: Held) -> None:
        self.records -= len(held.batch)
        self.bytes -= held.bytes
        if not self.records:
            self.since = None
