"""Landing a run's slices: look at the broker, claim, make the table ready, publish."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import cast

from pyspark.sql import DataFrame
from sqlalchemy import Engine

from kafka_assets.assets.batches import MAX_KEYS, MAX_OFFSETS
from kafka_assets.assets.faults import Fault, divides, fault_of
from kafka_assets.assets.landing import Landing, Observed
from kafka_assets.assets.reading import Reading
from kafka_assets.broker.offsets import TopicOffsets
from kafka_assets.errors import (
    KafkaAssetsError,
    OffsetsExpired,
    Retryable,
    SliceRefused,
    TopicChanged,
    Truncated,
)
from kafka_assets.ledger import windows
from kafka_assets.ledger.claims import LEASE_MS, Claim, claim, give_back, record_failure, release
from kafka_assets.ledger.engine import read, shared_reads
from kafka_assets.ledger.fences import Held, kept_alive
from kafka_assets.ledger.publications import Publication, find
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.ledger.stalls import stall
from kafka_assets.records import Chunk, Chunks, Seen
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.publish import Published, Work, publish
from kafka_assets.sinks.road import road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey, readable
from kafka_assets.streams import Stream, with_demands

_log = logging.getLogger(__name__)


class Unlanded(Exception):
    """Some of a run's transactions have failed, and what the others landed is committed: each with its slices."""

    def __init__(self, failed: Sequence[tuple[Sequence[SliceKey], Exception]], *, landed: int, left: int) -> None:
        super().__init__(
            f"{len(failed)} of the run's transactions failed"
            + (f", {landed} slices have landed all the same" if landed else "")
            + (f", and {left} were not tried" if left else "")
        )
        self.failed = failed
        self.left = left


@dataclass(frozen=True)
class Asking:
    """How a run lands its slices."""

    replaces: bool
    force: bool
    keeps: Collection[str] = ()
    """Runs whose results stay, though this one replaces."""
    say: Callable[[str], None] = _log.debug
    """Is told what the run claims, reads and commits."""


def land(engine: Engine, landing: Landing, frame: object, asking: Asking) -> list[Published]:
    """Publish the slices of a landing, once; what went wrong is written into its claims.

    A run of many slices has several transactions, each with bounds: where one of them fails, the others go on if
    they may, and Unlanded tells of it in the end.
    """
    landing.steps.now("claim")
    with shared_reads(engine):
        ensure_schema(engine)
        found = find(engine, asset=landing.stream.asset, keys=landing.keys)
    wanted, done = _divided(found.values(), asking)
    if not wanted:
        return done
    _refuse_lost(wanted)
    _refuse_open(engine, wanted)
    parts = _transactions(wanted, max_offsets=max(MAX_OFFSETS, landing.stream.slices.max_records))
    landings = [landing.of(keys) for keys in parts]
    landings[0] = replace(landings[0], steps=landing.steps)
    failed: list[tuple[Sequence[SliceKey], Exception]] = []
    landed = tried = 0
    with closing(Reading(landing, cast(DataFrame, frame), landings)) as reading:
        for part in landings:
            # The first one's stand as they were found just now.
            known = None if tried else {key: found[key] for key in part.keys}
            tried += len(part.keys)
            try:
                done += _land(engine, part, reading, asking, known=known)
                landed += len(part.keys)
            except Exception as error:
                if len(parts) == 1:
                    raise
                failed.append((part.keys, error))
                if not divides(error):
                    break  # what comes after would fail by the same
    if failed:
        raise Unlanded(failed, landed=landed, left=len(wanted) - tried)
    return done


def _divided(found: Iterable[Publication], asking: Asking) -> tuple[list[Publication], list[Published]]:
    """What is to be landed, and what is committed and stays so."""
    wanted: list[Publication] = []
    done: list[Published] = []
    for one in found:
        if one.stays(replaces=asking.replaces, keeps=asking.keeps):
            done.append(Published(one, one.committed_attempt or 0, None))
        else:
            wanted.append(one)
    return wanted, done


def _transactions(wanted: Sequence[Publication], *, max_offsets: int) -> list[list[SliceKey]]:
    """Slices in the order of their keys, so many for a transaction each."""
    parts: list[list[SliceKey]] = []
    offsets = 0
    for key in sorted(publication.key for publication in wanted):
        if not parts or len(parts[-1]) == MAX_KEYS or offsets + key.offsets > max_offsets:
            parts.append([])
            offsets = 0
        parts[-1].append(key)
        offsets += key.offsets
    return parts


