"""The partitions that are a member's now, and where each stands: read, parked, paused, or stopped by an error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Message, TopicPartition

from kafka_assets.broker.rebalances import Place, shown
from kafka_assets.errors import BrokerUnavailable


@dataclass
class Owned:
    """What the group gave, and what was asked of it since. Of one thread."""

    places: set[Place] = field(default_factory=set[Place])
    parked: set[Place] = field(default_factory=set[Place])
    """Not read until they are started."""
    paused: set[Place] = field(default_factory=set[Place])
    stopped: set[Place] = field(default_factory=set[Place])
    """Read no more by librdkafka, since the offset that was wanted is not there."""
    floors: dict[Place, int] = field(default_factory=dict[Place, int])
    """Where they were told to begin, until the first record from there on has come."""
    ends: dict[Place, int] = field(default_factory=dict[Place, int])
    """The end that was met last."""

    def add(self, places: Collection[Place], begins: Mapping[Place, int]) -> None:
        """These were given, and those of them that begin nowhere are parked."""
        self.places.update(places)
        self.parked.update(place for place in places if place not in begins)
        self.floors.update(begins)

    def forget(self, places: Iterable[Place]) -> None:
        for place in list(places):
            for some in (self.places, self.parked, self.paused, self.stopped):
                some.discard(place)
            self.floors.pop(place, None)
            self.ends.pop(place, None)

    def require(self, place: Place) -> None:
        if place not in self.places:
            raise BrokerUnavailable(
                f"{shown([place])} is not this member's",
                why="the group took it away, or never gave it",
                cure="begin with it when on_assign gives it",
            )

    @property
    def halted(self) -> list[Place]:
        return [one for one in self.places if one in self.parked | self.paused]

    def readable(self, places: Iterable[Place]) -> list[Place]:
        return [place for place in places if place in self.places and place not in self.parked]

    def positions(self, found: Mapping[Place, int | None]) -> dict[Place, int]:
        """The next offset of each, where librdkafka has come to these; absent where nothing was consumed yet."""
        positions: dict[Place, int] = {}
        for place, position in found.items():
            # Nothing was consumed since the seek, and librdkafka's position is the one before it.
            known = self.floors.get(place, -1 if position is None else position)
            # An end that was met stands for what was compacted away before it, too.
            if (at := max(known, self.ends.get(place, -1))) >= 0:
                positions[place] = at
        return positions

    def above(self, records: list[Message]) -> list[Message]:
        """Leave out what was fetched before a seek took effect."""
        if not self.floors:
            return records
        kept: list[Message] = []
        for record in records:
            place = place_of(record)
            floor = self.floors.get(place)
            if floor is not None:
                if cast(int, record.offset()) < floor:
                    continue
                del self.floors[place]
            kept.append(record)
        return kept


def place_of(message: Message) -> Place:
    return cast(str, message.topic()), cast(int, message.partition())


def at(places: Iterable[Place]) -> list[TopicPartition]:
    """As librdkafka wants them."""
    return [TopicPartition(*place) for place in places]
