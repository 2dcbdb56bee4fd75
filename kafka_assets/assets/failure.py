"""A failed run as Dagster shows it: which slices, the how-manyeth attempt, when next, why, and what cures it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import dagster as dg
from sqlalchemy import Engine

from kafka_assets.assets.faults import Fault, divides, fault_of
from kafka_assets.assets.metadata import as_code
from kafka_assets.assets.names import DIVIDES
from kafka_assets.errors import KafkaAssetsError, Retryable, SliceFailed
from kafka_assets.ledger.stalls import stalls
from kafka_assets.ledger.waits import Tried, tried
from kafka_assets.records import BadRecord
from kafka_assets.slices import SliceKey, readable
from kafka_assets.streams import Stream


def failure_of(error: Exception, engine: Engine, stream: Stream, keys: Sequence[SliceKey]) -> dg.Failure:
    """What Dagster is told when landing these slices has failed. To be raised from the error."""
    said = str(error) if isinstance(error, KafkaAssetsError) else f"{type(error).__name__}: {error}"
    told: dict[str, Any] = {
        "slices": readable(keys),
        "offsets": sum(key.offsets for key in keys),
        DIVIDES: divides(error),
    }
    with suppress(KafkaAssetsError):  # a database that does not answer is what has failed, then
        told |= _standing(fault_of(error), engine, stream, keys)
    if isinstance(error, KafkaAssetsError):
        told |= {name: text for name, text in (("why", error.why), ("what_to_do", error.cure)) if text}
    if isinstance(error, SliceFailed) and error.bad:
        told["bad_records"] = dg.MetadataValue.md(_table(error.bad))
    told["commands"] = dg.MetadataValue.md(f"```sh\n{_commands(fault_of(error), stream, keys)}\n```")
    allow_retries = isinstance(error, Retryable) or not isinstance(error, KafkaAssetsError)
    return dg.Failure(said, metadata=told, allow_retries=allow_retries)


def _standing(fault: Fault, engine: Engine, stream: Stream, keys: Sequence[SliceKey]) -> Mapping[str, Any]:
    """What the ledger has of the attempt that has failed."""
    found = tried(engine, asset=stream.asset, keys=keys)
    if not found:
        return {}
    last = max(found, key=lambda one: one.attempt)
    told: dict[str, Any] = {"attempt": last.attempt}
    if fault is Fault.STREAM and (stalled := stalls(engine, assets=[stream.asset]).get(stream.asset)):
        return {**told, "counts": "no: it is no slice's fault, and none is given up for it", **_next(stalled.wait_ms)}
    again: Mapping[str, Any] = {}
    if any(one.given_up for one in found):
        again = {"tried_again": "not by itself, unless the stream's code changes"}
    elif any(one.waits for one in found):
        again = _next(max(one.wait_ms for one in found))
    return {**told, "counts": _counts(fault, found, stream), **again}


def _counts(fault: Fault, found: Sequence[Tried], stream: Stream) -> str:
    if fault is not Fault.SLICE:
        return "no: it passes by itself"
    if len(found) > 1:
        return "no: only failures of a slice alone do, and it is tried with fewer others next"
    return f"{found[0].failures_alone} of {stream.max_attempts} failures alone, with which a slice is given up"


def _next(wait_ms: int) -> Mapping[str, Any]:
    return {"tried_again": dg.MetadataValue.timestamp(time.time() + wait_ms / 1000)}


def _commands(fault: Fault, stream: Stream, keys: Sequence[SliceKey]) -> str:
    lines = [f"kafka-assets slices {stream.name} --state failed   # what was given up, and why"]
    if fault is Fault.STREAM:
        lines = [f"kafka-assets run {stream.name}   # once it is cured: at once, not within minutes"]
    if fault is Fault.SLICE:
        lines += [
            f"kafka-assets replay {stream.name} --failed   # once it is cured",
            f"kafka-assets skip {stream.name} {keys[0]} --reason '…'   # leaves it out for ever",
        ]
    if fault is Fault.PASSING:
        lines = ["kafka-assets doctor   # what does not answer"]
    return "\n".join(lines)


def _table(bad: Sequence[BadRecord]) -> str:
    rows = [
        (
            f"{one.partition}:{one.offset}",
            one.reason,
            "" if one.value is None else one.value[:200].decode(errors="replace"),
        )
        for one in bad
    ]
    return "\n".join(
        ["| place | reason | value |", "|---|---|---|", *(f"| {' | '.join(map(as_code, row))} |" for row in rows)]
    )
