"""One sensor tick: observe, plan, add keys, request runs, tell what Dagster missed.

Every step may be killed, repeated, or overlap another tick: the ledger decides by compare-and-set,
and Dagster's storage is brought up to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TypeVar

import dagster as dg
from sqlalchemy import Engine

from kafka_assets.assets.cursor import Cursor
from kafka_assets.assets.echo import Echo, echo
from kafka_assets.assets.planning import StreamPlan, offsets_of, passes
from kafka_assets.assets.requesting import InDagster, request_runs
from kafka_assets.assets.run_retention import forget_runs
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import Observation, TopicOffsets, observe, observe_chosen
from kafka_assets.errors import BrokerUnavailable, KafkaAssetsError, Retryable, SettingsError
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.gone import GONE, leave_gone
from kafka_assets.ledger.janitor import end_expired, end_live
from kafka_assets.ledger.observing import Looked, Observed, observe_known
from kafka_assets.ledger.readers import refused
from kafka_assets.ledger.requests import given_up, rearm, waiting
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.ledger.sources import Source, known_partitions, known_sources
from kafka_assets.ledger.stalls import Stall, lift, stall, stalls
from kafka_assets.settings import no_spark_known
from kafka_assets.streams import Derived, Stream, root_of
from kafka_assets.verdicts import UNSEEN_MS

PLANNING_SECONDS = 25
"""Of the minute that Dagster gives an evaluation; what is not planned by then is first in the next tick."""

ASKING_SECONDS = 40
"""Of the same minute, from its beginning: in one that takes longer Dagster hears of no run that was asked for, while
the stored tokens keep their slices from being asked for again. Whose turn it is then is first in the next tick."""

ADDING_SECONDS = 10
"""Of the same minute: a downstream that is declared late gets the publications of a long history bit by bit."""

Answer = TypeVar("Answer")
Look = Callable[[Connection, Sequence[Stream], Collection[str]], Mapping[str, Observation]]


@dataclass
class Tick:
    """What a tick came to: runs to request, materializations to tell, and what went wrong with one stream."""

    requests: list[dg.RunRequest] = field(default_factory=list[dg.RunRequest])
    events: list[dg.AssetMaterialization] = field(default_factory=list[dg.AssetMaterialization])
    troubles: list[str] = field(default_factory=list[str])
    given_up: list[str] = field(default_factory=list[str])
    """Those of the troubles that tell of slices which failed too often."""
    notes: list[str] = field(default_factory=list[str])
    """What others do: no trouble, and nothing to be done."""
    skipped: list[str] = field(default_factory=list[str])
    """What was jumped over, as streams declare it."""
    refused: frozenset[str] = frozenset()
    """Streams of which nothing was done: they would land beside rows of another stream or topic."""
    planned: int = 0
    unsettled: bool = False
    """Whether the next tick may well do more than this one could, though nothing new comes."""
    stalled: set[str] = field(default_factory=set[str])
    """The assets of which nothing can land, and no run tries it now."""
    cursor: str | None = None
    out_seconds: float = 0.0
    """For how long the broker has not answered any tick."""

    def attempt(self, step: Callable[[], Answer], *, stream: str | None = None) -> Answer | None:
        """One step: what goes wrong with it is said, and the others are taken."""
        try:
            return step()
        except KafkaAssetsError as error:
            self.troubles.append((f"{stream}: " if stream else "") + trouble_reason(error))
            self.unsettled |= passes(error)
            return None


@dataclass(frozen=True)
class Caller:
    """Who ticks: a sensor, or whoever carries the runs out by itself."""

    here: bool = False
    """Whether it carries the runs out itself, and so waits for none that waits in Dagster."""
    again: bool = False
    """Whether what kept an asset from landing is tried at once: somebody may have cured it before calling."""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """The code version of each stream, by its name."""
    spark: Callable[[], object] | None = None
    """Raises SettingsError where no Spark is known: then no run is asked for, which could only fail."""
    planned: Callable[[], object] = lambda: None
    """Is told as soon as new slices stand in the ledger: runs will be asked for, and can be made ready."""


def tick(
    streams: Sequence[Stream],
    *,
    engine: Engine,
    connection: Connection | Callable[[], Connection],
    instance: dg.DagsterInstance | Callable[[], dg.DagsterInstance],
    log: logging.Logger,
    cursor: str | None = None,
    look: Look | None = None,
    caller: Caller = Caller(),
) -> Tick:
    """Bring ledger and Dagster up to the broker. One stream's trouble never stops the others.

    `look` asks the broker what there is, or says it in its place. `instance` may be opened when it is needed: when all
    is planned. Without a broker nothing is planned and no
    run is asked for: it could only fail. Dagster is told all the same.
    """
    began = time.monotonic()
    ensure_schema(engine)
    result = Tick(troubles=[*end_expired(engine, log=log), *end_live(engine, log=log)])
    at = Cursor.parse(cursor)
    wrong = refused(engine, streams) if streams else {}
    result.troubles += [f"{name}: {error}" for name, error in wrong.items()]
    result.refused = frozenset(wrong)
    streams = [stream for stream in streams if stream.name not in wrong]
    if streams:
        in_turn, late = _in_turn(streams, at.turn), set[str]()
        roots = roots_of(in_turn)
        connected = result.attempt(connection if callable(connection) else lambda: connection)
        sources = known_sources(engine, [stream.name for stream in roots])
        active = {one.topic for mine in sources.values() for one in mine if not one.retired}
        seen = result.attempt(lambda: (look or observe_all)(connected, roots, active)) if connected and roots else None
        there = shown(seen) if seen else set[str]()
        if connected and seen is not None:
            until = began + PLANNING_SECONDS
            late |= _plan(result, roots, seen, sources=sources, engine=engine, connection=connected, until=until)
        if result.planned:
            caller.planned()
        instance = instance() if callable(instance) else instance
        standing = stalls(engine, assets=[stream.asset for stream in streams])
        retired = {name for name, mine in sources.items() if any(one.retired for one in mine)}
        no_spark = _no_spark(caller.spark)
        if caller.spark is not None and no_spark is None:
            standing = _lifted(engine, standing)
        requests = _Requests(
            result,
            caller,
            standing,
            retired,
            no_spark=no_spark,
            engine=engine,
            in_dagster=InDagster(instance, streams),
            log=log,
        )
        for stream in _in_time(in_turn, late, until=began + ASKING_SECONDS):
            result.attempt(lambda one=stream: requests.ask(one, there), stream=stream.name)
        told = result.attempt(lambda: _tell(result, streams, at, engine=engine, instance=instance))
        _forget(instance, in_turn[0], log=log)
        result.unsettled |= bool(late)
        at = replace(told.cursor if told else at, turn=(at.turn + _served(in_turn, late)) % len(streams))
        at = at.answered() if seen is not None or not roots else at.unanswered()
        result.out_seconds = at.out_seconds
    result.cursor = at.written()
    for said in (*result.skipped, *result.troubles):
        log.warning(said)
    return result


def observe_all(
    connection: Connection, streams: Sequence[Stream], active: Collection[str] = ()
) -> Mapping[str, Observation]:
    """One conversation with the broker, whatever the number of topics; names are listed only for patterns.

    Also of the topics that were read before, though no stream names them any more: what is planned of them is landed.
    """
    if all(stream.topic is not None for stream in streams):
        return observe(connection, sorted({stream.reads for stream in streams} | set(active)))
    return observe_chosen(
        connection,
        lambda names: sorted(
            {topic for stream in streams for topic in stream.matching(names)} | (set(active) & set(names))
        ),
    )


def _plan(
    result: Tick,
    streams: Sequence[Stream],
    seen: Mapping[str, Observation],
    *,
    sources: Mapping[str, Sequence[Source]],
    engine: Engine,
    connection: Connection,
    until: float,
) -> set[str]:
    """Plan one stream after the other; the names of those that there was no time for."""
    late = set[str]()
    partitions = known_partitions(engine, [one.id for mine in sources.values() for one in mine])
    # What waits of a topic that is gone can be asked for by nobody: it must not take the others' places for ever.
    waits = waiting(engine, assets=[stream.asset for stream in streams], topics=shown(seen))
    observed = result.attempt(lambda: observe_known(engine, _looks(streams, seen, sources)))
    for stream in _in_time(streams, late, until=until):
        plan = StreamPlan(
            stream=stream,
            engine=engine,
            connection=connection,
            sources=sources[stream.name],
            partitions=partitions,
            room=max(0, min(stream.slices.per_tick, stream.slices.waiting - waits.get(stream.asset, 0))),
            until=until,
            observed=observed or Observed(),
        )
        topics = stream.matching(seen)
        plan.run({topic: seen[topic] for topic in topics}, there=seen.keys())
        if not topics:
            plan.troubles.append(f"{stream.name}: no topic that the broker shows matches {stream.reads!r}")
        result.troubles += plan.troubles
        result.notes += plan.notes
        result.skipped += plan.skipped
        result.planned += plan.planned
        result.unsettled |= plan.unsettled
    return late


def _looks(
    streams: Sequence[Stream], seen: Mapping[str, Observation], sources: Mapping[str, Sequence[Source]]
) -> list[Looked]:
    """What the broker said of the topics that are known: each by the source that has its id."""
    return [
        Looked(source, stream.asset, offsets_of(found))
        for stream in streams
        for topic in stream.matching(seen)
        for source in sources[stream.name]
        if source.topic == topic
        and not source.retired
        and isinstance(found := seen[topic], TopicOffsets)
        and found.topic_id == source.topic_id
    ]


def shown(seen: Mapping[str, Observation]) -> set[str]:
    """The topics that the broker has told of."""
    return {topic for topic, observed in seen.items() if isinstance(observed, TopicOffsets)}


def roots_of(streams: Sequence[Stream]) -> list[Stream]:
    """Those that read topics: the others share their slices."""
    return [stream for stream in streams if not isinstance(stream, Derived)]


@dataclass
class _Requests:
    """Asking for the runs of one stream after the other."""

    result: Tick
    caller: Caller
    stalls: Mapping[str, Stall]
    retired: Collection[str]
    """Streams that read topics which are gone."""
    _: KW_ONLY
    no_spark: SettingsError | None
    """Why a run would find no Spark."""
    engine: Engine
    in_dagster: InDagster
    log: logging.Logger
    until: float = field(default_factory=lambda: time.monotonic() + ADDING_SECONDS)

    def ask(self, stream: Stream, topics: Collection[str]) -> None:
        """Runs of a stream. Those of an asset that reads another one's rows need no broker."""
        version, stalled = self.caller.versions.get(stream.name), self.stalls.get(stream.asset)
        self._add_publications(stream)
        if root_of(stream) in self.retired:
            self._leave_gone(stream)
        if version is not None:
            self._rearm(stream, version)
        if self.no_spark is not None:
            self._stall(stream, self.no_spark, version)
            return
        if stalled is None or self.caller.again or stalled.may_be_tried(version):
            asked = request_runs(
                self.engine,
                stream,
                in_dagster=self.in_dagster,
                topics=() if isinstance(stream, Derived) else topics,
                upstream=stream.upstream if isinstance(stream, Derived) else None,
                here=self.caller.here,
                stalled=stalled,
            )
            self.result.requests += asked
            if asked:
                return
        if stalled is not None and waiting(self.engine, assets=[stream.asset]):
            self.result.stalled.add(stream.asset)
            self.result.troubles.append(f"{stream.name}: {stalled.said()}")

    def _stall(self, stream: Stream, error: SettingsError, version: str | None) -> None:
        """Write down what a run would meet, for who asks why nothing lands; it is looked for again at each tick."""
        if waiting(self.engine, assets=[stream.asset]):
            stall(self.engine, asset=stream.asset, failure=str(error), code_version=version)
            self.result.stalled.add(stream.asset)
            self.result.troubles.append(f"{stream.name}: nothing lands: {error} · the next tick looks for it again")

    def _add_publications(self, stream: Stream) -> None:
        """What was planned under another group, or by a deployment that does not know this asset."""
        root = isinstance(stream, Derived)
        self.result.planned += add_publications(
            self.engine, asset=stream.asset, stream=root_of(stream), gone=root, until=self.until
        )
        self.result.unsettled |= root and time.monotonic() > self.until

    def _leave_gone(self, stream: Stream) -> None:
        upstream = stream.upstream if isinstance(stream, Derived) else None
        left = leave_gone(self.engine, asset=stream.asset, upstream=upstream)
        if left:
            self.log.warning(f"{stream.name}: {left} slices are not landed under {stream.asset!r}: {GONE}")

    def _rearm(self, stream: Stream, version: str) -> None:
        again = rearm(self.engine, asset=stream.asset, code_version=version, max_attempts=stream.max_attempts)
        if again:
            self.log.info(f"{stream.name}: {again} slices that were given up are tried once more: the code has changed")


