"""Planning a stream in one tick: its topics' offsets become slices, and no partition takes what another needs."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Engine

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import Observation, TopicOffsets, observe, offsets_at
from kafka_assets.errors import BrokerUnavailable, KafkaAssetsError, Retryable, TopicChanged
from kafka_assets.ledger import planning as ledger
from kafka_assets.ledger.behind import backlogs, database_ms, policy_of
from kafka_assets.ledger.meeting import meet_topics, origins
from kafka_assets.ledger.observing import Observed
from kafka_assets.ledger.sources import Source
from kafka_assets.plan import Backlog, NewSlice, Offsets, Policy, Progress, SkipPolicy, in_turns, plan_partition
from kafka_assets.streams import Stream

Where = tuple[int, int]
"""A source's id, and a partition."""


@dataclass
class StreamPlan:
    """One stream's planning in one tick: what is known of it, and what came of it."""

    stream: Stream
    engine: Engine
    connection: Connection
    sources: Sequence[Source]
    """All of the stream's, as the ledger had them when the tick began."""
    partitions: Mapping[int, set[int]]
    """The partitions that each source had then."""
    room: int
    """How many slices the tick may plan."""
    until: float
    """On the monotonic clock: when it must be done, since Dagster ends an evaluation that takes a minute."""
    observed: Observed = field(default_factory=Observed)
    """The sources of which the look is written down already."""
    troubles: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    """What is left to others."""
    skipped: list[str] = field(default_factory=list[str])
    """What was jumped over, as skip_when_behind says."""
    planned: int = 0
    unsettled: bool = False
    """Whether one of the troubles was another planner, or a busy ledger: the next tick may well have none."""

    def run(self, seen: Mapping[str, Observation], *, there: Collection[str]) -> None:
        """Plan from what the broker said of the stream's topics. One topic's trouble never stops the others."""
        found: dict[str, TopicOffsets] = {}
        for topic, observed in seen.items():
            if isinstance(observed, TopicOffsets):
                found[topic] = observed
            else:
                self.troubles.append(f"{self.stream.name}: {observed}")
        if gone := sorted({one.topic for one in self.sources if not one.retired} - set(there)):
            self.troubles.append(
                f"{self.stream.name}: of its topics, the broker does not show {', '.join(gone[:5])}"
                + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
                + " · deleted, or this user may not see them · nothing is lost in the ledger: it goes on when they are"
                " back, and what a deleted one left unread is recorded when it is created again"
            )
        candidates: dict[Where, Candidate] = {}
        for topic, source in self._sources(found).items():
            if source.id in self.observed.quiet:
                continue
            with self._told():
                candidates.update(self._candidates(source, found[topic]))
        # Who waits longest comes first: whoever got nothing in this tick is before the others in the next.
        order = sorted(candidates, key=lambda where: -(candidates[where].progress.pending_ms or 0))
        turns = in_turns(
            {where: candidates[where].new for where in order},
            max_slices=self.room,
            max_records=self.stream.slices.records_per_tick,
        )
        for where, new in turns.items():
            if self.planned and time.monotonic() > self.until:
                break
            with self._told():
                self._commit(candidates[where], new)

    def _sources(self, found: Mapping[str, TopicOffsets]) -> dict[str, Source]:
        ids = {topic: at.topic_id for topic, at in found.items()}
        return meet_topics(self.engine, self.stream, ids, known=self.sources, attempt=self._told)

    def _candidates(self, source: Source, found: TopicOffsets) -> dict[Where, Candidate]:
        offsets = offsets_of(found)
        progress = self.observed.progress_of(source.id)
        if progress is None:
            fresh = offsets.keys() - self.partitions.get(source.id, set())
            begin = self._origins(source, sorted(fresh), offsets=offsets) if fresh else {}
            progress = self._progress(source, offsets, begin)
        offsets = self._confirmed(source, offsets, progress)
        policy = Policy(
            max_records=self.stream.slices.max_records,
            max_delay=self.stream.slices.max_delay,
            on_expired=self.stream.on_expired,
            max_slices=self.stream.slices.per_tick,
            skip=self._skip,
        )
        if owners := sorted({at.owner for at in progress.values() if at.owner is not None}):
            held = sum(at.owner is not None for at in progress.values())
            self.notes.append(
                f"{self.stream.name}: {held} of {len(progress)} partitions of {source.topic!r} are landed live by "
                + ", ".join(owners[:3])
                + (f" and {len(owners) - 3} more" if len(owners) > 3 else "")
            )
        backlogs = self._backlogs(source, offsets, progress)
        candidates: dict[Where, Candidate] = {}
        for partition in sorted(number for number in offsets.keys() & progress if progress[number].owner is None):
            with self._told():
                standing = progress[partition]
                if new := plan_partition(
                    f"{source.topic}:{partition}", standing, offsets[partition], policy, backlogs.get(partition)
                ):
                    candidates[source.id, partition] = Candidate(source, partition, standing, new)
        return candidates

    def _progress(
        self, source: Source, offsets: Mapping[int, Offsets], origins: Mapping[int, int]
    ) -> dict[int, Progress]:
        return ledger.observe(self.engine, source, offsets=offsets, origins=origins, asset=self.stream.asset)

    @property
    def _skip(self) -> SkipPolicy | None:
        return policy_of(self.stream)

    def _backlogs(
        self, source: Source, offsets: Mapping[int, Offsets], progress: Mapping[int, Progress]
    ) -> Mapping[int, Backlog]:
        """How far behind the partitions are of which something may be jumped over; of the others nothing is asked."""
        skip = self._skip
        if skip is None:
            return {}
        ends = {
            number: (max(progress[number].planned_through, at.log_start), at.last_stable)
            for number, at in offsets.items()
            if number in progress
        }
        ends = {number: (at, end) for number, (at, end) in ends.items() if end - at > skip.keep}
        if not ends:
            return {}
        young: Mapping[int, int] = {}
        if skip.age is not None:
            then = database_ms(self.engine) - int(skip.age.total_seconds() * 1000)
            young = offsets_at(self.connection, source.topic, then)
        return self._judged(source, skip, ends, young)

    def _judged(
        self, source: Source, skip: SkipPolicy, ends: Mapping[int, tuple[int, int]], young: Mapping[int, int]
    ) -> Mapping[int, Backlog]:
        return backlogs(
            self.engine, asset=self.stream.asset, source_id=source.id, ends=ends, policy=skip, young_from=young
        )

    def _confirmed(
        self, source: Source, offsets: Mapping[int, Offsets], progress: Mapping[int, Progress]
    ) -> Mapping[int, Offsets]:
        """Ask again where a partition ends below what is planned: another planner may know a later end than ours."""
        ours = [number for number in offsets.keys() & progress if progress[number].owner is None]
        if all(offsets[number].high_watermark >= progress[number].planned_through for number in ours):
            return offsets
        again = observe(self.connection, [source.topic])[source.topic]
        if isinstance(again, KafkaAssetsError):
            raise again
        if again.topic_id != source.topic_id:
            raise TopicChanged(
                f"the topic {source.topic!r} was deleted and created again while it was being planned",
                why=f"its id was {source.topic_id}, and is now {again.topic_id}",
                cure="nothing: the next tick plans the new topic",
            )
        return offsets_of(again)

    def _origins(self, source: Source, fresh: Sequence[int], *, offsets: Mapping[int, Offsets]) -> dict[int, int]:
        known = self.partitions.get(source.id, set())
        return origins(self.stream, source, fresh, known=known, offsets=offsets, at=self._at)

    def _at(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        return offsets_at(self.connection, topic, timestamp_ms)

    def _commit(self, candidate: Candidate, new: Sequence[NewSlice]) -> bool:
        """Whether they stand now; not where another planner was faster."""
        planned = ledger.commit_plan(
            self.engine,
            candidate.source,
            candidate.partition,
            expected=candidate.progress.planned_through,
            slices=new,
            asset=self.stream.asset,
        )
        if planned is None:
            return False
        self.planned += len(planned)
        self.skipped += [
            f"{self.stream.name}: {candidate.source.topic}:{candidate.partition}: {one.reason}"
            for one in new
            if one.kind == "skipped"
        ]
        return True

    @contextmanager
    def _told(self) -> Generator[None]:
        """What goes wrong with a part of the stream is said, and the rest goes on."""
        try:
            yield
        except KafkaAssetsError as error:
            self.troubles.append(f"{self.stream.name}: {error}")
            self.unsettled |= passes(error)


def passes(error: KafkaAssetsError) -> bool:
    """Whether the next tick may well do what this one could not; of a broker that is away nobody knows when."""
    return isinstance(error, Retryable) and not isinstance(error, BrokerUnavailable)


@dataclass(frozen=True)
class Candidate:
    """A partition with slices to plan."""

    source: Source
    partition: int
    progress: Progress
    new: list[NewSlice]


def offsets_of(found: TopicOffsets) -> dict[int, Offsets]:
    return {
        number: Offsets(part.log_start, part.last_stable, part.high_watermark)
        for number, part in found.partitions.items()
    }
