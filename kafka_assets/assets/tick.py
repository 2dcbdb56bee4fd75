"""One sensor tick: observe, plan, add keys, request runs, tell what Dagster missed.

Every step may be killed, repeated, or overlap another tick: the ledger decides by compare-and-set,
and Dagster's storage is brought up to it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg
from sqlalchemy import Engine

from kafka_assets.assets.batches import in_batches
from kafka_assets.assets.echo import missed_materializations
from kafka_assets.assets.names import DIGEST_TAG, STREAM_TAG, TOKEN_TAG
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import TopicOffsets, observe, offsets_at
from kafka_assets.errors import KafkaAssetsError, Retryable, StreamError
from kafka_assets.ledger import planning
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.janitor import end_expired
from kafka_assets.ledger.requests import Due, due, given_up, live_runs, new_token, store_request
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.plan import NewSlice, Offsets, Policy, plan_partition
from kafka_assets.slices import digest
from kafka_assets.streams import Derived, Stream

RUNS_IN_FLIGHT = 4
SLICES_PER_TICK = 20
"""New slices of one partition in one tick: a long backlog is planned over several."""
DUE_PER_TICK = 400
# Not STARTED: Dagster believes in a dead worker for a long time, and the ledger's leases know better.
WAITING = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING]


@dataclass
class Tick:
    """What a tick came to: runs to request, materializations to tell, and what went wrong with one stream."""

    requests: list[dg.RunRequest] = field(default_factory=list[dg.RunRequest])
    events: list[dg.AssetMaterialization] = field(default_factory=list[dg.AssetMaterialization])
    troubles: list[str] = field(default_factory=list[str])
    planned: int = 0


def tick(
    streams: Sequence[Stream],
    *,
    engine: Engine,
    connection: Connection,
    instance: dg.DagsterInstance,
    log: logging.Logger,
) -> Tick:
    """Bring ledger and Dagster up to the broker. One stream's trouble never stops the others."""
    ensure_schema(engine)
    result = Tick(troubles=end_expired(engine, log=log))
    for trouble in result.troubles:
        log.warning(trouble)
    seen = observe(connection, sorted({stream.topic for stream in streams if stream.reads is None}))
    # What is planned of a topic is there for the assets that share its slices in the same tick.
    for stream in sorted(streams, key=lambda one: isinstance(one, Derived)):
        try:
            if isinstance(stream, Derived):
                result.planned += add_publications(engine, asset=stream.asset, stream=stream.root)
            elif isinstance(found := seen[stream.topic], KafkaAssetsError):
                raise found
            else:
                result.planned += plan_stream(
                    engine, stream, found, connection=connection, log=log, troubles=result.troubles
                )
        except KafkaAssetsError as error:
            result.troubles.append(f"{stream.name}: {error}")
            log.warning(result.troubles[-1])
        # What was planned before is landed also while its broker is in trouble with something else.
        result.requests += request_runs(engine, stream, instance=instance)
        if failed := given_up(engine, asset=stream.asset):
            result.troubles.append(
                f"{stream.name}: {failed} slices failed too often and are not tried again"
                " · their failed runs say why · correct it, and materialize their keys"
            )
        result.events += missed_materializations(engine, stream, instance=instance)
    return result


def plan_stream(
    engine: Engine,
    stream: Stream,
    found: TopicOffsets,
    *,
    connection: Connection,
    log: logging.Logger,
    troubles: list[str],
) -> int:
    """Plan new slices of one stream, each partition in its own transaction; how many there are."""
    source = planning.resolve_source(engine, stream=stream.name, topic=found.topic, topic_id=found.topic_id)
    offsets = {
        number: Offsets(part.log_start, part.last_stable, part.high_watermark)
        for number, part in found.partitions.items()
    }
    fresh = planning.unknown_partitions(engine, source, offsets)
    origins = _origins(stream, source, fresh, offsets=offsets, connection=connection) if fresh else {}
    progress = planning.observe(engine, source, offsets=offsets, origins=origins, asset=stream.asset)
    policy = Policy(
        max_records=stream.slices.max_records,
        max_delay=stream.slices.max_delay,
        on_expired=stream.on_expired,
        max_slices=SLICES_PER_TICK,
    )
    count = 0
    for partition in sorted(offsets):
        if partition not in progress:
            continue
        try:
            count += _plan_partition(
                engine, stream, source, partition, progress=progress, offsets=offsets, policy=policy
            )
        except KafkaAssetsError as error:
            troubles.append(f"{stream.name}: {error}")
            log.warning(troubles[-1])
    return count