def _no_spark(require: Callable[[], object] | None) -> SettingsError | None:
    """Why a run would find no Spark, as far as that can be said without asking one."""
    try:
        if require is not None:
            require()
    except SettingsError as error:
        return error
    return None


def _lifted(engine: Engine, standing: Mapping[str, Stall]) -> Mapping[str, Stall]:
    """What keeps assets from landing still, now that Spark is known: `up` may just have started it."""
    gone = [one for one in standing.values() if one.failure == str(no_spark_known())]
    for one in gone:
        lift(engine, one)
    return {asset: one for asset, one in standing.items() if one not in gone}


def _tell(
    result: Tick, streams: Sequence[Stream], cursor: Cursor, *, engine: Engine, instance: dg.DagsterInstance
) -> Echo:
    failed = given_up(engine, assets=[stream.asset for stream in streams])
    for stream in streams:
        if count := failed.get(stream.asset):
            result.given_up.append(
                f"{stream.name}: {count} slices failed too often and are not tried again"
                f" · `kafka-assets slices {stream.name} --state failed` says why · cure it, and"
                f" `kafka-assets replay {stream.name} --failed`, or materialize their keys;"
                " when the stream's code changes, they are tried once more by themselves"
            )
    result.troubles += result.given_up
    told = echo(engine, streams, cursor, instance=instance)
    result.events += told.events
    return told


