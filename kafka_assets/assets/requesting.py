"""Asking Dagster for runs: what is due in the ledger, in batches, each under a token that is stored first."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import dagster as dg
from sqlalchemy import Engine

from kafka_assets.assets.batches import MAX_OFFSETS, RUN_OFFSETS, grows, in_batches, urgent
from kafka_assets.assets.dead_runs import end_dead, look_dead, now
from kafka_assets.assets.keys import add_keys, places
from kafka_assets.assets.names import STREAM_TAG
from kafka_assets.assets.run_tags import run_tags, token_of
from kafka_assets.ledger.requests import Due, asked_for, due, live_runs, new_token, store_request
from kafka_assets.ledger.stalls import Stall, begin_try
from kafka_assets.streams import Stream

DUE_PER_TICK = 400
KEYS_PER_TICK = 1000
"""So far back is looked which keys stand beside each other in Dagster, however many there are."""
_QUEUED = dg.DagsterRunStatus.QUEUED
WAITED_FOR = {_QUEUED: timedelta(hours=1), dg.DagsterRunStatus.STARTING: timedelta(minutes=10)}
"""How long a run may wait in Dagster before its slices are asked for again.

A queue may be long, and a pod slow to come; but a queue may also be nobody's any more, and a worker die unseen.
Nobody waits in another state: a run that was made and never started is that of a process that was killed in between.
"""
IN_FLIGHT = (*WAITED_FOR, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED)


FRESH_SECONDS = 5
"""So long it counts what Dagster has said of all streams' runs: as long as it would be between two ticks."""


def request_runs(
    engine: Engine,
    stream: Stream,
    *,
    in_dagster: InDagster,
    topics: Collection[str] = (),
    upstream: str | None = None,
    here: bool = False,
    stalled: Stall | None = None,
) -> list[dg.RunRequest]:
    """Requests for what is planned and has no live lease, with each token stored before its run is asked for.

    Only of these topics, which the broker has just told of: with a slice of another one a whole run would fail.
    Or of what `upstream` has committed, whose rows are read instead. `here`: who asks carries them out, and waits
    for no run that waits in Dagster: if that one comes after all, it finds nothing to do. `stalled`: what kept all of
    the asset from landing; one run tries whether it does still, and no other one goes beside it.

    While a run of the stream waits in Dagster's queue, few slices wait for others to land with them: more runs would
    make that queue longer, and each costs as much as all that they could land together.
    """
    if not topics and upstream is None:
        return []
    wanted = due(engine, asset=stream.asset, topics=topics, upstream=upstream, limit=DUE_PER_TICK)
    if not wanted:
        return []
    flight = _in_flight(engine, stream, in_dagster=in_dagster, here=here)
    free = stream.slices.runs - flight.runs
    wanted = [one for one in wanted if one.token is None or one.token not in flight.to_come]
    if free <= 0 or not wanted or (stalled is not None and (flight.runs or not begin_try(engine, stalled))):
        return []
    free = free if stalled is None else 1
    max_offsets = max(stream.slices.max_records, RUN_OFFSETS if here else MAX_OFFSETS)
    instance, first = in_dagster.instance, [str(one.key) for one in urgent(wanted, runs=free, max_offsets=max_offsets)]
    add_keys(instance, stream, first)
    known = places(instance, stream, first, most=KEYS_PER_TICK)
    requests: list[dg.RunRequest] = []
    asked = 0
    for batch in in_batches(wanted, known, max_offsets=max_offsets):
        size = sum(one.key.offsets for one in batch)
        # Runs that are carried out one after the other are asked for only as far as they come soon: another one may
        # ask for what has waited for a minute.
        if len(requests) == free or (here and asked and asked + size > max_offsets):
            break
        if flight.queued and stalled is None and grows(batch, max_offsets=max_offsets):
            continue
        asked += size
        token = new_token()
        if store_request(engine, batch, token=token):
            requests.append(_run_request(stream, batch, token=token))
    return requests


