"""Judging streams by what ledger and broker say of them. Where one does not answer, the rest is judged all the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from kafka_assets.assets.tick import observe_all, roots_of
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.keeping import Keeping, keeping, times_at
from kafka_assets.broker.offsets import Observation, TopicOffsets, observe
from kafka_assets.errors import KafkaAssetsError, TopicMissing
from kafka_assets.ledger.health import Health, gaps_of, health, places_of
from kafka_assets.ledger.readers import refused
from kafka_assets.ledger.requests import waiting
from kafka_assets.ledger.stalls import stalls
from kafka_assets.streams import Derived, Stream
from kafka_assets.verdicts import (
    Place,
    Verdict,
    exact_counts,
    hanging_transaction,
    lag,
    no_gaps,
    planning,
    quarantine_ratio,
    retention_headroom,
    stuck_slices,
)  # fmt: skip


@dataclass
class Judged:
    """The verdicts on each stream by its name, and of whom there are none, or not all, with the reason."""

    verdicts: dict[str, list[Verdict]] = field(default_factory=dict[str, "list[Verdict]"])
    troubles: list[str] = field(default_factory=list[str])
    down: bool = False
    """Whether the broker did not answer at all."""


@dataclass(frozen=True)
class _Heard:
    """What the broker said of the topics; nothing of those in `silent`, or of any where it is `down`."""

    kept: Mapping[str, Keeping] = field(default_factory=dict[str, Keeping])
    oldest: Mapping[str, int] = field(default_factory=dict[str, int])
    open_since: Mapping[str, int] = field(default_factory=dict[str, int])
    silent: Mapping[str, str] = field(default_factory=dict[str, str])
    gone: Collection[str] = ()
    down: str | None = None
    seen: Mapping[str, TopicOffsets] = field(default_factory=dict[str, TopicOffsets])
    """Where the topics end at this moment."""

    def silence(self, places: Sequence[Place]) -> str | None:
        """Why the broker's part of a verdict on these cannot be had, where it cannot."""
        return self.down or next((self.silent[one.topic] for one in places if one.topic in self.silent), None)


def judge(
    engine: Engine,
    connect: Callable[[], Connection],
    streams: Sequence[Stream],
    *,
    deep: bool = False,
    spark: Callable[[], str | None] = lambda: None,
) -> Judged:
    """All checks of these streams: some short queries for each, and three questions to the broker for all together.

    `deep`: the view kafka_gap is read besides, which has all of history. `spark`: why a run would wait for it; asked
    once, and only where something waits too long. One stream's trouble never stops the others.
    """
    found = Judged()
    spark = cache(spark)
    standing: dict[str, Health] = {}
    gaps: dict[str, list[str]] = {}
    for stream in streams:
        try:
            standing[stream.name] = health(
                engine, asset=stream.asset, target=stream.target, counted=stream.upsert is None
            )
            gaps[stream.name] = gaps_of(engine, stream=_root(stream), asset=stream.asset) if deep else []
        except KafkaAssetsError as error:
            found.troubles.append(f"{stream.name}: {error}")
        except DBAPIError as error:
            found.troubles.append(f"{stream.name}: the database refuses to tell of it · {error.orig}")
    heard = _heard(connect, [place for one in standing.values() for place in one.places])
    if heard.down is not None:
        found.down = True
        found.troubles.append(heard.down)
    for stream in streams:
        if stream.name in gaps:
            found.verdicts[stream.name] = _judged(stream, standing[stream.name], gaps[stream.name], heard)
            found.verdicts[stream.name] = [_with_spark(one, spark) for one in found.verdicts[stream.name]]
    return found


def _heard(connect: Callable[[], Connection], places: Sequence[Place]) -> _Heard:
    try:
        return _asked(connect(), places)
    except KafkaAssetsError as error:
        return _Heard(down=str(error))


def _asked(connection: Connection, places: Sequence[Place]) -> _Heard:
    topics = sorted({place.topic for place in places})
    now = observe(connection, topics)
    seen = {topic: found for topic, found in now.items() if isinstance(found, TopicOffsets)}
    waiting: dict[tuple[str, int], int] = {}
    for place in _now(places, seen):
        if place.lag and place.topic in seen:
            where = (place.topic, place.partition)
            waiting[where] = min(place.committed_through, waiting.get(where, place.committed_through))
    held = {
        (topic, number): part.last_stable
        for topic, found in seen.items()
        for number, part in found.partitions.items()
        if part.high_watermark > part.last_stable
    }
    return _Heard(
        kept=keeping(connection, topics),
        oldest={f"{topic}:{number}": at for (topic, number), at in times_at(connection, waiting).items()},
        open_since={
            f"{topic}:{number}": at for (topic, number), at in times_at(connection, held, committed=False).items()
        },
        silent={
            topic: str(found)
            for topic, found in now.items()
            if isinstance(found, KafkaAssetsError) and not isinstance(found, TopicMissing)
        },
        gone={topic for topic, found in now.items() if isinstance(found, TopicMissing)},
        seen=seen,
    )


def _now(places: Sequence[Place], seen: Mapping[str, TopicOffsets]) -> list[Place]:
    """The places as the broker says that they are: the ledger knows what somebody saw who looked last."""
    found: list[Place] = []
    for place in places:
        topic = seen.get(place.topic)
        # Of a topic that was created again, and that nobody has met, this source has nothing.
        part = topic.partitions.get(place.partition) if topic and topic.topic_id == place.topic_id else None
        if part is None:
            found.append(place)
        else:
            found.append(
                place.now(log_start=part.log_start, last_stable=part.last_stable, high_watermark=part.high_watermark)
            )
    return found