def _plan_partition(
    engine: Engine,
    stream: Stream,
    source: planning.Source,
    partition: int,
    *,
    progress: Mapping[int, planning.Progress],
    offsets: Mapping[int, Offsets],
    policy: Policy,
) -> int:
    where = f"{source.topic}:{partition}"
    new: list[NewSlice] = plan_partition(where, progress[partition], offsets[partition], policy)
    if not new:
        return 0
    expected = progress[partition].planned_through
    planned = planning.commit_plan(engine, source, partition, expected=expected, slices=new, asset=stream.asset)
    return len(planned or ())


def _origins(
    stream: Stream,
    source: planning.Source,
    fresh: planning.Fresh,
    *,
    offsets: Mapping[int, Offsets],
    connection: Connection,
) -> dict[int, int]:
    """Where new partitions begin: `start` counts only where the ledger knows nothing of the stream yet.

    A partition that was added later, and a topic that was created again, begin at 0: whatever their
    first offset is by then, what lies below it expired and is an error or recorded, never a jump.
    """
    if not fresh.whole_stream:
        return dict.fromkeys(fresh.partitions, 0)
    if stream.start == "none":
        raise StreamError(
            f"the ledger knows nothing of stream {stream.name!r}, which declares start: none",
            why="none means: go on from what the ledger knows, and never guess",
            cure="declare start: earliest, latest or a timestamp",
        )
    if stream.start == "earliest":
        return {number: offsets[number].log_start for number in fresh.partitions}
    if stream.start == "latest":
        return {number: offsets[number].last_stable for number in fresh.partitions}
    found = offsets_at(connection, source.topic, int(stream.start.timestamp() * 1000))
    return {number: min(found[number], offsets[number].last_stable) for number in fresh.partitions}


def request_runs(engine: Engine, stream: Stream, *, instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    """Requests for what is planned and has no live lease, with each token stored before its run is asked for."""
    running = instance.get_run_records(
        dg.RunsFilter(tags={STREAM_TAG: stream.name}, statuses=WAITING), limit=10 * RUNS_IN_FLIGHT
    )
    free = RUNS_IN_FLIGHT - len(running) - len(live_runs(engine, asset=stream.asset))
    if free <= 0:
        return []
    waiting = {record.dagster_run.tags.get(TOKEN_TAG) for record in running}
    wanted = [
        one
        for one in due(engine, asset=stream.asset, limit=DUE_PER_TICK, upstream=stream.reads)
        if one.token not in waiting or one.token is None
    ]
    known = _with_keys(instance, stream, wanted)
    requests: list[dg.RunRequest] = []
    for batch in in_batches(wanted, known, max_offsets=max(stream.slices.max_records, 1_000_000)):
        if len(requests) == free:
            break
        token = new_token()
        if store_request(engine, batch, token=token):
            requests.append(_run_request(stream, batch, token=token))
    return requests


def _with_keys(instance: dg.DagsterInstance, stream: Stream, wanted: Sequence[Due]) -> dict[str, int]:
    """Dagster's keys and their places; those of wanted slices that it lacks are added first, in order."""
    known = instance.get_dynamic_partitions(stream.partitions_name)
    there = set(known)
    missing = [str(one.key) for one in wanted if str(one.key) not in there]
    for at in range(0, len(missing), 1000):  # PostgreSQL takes at most 65,535 bound values in one statement
        instance.add_dynamic_partitions(stream.partitions_name, missing[at : at + 1000])
    if missing:
        known = instance.get_dynamic_partitions(stream.partitions_name)
    return {key: place for place, key in enumerate(known)}


def _run_request(stream: Stream, batch: Sequence[Due], *, token: str) -> dg.RunRequest:
    keys = [str(one.key) for one in batch]
    return dg.RunRequest(
        run_key=token,
        asset_selection=[dg.AssetKey(stream.name)],
        # The checks read the whole stream: they run by their own clock, not with every batch.
        asset_check_keys=[],
        tags={
            "dagster/asset_partition_range_start": keys[0],
            "dagster/asset_partition_range_end": keys[-1],
            TOKEN_TAG: token,
            DIGEST_TAG: digest(keys),
            STREAM_TAG: stream.name,
            "kafka/topic": stream.topic,
        },
    )


def sensor_result(found: Tick) -> dg.SensorResult | dg.SkipReason:
    """What Dagster is given; a tick with nothing to do says why."""
    if found.requests or found.events:
        return dg.SensorResult(run_requests=found.requests, asset_events=found.events)
    if found.troubles:
        return dg.SkipReason(" | ".join(found.troubles))
    return dg.SkipReason("everything that is in the topics is planned, and being landed or landed")


def trouble_reason(error: KafkaAssetsError) -> str:
    return f"{error}" + (" · trying again at the next tick" if isinstance(error, Retryable) else "")
