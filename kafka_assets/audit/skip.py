"""What a skip would leave out, decided before anybody is asked; then done in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Engine

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.listing import topic_offsets
from kafka_assets.broker.offsets import TopicOffsets, offsets_at
from kafka_assets.errors import TopicChanged, UsageError
from kafka_assets.ledger.skipping import current_sources, skip_ahead, skip_slices
from kafka_assets.ledger.slice_list import Listed, Wanted, list_slices
from kafka_assets.ledger.sources import Source
from kafka_assets.ledger.standing import progress_of
from kafka_assets.plan import NewSlice, cut
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream

SKIPPABLE = ("planned", "failed")


@dataclass(frozen=True)
class Ahead:
    """Slices to plan of one partition, whose last is to be skipped."""

    source: Source
    partition: int
    expected: int
    new: list[NewSlice]

    @property
    def skipped(self) -> SliceKey:
        last = self.new[-1]
        return SliceKey(self.source.topic, self.source.incarnation, self.partition, last.start, last.end)


@dataclass
class Skip:
    """What is to be skipped, and what of the range is not, with the reason."""

    slices: list[Listed] = field(default_factory=list[Listed])
    ahead: list[Ahead] = field(default_factory=list[Ahead])
    left: list[tuple[SliceKey, str]] = field(default_factory=list[tuple[SliceKey, str]])

    @property
    def keys(self) -> list[SliceKey]:
        return sorted([*(one.key for one in self.slices), *(one.skipped for one in self.ahead)])

    def carry_out(self, engine: Engine, stream: Stream, *, reason: str) -> None:
        """Skip all of it: what is planned at once, then partition by partition what lies ahead."""
        if self.slices:
            skip_slices(engine, self.slices, reason=reason)
        for one in self.ahead:
            new = [*one.new[:-1], NewSlice(one.new[-1].start, one.new[-1].end, "skipped", reason)]
            skip_ahead(engine, one.source, one.partition, expected=one.expected, new=new, asset=stream.asset)


def skip_of_slices(slices: list[Listed]) -> Skip:
    """Skip these, and refuse nothing yet: under the lock it is decided anyway."""
    return Skip(slices=[one for one in slices if one.state != "skipped"])


def skip_of_range(engine: Engine, connection: Callable[[], Connection], stream: Stream, wanted: Wanted) -> Skip:
    """Skip what of a range nobody has landed, planned or not; a slice that crosses its bounds is left to land.

    The broker is asked where the range is given by time, or has no end, or goes beyond what is planned.
    """
    found = Skip()
    sources = current_sources(engine, stream.name)
    if wanted.topic is not None:
        sources = {topic: source for topic, source in sources.items() if topic == wanted.topic}
    if not sources:
        raise UsageError(
            f"the ledger knows no topic of stream {stream.name!r}"
            + (f" named {wanted.topic!r}" if wanted.topic else ""),
            why="nothing of it was planned yet",
            cure="let the sensor plan first (`kafka-assets plan`), or check the database in the settings",
        )
    if wanted.start is not None and len(sources) > 1:
        raise UsageError(
            f"the stream {stream.name!r} reads {len(sources)} topics, and offsets are of one",
            cure=f"name it with --topic: {', '.join(sorted(sources)[:5])}",
        )
    for source in sources.values():
        _choose(found, engine, connection, stream, source, wanted)
    return found


def _choose(
    found: Skip,
    engine: Engine,
    connection: Callable[[], Connection],
    stream: Stream,
    source: Source,
    wanted: Wanted,
) -> None:
    planned = {part: at.planned_through for part, at in progress_of(engine, source.id).items()}
    if wanted.partition is not None:
        if wanted.partition not in planned:
            raise UsageError(
                f"the ledger knows no partition {wanted.partition} of the topic {source.topic!r}",
                why=f"it knows {', '.join(map(str, sorted(planned))) or 'none'}",
                cure="choose one of those, or let the sensor plan first (`kafka-assets plan`)",
            )
        planned = {wanted.partition: planned[wanted.partition]}
    within = wanted.end is not None and all(wanted.end <= through for through in planned.values())
    seen = None if within and not wanted.by_time else _seen(connection(), source)
    since = _at(connection, source, wanted.since_ms)
    until = _at(connection, source, wanted.until_ms)
    for partition, through in sorted(planned.items()):
        last = seen.partitions[partition].last_stable if seen and partition in seen.partitions else through
        start = since.get(partition, wanted.start or 0)
        end = min(until.get(partition, last), last) if wanted.end is None else wanted.end
        if end > max(last, through):
            raise UsageError(
                f"partition {partition} of the topic {source.topic!r} ends at {last}, before {end}",
                why="what is not there yet cannot be skipped: planning would take it for lost by the broker",
                cure=f"skip --to {last}, or leave --to out",
            )
        if start < end:
            _choose_partition(found, engine, stream, source, partition, start=start, end=end, through=through)


def _choose_partition(
    found: Skip, engine: Engine, stream: Stream, source: Source, partition: int, *, start: int, end: int, through: int
) -> None:
    where = Wanted(topic=source.topic, partition=partition, start=start, end=end)
    for one in list_slices(engine, stream=stream.name, asset=stream.asset, wanted=where):
        if one.state not in SKIPPABLE:
            found.left.append((one.key, f"it is {one.state}" + (f": {one.reason}" if one.state == "open" else "")))
        elif one.key.start < start or one.key.end > end:
            found.left.append((one.key, "it crosses the bounds, and slices are not cut: it will land"))
        else:
            found.slices.append(one)
    begin = max(start, through)
    if begin < end:
        before = cut(through, begin, max_records=stream.slices.max_records) if through < begin else []
        found.ahead.append(Ahead(source, partition, through, [*before, NewSlice(begin, end)]))


def _seen(connection: Connection, source: Source) -> TopicOffsets:
    seen = topic_offsets(connection, source.topic)
    if seen.topic_id != source.topic_id:
        raise TopicChanged(
            f"the topic {source.topic!r} was deleted and created again",
            why="its offsets are not those that the ledger knows",
            cure="let the sensor meet the new topic first (`kafka-assets plan`)",
        )
    return seen


def _at(connection: Callable[[], Connection], source: Source, timestamp_ms: int | None) -> dict[int, int]:
    return {} if timestamp_ms is None else dict(offsets_at(connection(), source.topic, timestamp_ms))
