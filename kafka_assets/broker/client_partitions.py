"""The partitions that a client of librdkafka reads: begun, sought in, paused, parked, and read to their ends.

How soon a partition goes on, measured with librdkafka 2.16 and one broker, in milliseconds (mean · most):

| where it goes on | alone | others quiet | others busy |
|---|---|---|---|
| begun with, not read before | 8 · 16 | 300 · 470 | 3 · 6 |
| sought in, or resumed | 250 · 540 | 200 · 500 | 4 · 12 |
| resumed when all that its broker has were paused for a second or more | 1000 · 1050 | | |

Beside others it waits for the Fetch that is under way: up to fetch.wait.max.ms, 500. Where nothing is fetched from a
broker, its thread sleeps for up to a second, and nothing but a request wakes it. So nobody here seeks back for what was
read already, and nobody pauses all that it reads before it has waited for much longer than that second anyway. A
request is no alarm clock: it waits behind the Fetch, and one that times out costs the connection, with all that is
under way on it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_assets.broker.admin import kafka_error
from kafka_assets.broker.rebalances import Place, shown
from kafka_assets.errors import BrokerUnavailable, KafkaAssetsError

_SEEK_TIMEOUT = 2.0


class ClientPartitions(ABC):
    """What a consumer has of its partitions, and what it asked of librdkafka for them. Of one thread.

    A parked partition is this consumer's, and librdkafka does not have it until `start` says where it begins.
    """

    client: Consumer
    incremental = True
    """Whether single partitions are given to librdkafka and taken from it, or all of them anew each time."""

    def __init__(self) -> None:
        self._places: set[Place] = set()
        self._given: set[Place] = set()
        """Those of them that librdkafka has."""
        self._parked: set[Place] = set()
        self._paused: set[Place] = set()
        self._stopped: set[Place] = set()
        """Read no more by librdkafka, since the offset that was wanted is not there."""
        self._floors: dict[Place, int] = {}
        """Where they were told to begin, until the first record from there on has come."""
        self._ends: dict[Place, int] = {}
        """The end that was met last."""

    @property
    def assigned(self) -> frozenset[Place]:
        """The partitions that are this consumer's now."""
        return frozenset(self._places)

    @property
    def at_end(self) -> bool:
        """Whether each of them was read to the end that its leader has told last."""
        places = self._places
        if not places.isdisjoint(self._parked | self._paused | self._stopped) or not places.issubset(self._ends):
            return False
        return all(self._ends[place] >= at for place, at in self._come_to(places).items())

    def start(self, offsets: Mapping[Place, int]) -> None:
        """Read these partitions from there on, parked or not; what was fetched and not consumed is dropped."""
        for place in offsets:
            if place not in self._places:
                raise BrokerUnavailable(
                    f"{shown([place])} is not this consumer's",
                    why="the group took it away, or never gave it",
                    cure="begin with it when on_assign gives it",
                )
        anew = {place: one for place, one in offsets.items() if place in self._stopped or not self._reads(place)}
        for place, offset in offsets.items():
            if place not in anew and not self._sought(place, offset):
                anew[place] = offset
        if anew:
            self._assign_anew(anew)
        for place, offset in offsets.items():
            self._ends.pop(place, None)
            self._floors[place] = offset

    def park(self, places: Collection[Place]) -> None:
        """Read no more of these until `start` says where; what was fetched and not consumed is dropped."""
        # librdkafka gives them up before the next call for records: inside one, what it hears is the answer to a
        # rebalance.
        for place in self._places.intersection(places):
            self._parked.add(place)
            self._stopped.discard(place)
            self._floors.pop(place, None)
            self._ends.pop(place, None)

    def pause(self, places: Iterable[Place]) -> None:
        """Fetch no more of these; what was fetched and not consumed is dropped, and comes again."""
        new = [place for place in places if place in self._places]
        self._paused.update(new)
        self._ask(lambda: self.client.pause(at(filter(self._reads, new))))

    def resume(self, places: Iterable[Place]) -> None:
        """Go on where `consume` had come to; a parked partition stays parked."""
        known = [place for place in places if place in self._paused]
        self._paused.difference_update(known)
        self._ask(lambda: self.client.resume(at(filter(self._reads, known))))

    def positions(self, places: Iterable[Place]) -> dict[Place, int]:
        """The next offset of each, past control records and holes; absent where nothing was consumed yet."""
        # An end that was met stands for what was compacted away before it, too.
        met = {place: max(one, self._ends.get(place, -1)) for place, one in self._come_to(places).items()}
        return {place: one for place, one in met.items() if one >= 0}

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The end of each, as the broker said with the last records; absent where none came yet."""
        found: dict[Place, int] = {}
        for place in filter(self._reads, places):
            one = TopicPartition(*place)
            known = self._ask(lambda one=one: self.client.get_watermark_offsets(one, cached=True))
            if known is not None and known[1] >= 0:
                found[place] = known[1]
        return found

    # -- for those who inherit

    @abstractmethod
    def _error(self, error: KafkaError, place: Place | None = None) -> KafkaAssetsError:
        """What librdkafka's error means to this consumer's caller."""

    @abstractmethod
    def _ask(self, call: Callable[[], Any]) -> Any:
        """Call librdkafka, and raise in this package's words."""

    def _add(self, places: Collection[Place], begins: Mapping[Place, int]) -> None:
        """These were given, and those of them that begin nowhere are parked."""
        self._places.update(places)
        self._parked.update(place for place in places if place not in begins)
        self._given.update(begins)
        self._floors.update(begins)

    def _forget(self, places: Iterable[Place]) -> None:
        for place in list(places):
            for some in (self._places, self._given, self._parked, self._paused, self._stopped):
                some.discard(place)
            self._floors.pop(place, None)
            self._ends.pop(place, None)

    def _reads(self, place: Place) -> bool:
        return place in self._given and place not in self._parked

    def _drop_parked(self) -> None:
        """To be called before each call for records."""
        if gone := self._given & self._parked:
            self._given -= gone
            if self.incremental:
                self._ask(lambda: self.client.incremental_unassign(at(gone)))
            else:
                self._assign_all(self._begins())

    def _above(self, records: list[Message]) -> list[Message]:
        """Leave out what was fetched before a seek took effect."""
        if not self._floors:
            return records
        kept: list[Message] = []
        for record in records:
            place = place_of(record)
            floor = self._floors.get(place)
            if floor is not None:
                if cast(int, record.offset()) < floor:
                    continue
                del self._floors[place]
            kept.append(record)
        return kept

    def _come_to(self, places: Iterable[Place]) -> dict[Place, int]:
        """The next offset of each that is read, as librdkafka or the last seek says; -1 where neither does."""
        wanted = list(filter(self._reads, places))
        if not wanted:
            return {}
        found = self._ask(lambda: self.client.position(at(wanted)))
        known: dict[Place, int] = {(one.topic, one.partition): max(one.offset, -1) for one in found}
        # Where nothing was consumed since a seek, librdkafka's position is the one before it.
        return {place: self._floors[place] if place in self._floors else known.get(place, -1) for place in wanted}

    def _sought(self, place: Place, offset: int) -> bool:
        deadline = time.monotonic() + _SEEK_TIMEOUT
        while True:
            try:
                self.client.seek(TopicPartition(*place, offset))
                return True
            except KafkaException as raised:
                error = kafka_error(raised)
                if error.code() not in {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS}:
                    raise self._error(error, place) from raised
                # An assignment takes effect a moment after it was made.
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)

    def _assign_anew(self, offsets: Mapping[Place, int]) -> None:
        """Give them to librdkafka: it does not have them, or reads no more of them and refuses to seek."""
        if self.incremental:
            if had := self._given.intersection(offsets):
                self._ask(lambda: self.client.incremental_unassign(at(had)))
            given = [TopicPartition(*place, offset) for place, offset in offsets.items()]
            self._ask(lambda: self.client.incremental_assign(given))
        else:
            self._assign_all({**self._begins(), **offsets})
        self._given.update(offsets)
        self._parked.difference_update(offsets)
        self._stopped.difference_update(offsets)
        if halted := self._paused.intersection(offsets):
            self._ask(lambda: self.client.pause(at(halted)))

    def _assign_all(self, offsets: Mapping[Place, int]) -> None:
        self._ask(lambda: self.client.assign([TopicPartition(*place, one) for place, one in offsets.items()]))
        self._floors.update(offsets)
        if halted := self._paused.intersection(offsets):
            self._ask(lambda: self.client.pause(at(halted)))

    def _begins(self) -> dict[Place, int]:
        """Where each would go on that librdkafka has."""
        at_least = {place: max(one, 0) for place, one in self._come_to(self._given).items()}
        return {**at_least, **self.positions(self._given)}


def place_of(message: Message) -> Place:
    return cast(str, message.topic()), cast(int, message.partition())


def at(places: Iterable[Place]) -> list[TopicPartition]:
    """As librdkafka wants them."""
    return [TopicPartition(*place) for place in places]