def _land(
    engine: Engine,
    landing: Landing,
    reading: Reading,
    asking: Asking,
    *,
    known: Mapping[SliceKey, Publication] | None,
) -> list[Published]:
    """One transaction: claim, publish, give back; not of what another run has committed since this one began.

    `known`: how its slices stand, where somebody has just looked.
    """
    landing.steps.now("claim")
    found = known or find(engine, asset=landing.stream.asset, keys=landing.keys)
    wanted, done = _divided(found.values(), asking)
    if not wanted:
        return done
    keys = [one.key for one in wanted]
    with _given_back(engine, landing.stream, run_id=landing.run_id, code_version=landing.code_version) as claims:
        # Dagster tries a run again only when that one is over, and long before the lease that it held would end.
        claims.extend(
            claim(engine, wanted, run_id=landing.run_id, force=asking.force, over=asking.keeps, lease_ms=LEASE_MS)
        )
        asking.say(
            f"claimed {readable(keys)}: {len(claims)} slices,"
            f" {sum(one.offsets for one in keys):,} offsets, attempt {max(one.attempt for one in claims)}"
        )
        with kept_alive(engine, claims, lease_ms=LEASE_MS) as alive:
            published = _publish(engine, landing, reading, claims, alive, asking)
    asking.say(_committed(published))
    with suppress(Retryable):  # what is committed stays so; the leases end by themselves
        release(engine, claims)
    return [*done, *published]


def _committed(published: Sequence[Published]) -> str:
    outcomes = [one.outcome for one in published if one.outcome is not None]
    counts = {name: sum(getattr(one, name) for one in outcomes) for name in ("landed", "filtered", "quarantined")}
    told = ", ".join(f"{count:,} records {name}" for name, count in counts.items() if count or name == "landed")
    return f"committed {len(outcomes)} slices: {told}"


def _told(chunks: Chunks, say: Callable[[str], None]) -> Chunks:
    """The same chunks, each of them told of."""

    def read() -> Iterator[Chunk]:
        number = 0
        for chunk in chunks():
            records = sum(part.read for part in chunk.seen.values())
            size = sum(part.bytes_read for part in chunk.seen.values())
            number += 1 if records else 0
            if records:
                say(f"read chunk {number}, {readable(list(chunk.seen))}: {records:,} records, {size / 1e6:,.1f} MB")
            yield chunk

    return read


def keep_failure(
    engine: Engine,
    stream: Stream,
    keys: Sequence[SliceKey],
    *,
    run_id: str,
    replaces: bool,
    keeps: Collection[str],
    code_version: str,
    error: Exception,
) -> None:
    """An attempt at these slices that failed before it claimed them.

    Never by force: whoever holds a live lease goes on, since here there is nothing to land.
    """
    ensure_schema(engine)
    found = find(engine, asset=stream.asset, keys=keys).values()
    wanted = [one for one in found if not one.stays(replaces=replaces, keeps=keeps) and one.kind == "normal"]
    _refuse_open(engine, wanted)
    if wanted:
        with _given_back(engine, stream, run_id=run_id, code_version=code_version) as claims:
            claims.extend(claim(engine, wanted, run_id=run_id, over=keeps, lease_ms=LEASE_MS))
            _fail(engine, claims, stream, error, code_version=code_version)


@contextmanager
def _given_back(engine: Engine, stream: Stream, *, run_id: str, code_version: str) -> Generator[list[Claim]]:
    """What the block claims, and puts into this list, is given back by whatever ends the block early.

    All of that is reported by Dagster. That somebody ended the run, which is no Exception, says nothing against its
    slices; it may come between the claim's commit and the list, and the claim is found by its run then.
    """
    claims: list[Claim] = []
    try:
        yield claims
    except BaseException as error:
        with suppress(Retryable):  # else the leases end by themselves
            if claims:
                _fail(engine, claims, stream, error, code_version=code_version)
            elif not isinstance(error, Exception):
                give_back(engine, run_id=run_id)
        raise


def _fail(engine: Engine, claims: Sequence[Claim], stream: Stream, error: BaseException, *, code_version: str) -> None:
    fault = fault_of(error)
    said = str(error) if isinstance(error, KafkaAssetsError) else f"{type(error).__name__}: {error}"
    if fault is Fault.NOBODY:
        said = "the run was ended while it landed the slice"
    record_failure(
        engine,
        claims,
        reason=said,
        max_attempts=stream.max_attempts,
        counts=fault is Fault.SLICE,
        # What keeps all slices from landing waits as one.
        pauses=fault in (Fault.SLICE, Fault.PASSING),
        code_version=code_version,
    )
    if fault is Fault.STREAM:
        stall(engine, asset=stream.asset, failure=said, code_version=code_version)


