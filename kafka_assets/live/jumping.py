"""skip_when_behind, for a live consumer: a partition that is too far behind is read from its newest offsets on."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Engine

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import TopicOffsets, observe, offsets_at
from kafka_assets.ledger.behind import backlogs, database_ms, policy_of
from kafka_assets.ledger.sources import Source
from kafka_assets.live.batch import Place
from kafka_assets.plan import NewSlice, jump
from kafka_assets.streams import Stream


class Jumping:
    """Decides; whoever holds the lease plans what is jumped over."""

    def __init__(self, engine: Engine, connection: Connection, stream: Stream) -> None:
        self._engine, self._connection, self._asset = engine, connection, stream.asset
        self._policy = policy_of(stream)

    @property
    def declared(self) -> bool:
        return self._policy is not None

    def over(self, source: Source, partition: int, *, at: int, end: int) -> NewSlice | None:
        """What of [at, end) is left out, if it is time for that."""
        policy = self._policy
        if policy is None or end - at <= policy.keep:
            return None
        young: Mapping[int, int] = {}
        if policy.age is not None:
            then = database_ms(self._engine) - int(policy.age.total_seconds() * 1000)
            young = offsets_at(self._connection, source.topic, then)
        found = backlogs(
            self._engine,
            asset=self._asset,
            source_id=source.id,
            ends={partition: (at, end)},
            policy=policy,
            young_from=young,
        )
        return jump(at, end, found[partition], policy)

    def behind(self, standing: Mapping[Place, tuple[Source, int]]) -> list[Place]:
        """Which of the partitions that are read should be begun with again, further on."""
        found = observe(self._connection, sorted({topic for topic, _ in standing}))
        late: list[Place] = []
        for place, (source, at) in standing.items():
            there = found[place[0]]
            if isinstance(there, TopicOffsets) and there.topic_id == source.topic_id and place[1] in there.partitions:
                end = there.partitions[place[1]].last_stable
                late += [place] if self.over(source, place[1], at=at, end=end) is not None else []
        return late