def _forget(instance: dg.DagsterInstance, stream: Stream, *, log: logging.Logger) -> None:
    """Let a stream's oldest runs go. Where Dagster cannot, they stay: the runs that this tick asks for must not."""
    try:
        forget_runs(instance, stream)
    except Exception as error:  # noqa: BLE001 - the storages are anybody's, and raise what they like
        log.warning(
            f"{stream.name}: runs that `keep_keys` lets go stay in Dagster, which could not delete them"
            f" ({type(error).__name__}: {error}) · let its storage and its compute logs be deleted from, or declare no"
            " keep_keys"
        )


def _in_turn(streams: Sequence[Stream], turn: int) -> list[Stream]:
    """Each stream is the first once: where a tick runs out of time, it is not the same ones that wait."""
    at = turn % len(streams)
    return [*streams[at:], *streams[:at]]


def _in_time(streams: Sequence[Stream], late: set[str], *, until: float) -> Iterator[Stream]:
    """The first of these, and the others while there is time, on the monotonic clock; the rest are `late`."""
    for number, stream in enumerate(streams):
        if number and time.monotonic() > until:
            late.update(one.name for one in streams[number:])
            return
        yield stream


def _served(streams: Sequence[Stream], late: Collection[str]) -> int:
    """So many that stand before the first that is late, which begins the next tick; one where nobody is late."""
    return next((number for number, one in enumerate(streams) if one.name in late), 1)


def sensor_result(found: Tick) -> dg.SensorResult:
    """What Dagster is given; a tick with nothing to do says why. After minutes without a broker it has failed."""
    if found.out_seconds * 1000 > UNSEEN_MS and not found.requests and not found.events:
        raise BrokerUnavailable(
            f"nothing could be planned for {found.out_seconds / 60:.0f} minutes",
            why=" | ".join(found.troubles),
            cure="start the broker (`kafka-assets up` a local one), or correct its address; each tick tries again",
        )
    if found.requests or found.events:
        return dg.SensorResult(run_requests=found.requests, asset_events=found.events, cursor=found.cursor)
    done = "everything that is in the topics is planned, and being landed or landed"
    if found.notes:
        done = f"{done}, or left to whoever lands it live"
    said = [*found.skipped, *found.troubles]
    reason = " | ".join([*(said or [done]), *found.notes])
    return dg.SensorResult(skip_reason=reason, cursor=found.cursor)


def trouble_reason(error: KafkaAssetsError) -> str:
    return f"{error}" + (" · trying again at the next tick" if isinstance(error, Retryable) else "")