def _publish(
    engine: Engine,
    landing: Landing,
    reading: Reading,
    claims: Sequence[Claim],
    alive: Held,
    asking: Asking,
) -> list[Published]:
    stream, steps = landing.stream, landing.steps
    held = [one.publication for one in claims]
    steps.now("offsets")
    read_from = _readable_from(landing, held)
    steps.now("spark")
    schema = reading.schema
    with reading.of(landing, read_from) as chunks:
        steps.now("table")
        road = road_for(engine)
        table = ensure_table(
            engine,
            road,
            name=stream.target,
            asset=stream.asset,
            schema=with_demands(stream, schema),
            upsert=stream.upsert,
            ordinal=stream.scope == "slice",
            evolve=stream.evolve == "add_columns",
        )

        def confirm(seen: Mapping[SliceKey, Seen]) -> None:
            _confirm(landing, held, read_from, seen)

        work = Work(
            claims=claims,
            table=table,
            chunks=_told(alive.while_held(chunks), asking.say),
            confirm=confirm,
            expired={key: start for key, start in read_from.items() if start > key.start},
            bad_policy=BadPolicy(stream.on_bad, stream.max_bad_ratio, quotes=stream.preview),
            run_id=landing.run_id,
            code_version=landing.code_version,
            replaces=asking.replaces,
            keeps=asking.keeps,
            fetch=landing.refused,
            force=asking.force,
            recheck=landing.recheck,
            fingerprints=landing.fingerprints,
            steps=steps,
        )
        return publish(engine, road, work)


def _readable_from(landing: Landing, held: Sequence[Publication]) -> dict[SliceKey, int]:
    """From where each slice can be read now. What expired is an error or recorded, as the stream declares."""
    readable = {one.key: one.key.start for one in held}
    offsets = _observe(landing, held)
    if offsets is None:
        return readable
    for key in readable:
        found = offsets[key.topic].partitions.get(key.partition)
        if found is None or found.last_stable < key.end:
            raise Truncated(
                f"slice {key} ends beyond its partition, which ends at {found.last_stable if found else 'nothing'}",
                why="the topic lost records after the slice was planned",
                cure="find out what was lost; the slice stays planned",
            )
        if found.log_start > key.start:
            if landing.stream.on_expired == "fail":
                raise _expired(key, found.log_start)
            readable[key] = min(found.log_start, key.end)
    return readable


def _confirm(
    landing: Landing, held: Sequence[Publication], readable: Mapping[SliceKey, int], seen: Mapping[SliceKey, Seen]
) -> None:
    """After the last record: whatever was not delivered must be a hole, not something that expired meanwhile.

    Of the slices in `seen`: others were committed by another run, and nothing of them was to be delivered.
    """
    offsets = _observe(landing, held)
    if offsets is None:
        return
    for key, part in seen.items():
        delivered, start = part.read, readable[key]
        log_start = offsets[key.topic].partitions[key.partition].log_start
        if delivered < key.end - start and log_start > start:
            raise _expired(key, log_start)


def _observe(landing: Landing, held: Sequence[Publication]) -> Mapping[str, TopicOffsets] | None:
    if not isinstance(landing.records, Observed):
        return None
    offsets = landing.records.observe(sorted({one.key.topic for one in held}))
    for one in held:
        if one.topic_id != offsets[one.key.topic].topic_id:
            raise TopicChanged(
                f"slice {one.key} belongs to a topic that was deleted",
                why=f"topic {one.key.topic!r} was created again since, with another id",
                cure="nothing: the sensor records what was left unread as lost, and goes on with the new topic",
            )
    return offsets


def _expired(key: SliceKey, log_start: int) -> KafkaAssetsError:
    return OffsetsExpired(
        f"slice {key}: offsets {key.start} to {min(log_start, key.end)} expired before they were read",
        why=f"retention moved the log's start to {log_start}",
        cure="declare on_expired: record to write the range down and land the rest, and lengthen retention",
    )


def _refuse_lost(publications: Sequence[Publication]) -> None:
    for one in publications:
        if one.kind != "normal":
            raise SliceRefused(
                f"slice {one.key} is recorded as {one.kind}",
                why="its records are gone, or a policy jumped over them",
                cure="nothing can be landed from it",
            )


def _refuse_open(engine: Engine, publications: Sequence[Publication]) -> None:
    """Before anything is read; asked again under the publication's lock."""
    for one in publications:
        if one.is_open:
            with read(engine) as connection:
                raise windows.refused(connection, one.key, one.slice_id)
