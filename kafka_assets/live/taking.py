"""Beginning with a partition: met as the sensor does, leased, and read on from where all that is planned is committed.

Whatever went wrong with a partition, this is where it begins again: the ledger alone says where it stands.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import Engine

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import Observation, TopicOffsets, observe, observe_chosen, offsets_at
from kafka_assets.errors import (
    KafkaAssetsError,
    LedgerBusy,
    OutcomeUnknown,
    Permanent,
    Retryable,
    TopicChanged,
    TopicMissing,
    Truncated,
)
from kafka_assets.ledger import planning as ledger
from kafka_assets.ledger.leases import Lease, Ready, give_back, ready, take, taken_over
from kafka_assets.ledger.meeting import meet_topics, origins
from kafka_assets.ledger.readers import require_same
from kafka_assets.ledger.sources import Source, known_partitions, known_sources
from kafka_assets.live.batch import Place
from kafka_assets.live.jumping import Jumping
from kafka_assets.plan import Offsets, Progress, expired
from kafka_assets.streams import Stream

_log = logging.getLogger(__name__)

SOON, LATER = 0.5, 5.0
"""Seconds until a partition is tried again: one that only has to wait, and one that is in trouble."""


@dataclass(frozen=True)
class Begun:
    """The partition is this consumer's, and is read from here."""

    lease: Lease
    offset: int
    end: int
    """Where the broker said at that moment that it ends."""


@dataclass(frozen=True)
class Wait:
    """Why it cannot be read yet, and when to ask again."""

    why: str
    seconds: float
    trouble: bool = False
    """Whether somebody should look at it."""
    lease: Lease | None = None


Answer = Begun | Wait


@dataclass(frozen=True)
class Met:
    """A topic as the broker and the ledger have it now."""

    source: Source
    offsets: Mapping[int, Offsets]