@dataclass
class InDagster:
    """The runs that Dagster has under way, of all of these streams: asked for at once, when the first is asked of."""

    instance: dg.DagsterInstance
    streams: Sequence[Stream]
    _found: Mapping[str, Sequence[dg.RunRecord]] | None = None
    _asked: float = 0.0

    def of(self, stream: Stream) -> Sequence[dg.RunRecord]:
        """The newest runs of a stream, ten times as many as may land it; by an answer that is not old yet.

        Where so many are under way that the answer was cut short, and where one of them looks dead, which it may only
        have done then, Dagster is asked of the stream alone.
        """
        if self._found is None or time.monotonic() - self._asked > FRESH_SECONDS:
            self._asked, self._found = time.monotonic(), self._all()
        mine = self._found.get(stream.name)
        if mine is None or look_dead(mine):
            return self._ask([stream])
        return mine[: _most(stream)]

    def _all(self) -> Mapping[str, Sequence[dg.RunRecord]]:
        """By the streams of which all was told."""
        records = self._ask(self.streams)
        if len(records) >= sum(map(_most, self.streams)):
            return {}
        found: dict[str, list[dg.RunRecord]] = {stream.name: [] for stream in self.streams}
        for record in records:
            found.setdefault(record.dagster_run.tags[STREAM_TAG], []).append(record)
        return found

    def _ask(self, streams: Sequence[Stream]) -> Sequence[dg.RunRecord]:
        return self.instance.get_run_records(
            dg.RunsFilter(tags={STREAM_TAG: [stream.name for stream in streams]}, statuses=list(IN_FLIGHT)),
            limit=sum(map(_most, streams)),
        )


def _most(stream: Stream) -> int:
    return 10 * stream.slices.runs


@dataclass(frozen=True)
class InFlight:
    """The runs of a stream that are under way."""

    runs: int
    to_come: set[str | None]
    """The tokens of those that still wait in Dagster."""
    queued: bool
    """Whether one of them waits in its queue."""


def _in_flight(engine: Engine, stream: Stream, *, in_dagster: InDagster, here: bool) -> InFlight:
    """The runs of the stream that there are.

    What Dagster says of a run is an echo: it believes in a dead one for a long time. A run counts while it holds
    a lease in the ledger; before, for as long as the request that made it is not made again; and after that only
    while it waits in Dagster, for so long as somebody may wait there.
    """
    records = in_dagster.of(stream)
    tokens = {record.dagster_run.run_id: token_of(record.dagster_run.tags) for record in records}
    holding = live_runs(engine, asset=stream.asset)
    dead = end_dead(in_dagster.instance, records, holding=holding)
    waiting = {record.dagster_run.run_id for record in records if not here and _may_come(record)}
    to_come, asked = waiting - dead, asked_for(engine, asset=stream.asset)
    landing = holding | {run_id for run_id, token in tokens.items() if token in asked}
    coming = [record.dagster_run for record in records if record.dagster_run.run_id in to_come]
    return InFlight(
        runs=len(to_come | landing),
        to_come={tokens[run_id] for run_id in to_come},
        queued=any(run.status is _QUEUED for run in coming),
    )


def _may_come(record: dg.RunRecord) -> bool:
    patience = WAITED_FOR.get(record.dagster_run.status)
    return patience is not None and record.update_timestamp > now() - patience


def _run_request(stream: Stream, batch: Sequence[Due], *, token: str) -> dg.RunRequest:
    keys = [one.key for one in batch]
    return dg.RunRequest(
        run_key=token,
        asset_selection=[dg.AssetKey(stream.name)],
        # The checks read the whole stream: they run by their own clock, not with every batch.
        asset_check_keys=[],
        tags={
            **run_tags(stream, keys, token=token),
            "kafka/topic": stream.topic or ",".join(sorted({key.topic for key in keys}))[:500],
        },
    )
