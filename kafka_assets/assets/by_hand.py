"""Planning by hand, for real or only to see: as in a tick, but nothing waits for more, and no run is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from sqlalchemy import Engine

from kafka_assets.assets.planning import Candidate, StreamPlan
from kafka_assets.assets.tick import observe_all, roots_of, shown
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import TopicOffsets
from kafka_assets.ledger.readers import refused
from kafka_assets.ledger.requests import given_up, waiting
from kafka_assets.ledger.schema import current_revision, ensure_schema
from kafka_assets.ledger.sources import Source, known_partitions, known_sources
from kafka_assets.ledger.standing import progress_of
from kafka_assets.plan import Backlog, NewSlice, Offsets, Progress, SkipPolicy
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream


@dataclass(frozen=True)
class Wanted:
    """A slice that would be planned."""

    stream: str
    key: SliceKey
    kind: str
    reason: str | None


@dataclass
class Planned:
    """What is planned now, what waited before, and what stands in the way."""

    slices: list[Wanted] = field(default_factory=list[Wanted])
    waiting: dict[str, int] = field(default_factory=dict[str, int])
    given_up: dict[str, int] = field(default_factory=dict[str, int])
    """How many slices of a stream failed too often, and are not tried again."""
    troubles: list[str] = field(default_factory=list[str])


def plan_now(engine: Engine, connection: Connection, streams: Sequence[Stream]) -> Planned:
    """Plan what is in the topics now."""
    ensure_schema(engine)
    return _plan(engine, connection, streams, _Plan)


def preview(engine: Engine, connection: Connection, streams: Sequence[Stream]) -> Planned:
    """What `plan_now` would do, on what the ledger has now; nothing is written, not even a ledger."""
    return _plan(engine, connection, streams, _DryPlan)


def _plan(engine: Engine, connection: Connection, streams: Sequence[Stream], kind: type[_Plan]) -> Planned:
    begun = current_revision(engine) is not None
    wrong = refused(engine, streams) if begun else {}
    streams = [stream for stream in streams if stream.name not in wrong]
    roots = roots_of(streams)
    names = [stream.name for stream in roots]
    sources = known_sources(engine, names) if begun else dict[str, list[Source]]((name, []) for name in names)
    partitions = known_partitions(engine, [one.id for mine in sources.values() for one in mine]) if begun else {}
    seen = observe_all(connection, roots, {one.topic for mine in sources.values() for one in mine if not one.retired})
    waits = waiting(engine, assets=[one.asset for one in roots], topics=shown(seen)) if begun else {}
    found = Planned(
        waiting=waiting(engine, assets=[one.asset for one in streams]) if begun else {},
        troubles=[f"{name}: {error}" for name, error in wrong.items()],
    )
    failed = given_up(engine, assets=[one.asset for one in streams]) if begun else {}
    found.given_up = {one.name: failed[one.asset] for one in streams if one.asset in failed}
    for stream in roots:
        plan = kind(
            stream=flushing(stream),
            engine=engine,
            connection=connection,
            sources=sources[stream.name],
            partitions=partitions,
            room=max(0, min(stream.slices.per_tick, stream.slices.waiting - waits.get(stream.asset, 0))),
            until=float("inf"),
        )
        topics = stream.matching(seen)
        plan.run({topic: seen[topic] for topic in topics}, there=seen.keys())
        if not topics:
            plan.troubles.append(f"{stream.name}: no topic that the broker shows matches {stream.reads!r}")
        found.slices += plan.wanted
        found.troubles += plan.troubles
    return found


def flushing(stream: Stream) -> Stream:
    """The stream, with nothing that waits for more to come: whoever plans by hand wants what is there."""
    return stream.model_copy(update={"slices": stream.slices.model_copy(update={"max_delay": timedelta(0)})})


@dataclass
class _Plan(StreamPlan):
    """Planning that remembers what it planned."""

    wanted: list[Wanted] = field(default_factory=list[Wanted])

    def _commit(self, candidate: Candidate, new: Sequence[NewSlice]) -> bool:
        stand = super()._commit(candidate, new)
        if stand:
            self._want(candidate, new)
        return stand

    def _want(self, candidate: Candidate, new: Sequence[NewSlice]) -> None:
        source = candidate.source
        self.wanted += [
            Wanted(
                self.stream.name,
                SliceKey(source.topic, source.incarnation, candidate.partition, one.start, one.end),
                one.kind,
                one.reason,
            )
            for one in new
        ]


@dataclass
class _DryPlan(_Plan):
    """Planning that keeps to itself what it would write."""

    def _sources(self, found: Mapping[str, TopicOffsets]) -> dict[str, Source]:
        there: dict[str, Source] = {}
        for number, (topic, at) in enumerate(found.items(), start=1):
            mine = [one for one in self.sources if one.topic == topic]
            same = [one for one in mine if one.topic_id == at.topic_id]
            if same:
                there[topic] = same[0]
                continue
            last = max((one.incarnation for one in mine), default=0)
            there[topic] = Source(-number, self.stream.name, topic, at.topic_id, last + 1, founding=not self.sources)
            if mine:
                self.troubles.append(
                    f"{self.stream.name}: the topic {topic!r} was deleted and created again"
                    " · what the old one left unread would be recorded as lost"
                )
        return there

    def _progress(
        self, source: Source, offsets: Mapping[int, Offsets], origins: Mapping[int, int]
    ) -> dict[int, Progress]:
        known = progress_of(self.engine, source.id) if source.id > 0 else {}
        fresh = {part: Progress(origin, 0) for part, origin in origins.items() if part not in known}
        return {part: replace(at, pending_ms=at.pending_ms or 0) for part, at in {**fresh, **known}.items()}

    def _judged(
        self, source: Source, skip: SkipPolicy, ends: Mapping[int, tuple[int, int]], young: Mapping[int, int]
    ) -> Mapping[int, Backlog]:
        if source.id > 0:
            return super()._judged(source, skip, ends, young)
        return {part: Backlog(young_from=young.get(part)) for part in ends}

    def _commit(self, candidate: Candidate, new: Sequence[NewSlice]) -> bool:
        self._want(candidate, new)
        return True
