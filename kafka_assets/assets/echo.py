"""Dagster's state is an echo of the ledger: what it has not heard is told again, and old keys are forgotten.

A tick looks at a bounded part of the ledger, whatever its history: what was planned since, what was waiting and
has been committed, and a piece of everything before, in a sweep that never ends. The sweep finds what was lost
without anybody noticing: an asset that was wiped, a replay whose run died before it told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import dagster as dg
from sqlalchemy import Engine

from kafka_assets.assets.cursor import Cursor
from kafka_assets.assets.keys import add_keys
from kafka_assets.assets.metadata import metadata_of
from kafka_assets.ledger import told as ledger
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.publications import results
from kafka_assets.ledger.told import Told
from kafka_assets.streams import Derived, Stream

TOLD_PER_TICK = 100
MET_PER_TICK = 500
SWEPT_PER_TICK = 100
"""A sweep through 100,000 keys takes an hour and a half at five seconds a tick."""
WAITING = 20_000
"""So many ids fit into a cursor; nothing more is met until there is room again."""
TELLS_ITSELF = timedelta(minutes=10)
"""A run tells of its slices right after COMMIT: one that has not by then never will, whatever Dagster believes."""


@dataclass
class Echo:
    """What Dagster is to be told, and where the next tick goes on."""

    events: list[dg.AssetMaterialization]
    cursor: Cursor


@dataclass(frozen=True)
class _Looked:
    """What one tick looks at."""

    now: datetime
    met: Sequence[Told]
    strangers: set[int]
    met_through: int
    swept: Sequence[Told]
    swept_through: int
    at_beginning: bool
    at_end: bool


def echo(engine: Engine, streams: Sequence[Stream], cursor: Cursor, *, instance: dg.DagsterInstance) -> Echo:
    """Materializations that Dagster has not heard of, in the order of their planning, and at most `TOLD_PER_TICK`.

    Keys that it lacks are added first, also of what was given up: by its key somebody tries it again. Those that
    `keep_keys` lets go are deleted. Killed anywhere, and
    evaluated again, it does the same once more: what Dagster has heard meanwhile is not told twice.
    """
    by_asset = {stream.asset: stream for stream in streams}
    looked = _look(engine, cursor, by_asset)
    young = {
        one.id: one
        for one in (*looked.met, *looked.swept)
        if one.attempt is not None and not one.lost and not _outlived(one, by_asset[one.asset], now=looked.now)
    }
    unheard = _unheard(instance, by_asset, young, swept={one.id for one in looked.swept})
    busy = _still_telling(instance, list(unheard.values()), now=looked.now)
    telling = [one for _, one in sorted(unheard.items()) if one.id not in busy]
    telling, left = telling[:TOLD_PER_TICK], {one.id for one in telling[TOLD_PER_TICK:]}
    forgotten = [one for one in looked.swept if _outlived(one, by_asset[one.asset], now=looked.now)]
    for asset, stream in by_asset.items():
        add_keys(instance, stream, [str(one.key) for one in telling if one.asset == asset])
        if not isinstance(stream, Derived):  # its keys are those of the stream whose slices it shares
            known = [one for one in looked.swept if one.id in young or one.given_up]
            add_keys(instance, stream, [str(one.key) for one in known if one.asset == asset])
    for one in (*looked.met, *looked.swept):
        if one.lost:  # nobody can land it: its key would stay red, and fail whoever materializes all that is missing
            _forget(instance, by_asset[one.asset], one)
    for one in forgotten:
        instance.delete_dynamic_partition(by_asset[one.asset].partitions_name, str(one.key))
    after = replace(cursor, met=looked.met_through, waiting=_waiting(cursor, looked, busy | left))
    _sweep(after, looked, left, by_asset, forgotten={one.id for one in forgotten})
    return Echo(events=_events(engine, by_asset, telling), cursor=after)


def _forget(instance: dg.DagsterInstance, stream: Stream, one: Told) -> None:
    if not isinstance(stream, Derived) and instance.has_dynamic_partition(stream.partitions_name, str(one.key)):
        instance.delete_dynamic_partition(stream.partitions_name, str(one.key))


def _look(engine: Engine, cursor: Cursor, by_asset: Mapping[str, Stream]) -> _Looked:
    with read(engine) as connection:
        now, head = ledger.moment(connection)
        at = min(cursor.met, head)  # another ledger than before, which has fewer
        through = min(at + MET_PER_TICK, head) if len(cursor.waiting) < WAITING else at
        done = sorted(cursor.waiting - ledger.unfinished(connection, assets=by_asset)) if cursor.waiting else []
        landed = [one for one in ledger.those(connection, done[:MET_PER_TICK]) if one.asset in by_asset]
        # Of a stream that was taken out of the project; if it comes back, the sweep finds them.
        strangers = {*done[:MET_PER_TICK]} - {one.id for one in landed}
        met = [*landed, *ledger.between(connection, at, through, assets=by_asset)]
        beginning = min((cursor.settled.get(asset, 0) for asset in by_asset), default=0)
        start = max(min(cursor.swept, head), beginning)
        end = min(start + SWEPT_PER_TICK, head)
        swept = [
            one
            for one in ledger.between(connection, start, end, assets=by_asset)
            if one.id > cursor.settled.get(one.asset, 0)
        ]
    return _Looked(
        now=now, met=met, strangers=strangers, met_through=through, swept=swept, swept_through=end,
        at_beginning=start == beginning, at_end=end == head,
    )  # fmt: skip


def _outlived(one: Told, stream: Stream, *, now: datetime) -> bool:
    return stream.keep_keys is not None and one.committed_at is not None and one.committed_at < now - stream.keep_keys


def _unheard(
    instance: dg.DagsterInstance, by_asset: Mapping[str, Stream], some: Mapping[int, Told], *, swept: set[int]
) -> dict[int, Told]:
    """Which of these slices Dagster has not heard of; of those swept, also which it knows by an older attempt."""
    unheard: dict[int, Told] = {}
    for asset, stream in by_asset.items():
        mine = {str(one.key): one for one in some.values() if one.asset == asset}
        if not mine:
            continue
        heard = instance.get_latest_storage_id_by_partition(
            dg.AssetKey(stream.name), dg.DagsterEventType.ASSET_MATERIALIZATION, set(mine)
        )
        unheard.update((one.id, one) for key, one in mine.items() if key not in heard)
        again = {heard[key]: one for key, one in mine.items() if key in heard and one.id in swept and one.attempt != 1}
        unheard.update((one.id, one) for one in _outdated(instance, stream, again))
    return unheard


def _outdated(instance: dg.DagsterInstance, stream: Stream, heard: Mapping[int, Told]) -> list[Told]:
    """Replays that Dagster did not hear of: the last that it was told is an attempt before."""
    if not heard:
        return []
    filtered = dg.AssetRecordsFilter(asset_key=dg.AssetKey(stream.name), storage_ids=sorted(heard))
    found: list[Told] = []
    for record in instance.fetch_materializations(filtered, limit=len(heard)).records:
        said = record.asset_materialization
        attempt = said.metadata.get("attempt") if said else None
        one = heard[record.storage_id]
        if isinstance(attempt, dg.IntMetadataValue) and (attempt.value or 0) < (one.attempt or 0):
            found.append(one)
    return found


def _still_telling(instance: dg.DagsterInstance, some: Sequence[Told], *, now: datetime) -> set[int]:
    """Which of these a run that goes on will tell of itself."""
    recent = [one for one in some if one.run_id and one.committed_at and one.committed_at > now - TELLS_ITSELF]
    if not recent:
        return set()
    records = instance.get_run_records(dg.RunsFilter(run_ids=sorted({one.run_id for one in recent if one.run_id})))
    going_on = {record.dagster_run.run_id for record in records if not record.dagster_run.is_finished}
    return {one.id for one in recent if one.run_id in going_on}


def _waiting(cursor: Cursor, looked: _Looked, still: set[int]) -> set[int]:
    met = {one.id for one in looked.met}
    planned = {one.id for one in looked.met if one.attempt is None and one.id > cursor.met}
    lost = {one.id for one in (*looked.met, *looked.swept) if one.lost}
    return ((cursor.waiting - met) | planned | (met & still)) - lost - looked.strangers


def _sweep(
    cursor: Cursor, looked: _Looked, left: set[int], by_asset: Mapping[str, Stream], *, forgotten: set[int]
) -> None:
    """Move the sweep on, as far as there was room to tell; and per asset what no later one need look at."""
    through = min((one.id - 1 for one in looked.swept if one.id in left), default=looked.swept_through)
    settled, unsettled = dict(cursor.settled), set(cursor.unsettled)
    if looked.at_beginning:
        settled, unsettled = {asset: settled.get(asset, 0) for asset in by_asset}, set[str]()
    unsettled |= by_asset.keys() - settled.keys()  # declared in the middle of a sweep
    for one in looked.swept:
        if one.id <= through and one.asset not in unsettled:
            if one.lost or one.gone or one.id in forgotten:
                settled[one.asset] = one.id
            else:
                unsettled.add(one.asset)
    cursor.settled, cursor.unsettled = settled, unsettled
    cursor.swept = 0 if looked.at_end and through == looked.swept_through else through


def _events(engine: Engine, by_asset: Mapping[str, Stream], telling: Sequence[Told]) -> list[dg.AssetMaterialization]:
    rows = results(engine, [one.id for one in telling]) if telling else {}
    return [
        dg.AssetMaterialization(
            asset_key=dg.AssetKey(by_asset[one.asset].name),
            partition=str(one.key),
            description="told again from the ledger",
            metadata=metadata_of(rows[one.id], by_asset[one.asset]),
        )
        for one in telling
    ]