def _waited(places: Sequence[Place], oldest: Mapping[str, int], now_ms: int) -> list[Place]:
    """With what waits and nobody has seen: since the last look or commit, but no longer than since it was produced."""
    return [
        replace(
            place,
            waits_ms=max(place.waits_ms, min(place.moved_ms, max(0, now_ms - oldest.get(place.named, 0)))),
        )
        if place.unseen and not place.waits_ms
        else place
        for place in places
    ]


@dataclass(frozen=True)
class Looked:
    """Where a stream's partitions are, by the broker where it answers; and whether somebody looks at them."""

    places: Sequence[Place]
    planning: Verdict
    stalled: str | None = None
    """What keeps all that waits from landing, and is no slice's fault."""

    @property
    def trouble(self) -> str | None:
        """Why what comes is not planned, or what is planned does not land, where one of them is so."""
        said = [] if self.planning.passed else [self.planning.said]
        return " | ".join([*said, *([self.stalled] if self.stalled else [])]) or None


def look(engine: Engine, connect: Callable[[], Connection], streams: Sequence[Stream]) -> dict[str, Looked]:
    """By stream how far it really is behind, with one question to the broker for all together."""
    places = {stream.name: places_of(engine, asset=stream.asset) for stream in streams}
    topics = {place.topic for some in places.values() for place in some}
    # Of what was never planned, too, the broker says why.
    unmet = [stream for stream in streams if not places[stream.name]]
    silent: str | None = None
    now: Mapping[str, Observation] = {}
    try:
        if topics or roots_of(unmet):
            now = observe_all(connect(), roots_of(unmet), topics)
    except KafkaAssetsError as error:
        silent = str(error)
    seen = {topic: found for topic, found in now.items() if isinstance(found, TopicOffsets)}
    gone = {topic for topic, found in now.items() if isinstance(found, TopicMissing)}
    if silent is None:
        gone |= topics - now.keys()  # where all names were asked for, those that are not there are not asked about
    wrong = refused(engine, streams) if streams else {}
    waits = waiting(engine, assets=[stream.asset for stream in streams])
    stalled = {asset: one.said() for asset, one in stalls(engine, assets=waits.keys()).items()}
    found: dict[str, Looked] = {}
    for stream in streams:
        mine = places[stream.name]
        verdict = planning(mine, max_lag_ms=_max_lag_ms(stream), gone=gone, silent=silent)
        if stream.name in wrong:
            verdict = Verdict("planning", False, f"nothing of it is planned: {wrong[stream.name]}")
        elif not mine:
            why = _never_planned(stream, now, silent)
            verdict = replace(verdict, said=f"nothing of {stream.reads} was ever planned: {why}")
        found[stream.name] = Looked(_now(mine, seen), verdict, stalled.get(stream.asset))
    return found


def _never_planned(stream: Stream, now: Mapping[str, Observation], silent: str | None) -> str:
    """Why a stream that the ledger knows no partition of has none, as far as the broker says."""
    ticks = "the sensor kafka_slices has not ticked, or its ticks say why · `kafka-assets plan` tries it by hand"
    if isinstance(stream, Derived):
        return f"it shares the slices of {stream.root}, of which none is planned for it · {ticks}"
    if silent is not None:
        return f"{ticks} · the broker did not answer: {silent}"
    topics = stream.matching(now)
    if not topics:
        return (
            "the broker shows no topic of such a name · create one, give this user the right to see it, or correct "
            "the pattern"
        )
    for topic in topics:
        if isinstance(observed := now[topic], KafkaAssetsError):
            return str(observed)
    there = [one for topic in topics if isinstance(one := now[topic], TopicOffsets)]
    parts = [part for one in there for part in one.partitions.values()]
    offsets = sum(part.last_stable - part.log_start for part in parts)
    return f"{offsets:,} offsets wait in {len(parts)} partitions · {ticks}"


def _judged(stream: Stream, standing: Health, gaps: Sequence[str], heard: _Heard) -> list[Verdict]:
    places: Sequence[Place] = _waited(_now(standing.places, heard.seen), heard.oldest, standing.now_ms)
    # What is read from another asset's table expires with nobody's retention, and asks no broker.
    derived = isinstance(stream, Derived)
    expiring: Sequence[Place] = () if derived else places
    silent = None if derived else heard.silence(places)
    return [
        no_gaps(places, below=standing.below, found=gaps),
        exact_counts(standing.recent),
        lag(
            places,
            max_lag_ms=_max_lag_ms(stream),
            skipped=standing.skipped,
            gone=heard.gone,
            failure=standing.waiting.reason,
        ).unless(silent),
        quarantine_ratio(standing.recent, max_bad_ratio=stream.max_bad_ratio),
        retention_headroom(
            expiring,
            retention_ms={topic: one.retention_ms for topic, one in heard.kept.items()},
            oldest_ms=heard.oldest,
            now_ms=standing.now_ms,
        ).unless(silent),
        hanging_transaction(expiring, since_ms=heard.open_since, now_ms=standing.now_ms).unless(silent),
        stuck_slices(standing.waiting),
        planning(places, max_lag_ms=_max_lag_ms(stream), gone=() if derived else heard.gone, silent=silent),
    ]


def _with_spark(one: Verdict, spark: Callable[[], str | None]) -> Verdict:
    """A lag says what of it Spark is to blame for."""
    if one.name != "lag" or one.passed or not one.known or (trouble := spark()) is None:
        return one
    return replace(one, said=f"{one.said} · {trouble}")


def _max_lag_ms(stream: Stream) -> int:
    return int(stream.max_lag.total_seconds() * 1000)


def _root(stream: Stream) -> str:
    return stream.root if isinstance(stream, Derived) else stream.name