class Taking:
    """Begins with partitions of one stream, for one consumer."""

    def __init__(self, engine: Engine, connection: Connection, stream: Stream, *, owner: str, lease_ms: int) -> None:
        self._engine, self._connection, self._stream = engine, connection, stream
        self._owner, self._lease_ms = owner, lease_ms
        self.jumping = Jumping(engine, connection, stream)

    def look(self) -> dict[tuple[str, int, int], int]:
        """Meet all that the stream reads now; the end of each partition by asset, source and partition.

        All at once, as in a sensor's first tick: `start` counts for the topics that are there at the first look.
        """
        require_same(self._engine, self._stream)
        seen = self._seen()
        for topic, observed in seen.items():
            if not isinstance(observed, TopicOffsets):
                if isinstance(observed, TopicMissing) and self._stream.topic is None:
                    continue
                raise observed
            _log.debug("%s has %d partitions", topic, len(observed.partitions))
        met, refused = self._meet(seen)
        for error in refused.values():
            raise error
        asset = self._stream.asset
        return {
            (asset, one.source.id, part): at.last_stable for one in met.values() for part, at in one.offsets.items()
        }

    def begin(self, places: Collection[Place], *, given: Collection[Place] = ()) -> dict[Place, Answer]:
        """Take these partitions, each as far as it can be; `given` are those that the group has just given."""
        met, refused = self._meet(observe(self._connection, sorted({topic for topic, _ in places})))
        answers: dict[Place, Answer] = {
            place: Wait("the broker does not show it yet", SOON)
            if (topic := place[0]) in met
            else _wait_for(refused[topic])
            for place in places
        }
        wanted = {
            (met[topic].source.id, partition): (topic, partition)
            for topic, partition in sorted(places)
            if topic in met and partition in met[topic].offsets
        }
        if not wanted:
            return answers
        sources = [(met[topic].source, partition) for topic, partition in wanted.values()]
        left = [at for at, place in wanted.items() if place in given]
        taken = take(self._engine, sources, owner=self._owner, lease_ms=self._lease_ms, given=left)
        for at, held in taken.refused.items():
            answers[wanted[at]] = Wait(str(held), SOON)
        try:
            # Asked only now, when nobody else plans them any more.
            for lease, stand in ready(self._engine, taken.leases, asset=self._stream.asset).items():
                place = wanted[lease.place]
                answers[place] = self._answer(met[place[0]], lease, stand)
        except BaseException:
            self._leave(taken.leases)
            raise
        return answers

    def _answer(self, met: Met, lease: Lease, stand: Ready) -> Answer:
        if stand.waits_for is not None:
            return Wait(stand.waits_for, SOON, lease=lease)
        try:
            return Begun(
                lease,
                self._past_what_expired(met, lease, stand.position),
                end=met.offsets[lease.partition].last_stable,
            )
        except KafkaAssetsError as error:
            return replace(_wait_for(error), lease=lease)

    def _leave(self, leases: Sequence[Lease]) -> None:
        """Nobody will hear of these: others need not wait until they end."""
        try:
            give_back(self._engine, leases)
        except (LedgerBusy, OutcomeUnknown) as error:
            _log.warning("leases could not be given back, and end by themselves: %s", error)

    def _past_what_expired(self, met: Met, lease: Lease, position: int) -> int:
        """What retention took before it was read is an error or recorded, as the stream declares: never a jump.

        Except for what it wants to be jumped over, where it is too far behind.
        """
        where = f"{met.source.topic}:{lease.partition}"
        standing, policy = Progress(position, None), self._stream.on_expired
        offsets = met.offsets[lease.partition]
        try:
            lost = expired(where, standing, offsets, on_expired=policy)
        except Truncated:
            # Whoever had the partition before may have known a later end than ours.
            offsets = self._again(met)[lease.partition]
            lost = expired(where, standing, offsets, on_expired=policy)
        at = lost[-1].end if lost else position
        over = self.jumping.over(met.source, lease.partition, at=at, end=offsets.last_stable)
        left_out = [*lost, *([over] if over is not None else [])]
        if not left_out:
            return position
        done = ledger.commit_plan(
            self._engine,
            met.source,
            lease.partition,
            expected=position,
            slices=left_out,
            asset=self._stream.asset,
            owner=self._owner,
        )
        if done is None:
            raise taken_over(lease)
        for one in left_out:
            _log.warning("%s: offsets %d to %d are %s: %s", where, one.start, one.end, one.kind, one.reason)
        return left_out[-1].end

    def _again(self, met: Met) -> Mapping[int, Offsets]:
        topic = met.source.topic
        again = observe(self._connection, [topic])[topic]
        if not isinstance(again, TopicOffsets):
            raise again
        if again.topic_id != met.source.topic_id:
            raise TopicChanged(
                f"the topic {topic!r} was deleted and created again at this moment",
                cure="nothing: the new one is begun with",
            )
        return _offsets(again)

    def _seen(self) -> Mapping[str, Observation]:
        if self._stream.topic is not None:
            return observe(self._connection, [self._stream.topic])
        return observe_chosen(self._connection, self._stream.matching)

    def _meet(self, seen: Mapping[str, Observation]) -> tuple[dict[str, Met], dict[str, KafkaAssetsError]]:
        """Sources and progress of these topics, and what is wrong with the others."""
        refused = {topic: one for topic, one in seen.items() if not isinstance(one, TopicOffsets)}
        found = {topic: one for topic, one in seen.items() if isinstance(one, TopicOffsets)}
        met: dict[str, Met] = {}
        known = known_sources(self._engine, [self._stream.name])[self._stream.name]
        for topic, source in self._sources(found, known, refused).items():
            try:
                met[topic] = self._met(source, found[topic])
            except KafkaAssetsError as error:
                refused[topic] = error
        return met, refused

    def _sources(
        self, found: Mapping[str, TopicOffsets], known: Sequence[Source], refused: dict[str, KafkaAssetsError]
    ) -> dict[str, Source]:
        failed: list[KafkaAssetsError] = []

        @contextmanager
        def attempt() -> Generator[None]:
            try:
                yield
            except KafkaAssetsError as error:
                failed.append(error)

        ids = {topic: one.topic_id for topic, one in found.items()}
        sources = meet_topics(self._engine, self._stream, ids, known=known, attempt=attempt)
        refused.update({topic: failed[-1] for topic in found if topic not in sources})
        return sources

    def _met(self, source: Source, found: TopicOffsets) -> Met:
        offsets = _offsets(found)
        known = known_partitions(self._engine, [source.id])[source.id]
        fresh = sorted(offsets.keys() - known)
        begin = origins(self._stream, source, fresh, known=known, offsets=offsets, at=self._at) if fresh else {}
        ledger.observe(self._engine, source, offsets=offsets, origins=begin, asset=self._stream.asset)
        return Met(source, offsets)

    def _at(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        return offsets_at(self._connection, topic, timestamp_ms)


def _wait_for(error: KafkaAssetsError) -> Wait:
    return Wait(str(error), SOON if isinstance(error, Retryable) else LATER, trouble=isinstance(error, Permanent))


def _offsets(found: TopicOffsets) -> dict[int, Offsets]:
    return {
        number: Offsets(part.log_start, part.last_stable, part.high_watermark)
        for number, part in found.partitions.items()
    }
