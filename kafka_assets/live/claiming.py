"""Partitions for a consumer that keeps its offsets in the ledger under a name: met, leased, and read on."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from sqlalchemy import Engine, select

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.keepers import First
from kafka_assets.broker.listing import topic_offsets
from kafka_assets.broker.units import Where
from kafka_assets.errors import Retryable, StreamError
from kafka_assets.ledger import planning
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.leases import Lease, ready, take, taken_over
from kafka_assets.ledger.readers import sources_of
from kafka_assets.ledger.sources import Source, known_partitions, make_sources
from kafka_assets.plan import Offsets, Progress, expired

LOGGER = logging.getLogger("kafka_assets.commits")

PREFIX = "consumer:"
"""Before the name of the stream that stands for a consumer in the ledger: a declared stream is never taken for it."""


class Claiming:
    """Takes partitions for one consumer; the ledger alone says where each goes on."""

    def __init__(
        self,
        engine: Engine,
        connection: Connection,
        name: str,
        owner: str,
        *,
        grouped: bool,
        on_expired: Literal["fail", "record"],
        lease_ms: int,
    ) -> None:
        self._engine, self._connection, self._name, self._owner = engine, connection, name, owner
        self._grouped = grouped
        self._on_expired: Literal["fail", "record"] = on_expired
        self._lease_ms = lease_ms
        _refuse_assets(engine, name)

    def take(
        self,
        places: Collection[Where],
        first: First,
        *,
        given: Collection[Where],
        held: dict[Where, Lease],
        positions: dict[Where, int],
    ) -> None:
        """Add the leases that are to be had, and where those go on that need not wait for anybody.

        `given` are those whose lease this consumer has not had since its group gave it the partition.
        """
        for topic in sorted({topic for topic, _ in places}):
            try:
                partitions = sorted(part for name, part in places if name == topic)
                source, offsets = self._met(topic, partitions, first)
                if unseen := [part for part in partitions if part not in offsets]:
                    LOGGER.info("the broker does not show partitions %s of the topic %r yet", unseen, topic)
                there = [part for part in partitions if part in offsets]
                leases = self._leased(source, there, given=[part for part in there if (topic, part) in given])
                held |= {(topic, lease.partition): lease for lease in leases}
                for lease, position in self._ready(leases):
                    at = offsets[lease.partition]
                    positions[topic, lease.partition] = self._past_what_expired(lease, position, at)
            except Retryable as error:
                LOGGER.warning("%s; asked again for the topic %r", error, topic)

    def _leased(self, source: Source, partitions: list[int], *, given: list[int]) -> list[Lease]:
        wanted = [(source, part) for part in partitions]
        left = [(source.id, part) for part in given]
        answer = take(self._engine, wanted, owner=self._owner, lease_ms=self._lease_ms, given=left)
        for refused in answer.refused.values():
            LOGGER.info("%s", refused)
        return answer.leases

    def _ready(self, leases: list[Lease]) -> Iterator[tuple[Lease, int]]:
        for lease, stand in ready(self._engine, leases, asset=self._name).items():
            if stand.waits_for is None:
                yield lease, stand.position
            else:
                LOGGER.info("%s waits: %s", lease, stand.waits_for)

    def _met(self, topic: str, partitions: list[int], first: First) -> tuple[Source, Mapping[int, Offsets]]:
        """The topic's source, with progress of each partition. In a group, what is added later begins at 0."""
        found = topic_offsets(self._connection, topic)
        source = make_sources(self._engine, stream=PREFIX + self._name, topics={topic: found.topic_id})[topic]
        offsets = {
            number: Offsets(part.log_start, part.last_stable, part.high_watermark)
            for number, part in found.partitions.items()
        }
        known = known_partitions(self._engine, [source.id])[source.id]
        fresh = [part for part in partitions if part in offsets and part not in known]
        if source.incarnation > 1 or (known and self._grouped):
            origins = dict.fromkeys(fresh, 0)
        else:
            # A group's are all met at once, so that those of other members begin by the same look.
            begun = first([(topic, part) for part in (offsets if self._grouped and fresh else fresh)])
            origins = {part: offset for (_, part), offset in begun.items()}
        planning.observe(self._engine, source, offsets=offsets, origins=origins, asset=self._name)
        return source, offsets

    def _past_what_expired(self, lease: Lease, position: int, offsets: Offsets) -> int:
        """What retention took before it was read is an error, or recorded: never a jump."""
        where = f"{lease.source.topic}:{lease.partition}"
        lost = expired(where, Progress(position, None), offsets, on_expired=self._on_expired)
        if not lost:
            return position
        made = planning.commit_plan(
            self._engine,
            lease.source,
            lease.partition,
            expected=position,
            slices=lost,
            asset=self._name,
            owner=self._owner,
        )
        if made is None:
            raise taken_over(lease)
        LOGGER.warning("%s: offsets %d to %d expired before they were read", where, position, lost[-1].end)
        return lost[-1].end


def _refuse_assets(engine: Engine, name: str) -> None:
    """An asset lands in a table of its own: offsets that a consumer commits in its name would be rows that miss."""
    with read(engine) as connection:
        streams = {stream for stream, _ in sources_of(connection, [name])[name]}
        owned = connection.scalar(select(t.target.c.table_name).where(t.target.c.asset == name).limit(1))
    if owned is not None or any(stream != PREFIX + name for stream in streams):
        raise StreamError(
            f"{name!r} is an asset of this ledger, and cannot be a consumer's name",
            why="what the consumer commits would be taken for rows in the asset's table",
            cure="give the consumer another group, or InLedger another name",
        )
