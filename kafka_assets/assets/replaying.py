"""Replay: slices land again, in runs here; each run replaces what its slices had, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import dagster as dg

from kafka_assets.assets.batches import MAX_OFFSETS, in_batches
from kafka_assets.assets.keys import add_keys, places
from kafka_assets.assets.names import FORCE_TAG
from kafka_assets.assets.run_tags import run_tags
from kafka_assets.assets.runner import Failed, Runner
from kafka_assets.errors import SparkUnavailable
from kafka_assets.ledger.requests import Due
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream


@dataclass
class Replayed:
    """What came of it."""

    landed: list[SliceKey] = field(default_factory=list[SliceKey])
    failed: dict[SliceKey, str] = field(default_factory=dict[SliceKey, str])
    """Why; the slice has what it had before."""
    ended: str | None = None
    """What ended it before all were tried, and is no slice's fault."""
    untried: list[SliceKey] = field(default_factory=list[SliceKey])
    """Those that were left then; they have what they had, too."""


def replay(runner: Runner, stream: Stream, keys: Sequence[SliceKey], *, force: bool = False) -> Replayed:
    """Land these slices again, in batches; a batch that fails is halved, until single slices are named.

    A run of them carries no request token, so it replaces what is committed. With `force`, also by fewer
    records than were committed, and while another run holds a lease. Where a run fails by what is no slice's fault,
    as when Spark or the database is away, all that is left is not tried: it would fail by the same.
    """
    done = Replayed()
    named = [str(key) for key in keys]
    add_keys(runner.instance, stream, named)
    wanted = [Due(number, key, attempt=0, token=None) for number, key in enumerate(keys)]
    for batch in in_batches(wanted, places(runner.instance, stream, named), max_offsets=MAX_OFFSETS):
        _land(runner, stream, [one.key for one in batch], done, force=force)
    return done


def _land(runner: Runner, stream: Stream, keys: Sequence[SliceKey], done: Replayed, *, force: bool) -> None:
    if done.ended is not None:
        done.untried += keys
        return
    try:
        failure = runner.run(_request(stream, keys, force=force))
    except SparkUnavailable as error:  # it is gone since the run before
        if not (done.landed or done.failed):
            raise
        failure = Failed([str(error)], divides=False)
    if failure is None:
        done.landed += keys
    elif not failure.divides:
        done.ended = failure.said
        done.failed |= dict.fromkeys(keys, failure.said)
    elif len(keys) == 1:
        done.failed[keys[0]] = failure.said
    else:
        half = len(keys) // 2
        _land(runner, stream, keys[:half], done, force=force)
        _land(runner, stream, keys[half:], done, force=force)


def _request(stream: Stream, keys: Sequence[SliceKey], *, force: bool) -> dg.RunRequest:
    tags = run_tags(stream, keys)
    return dg.RunRequest(
        asset_selection=[dg.AssetKey(stream.name)], tags={**tags, FORCE_TAG: "true"} if force else tags
    )
