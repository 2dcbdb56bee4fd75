"""Planning: from what the ledger knows and what the broker says to new slices. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Literal, TypeVar

from kafka_assets.errors import OffsetsExpired, Truncated

Where = TypeVar("Where", bound=Hashable)
Kind = Literal["normal", "lost", "skipped"]

SKIP_REASON = "skip_when_behind"
"""How the reason of a slice begins that this policy made: by it the ledger knows when that was last."""


@dataclass(frozen=True)
class Progress:
    """What the ledger knows of one partition of one source."""

    planned_through: int
    pending_ms: int | None
    """For how long offsets beyond `planned_through` have been seen waiting, on the database's clock."""
    owner: str | None = None
    """The live consumer that plans this partition now, and nobody else."""


@dataclass(frozen=True)
class Offsets:
    """What the broker says of one partition: its first offset, and its ends for committed and for all records."""

    log_start: int
    last_stable: int
    high_watermark: int


@dataclass(frozen=True)
class SkipPolicy:
    """Where fresh matters more than all: when a partition is too far behind, and what of it is read then."""

    records: int | None
    """More unread offsets than this are too many."""
    age: timedelta | None
    """An older unread record is too old."""
    keep: int
    """So many of the newest offsets are read all the same."""
    every: timedelta
    """At most once in so long."""


@dataclass(frozen=True)
class Backlog:
    """What of a partition is planned and not landed, and what else decides whether something is jumped over."""

    waiting: int = 0
    """So many offsets are planned, and neither landed nor given up."""
    oldest: int | None = None
    """The first of them."""
    young_from: int | None = None
    """The first offset whose record is not older than the policy's `age`; None where nobody asked."""
    skipped_ms: int | None = None
    """How long ago this policy jumped last, on the database's clock; None where that no longer matters."""


@dataclass(frozen=True)
class Policy:
    """How a stream wants its offsets cut, and what to do where retention was faster."""

    max_records: int
    max_delay: timedelta
    on_expired: Literal["fail", "record"]
    max_slices: int
    """At most so many new slices of one partition in one tick."""
    skip: SkipPolicy | None = None


@dataclass(frozen=True)
class NewSlice:
    start: int
    end: int
    kind: Kind = "normal"
    reason: str | None = None


def plan_partition(
    where: str, progress: Progress, offsets: Offsets, policy: Policy, backlog: Backlog | None = None
) -> list[NewSlice]:
    """The slices to insert after `planned_through`, in order and without a gap; none when nothing is due.

    Never a jump that nobody declared: offsets that retention took before they were planned are an error, or a
    slice of kind `lost`; what `policy.skip` leaves out is one of kind `skipped`, where the caller gives the backlog.
    An end below what was planned, under the same topic id, is an error always.
    """
    planned = expired(where, progress, offsets, on_expired=policy.on_expired)
    at = planned[-1].end if planned else progress.planned_through
    if (
        policy.skip is not None
        and backlog is not None
        and (jumped := jump(at, offsets.last_stable, backlog, policy.skip))
    ):
        planned.append(jumped)
        at = jumped.end
    available = offsets.last_stable - at
    waited = _of(progress.pending_ms) if progress.pending_ms is not None else timedelta(0)
    if available > 0 and (available >= policy.max_records or waited >= policy.max_delay):
        planned.extend(cut(at, offsets.last_stable, max_records=policy.max_records)[: policy.max_slices])
    return planned


def expired(
    where: str, progress: Progress, offsets: Offsets, *, on_expired: Literal["fail", "record"]
) -> list[NewSlice]:
    """What retention took before it was planned, as a slice of kind `lost`, where the policy records it; else none."""
    at = progress.planned_through
    if offsets.high_watermark < at:
        raise Truncated(
            f"{where} ends at offset {offsets.high_watermark}, but slices are planned through {at}",
            why="the topic lost records that were there before (an unclean leader election, or a restored broker)",
            cure="find out what was lost; docs/failures.md says how to go on",
        )
    if offsets.log_start <= at:
        return []
    if on_expired == "fail":
        raise OffsetsExpired(
            f"{where}: offsets {at} to {offsets.log_start} expired before they were planned",
            why=f"retention moved the log's start to {offsets.log_start}",
            cure="declare on_expired: record to write the range down as lost and go on, and lengthen retention",
        )
    return [NewSlice(at, offsets.log_start, "lost", "expired before it was planned")]


def jump(at: int, end: int, backlog: Backlog, policy: SkipPolicy) -> NewSlice | None:
    """The slice of kind `skipped` that leaves the newest offsets of [at, end) to be read, if it is time for one.

    `at` is the first offset that is not planned (a live consumer's next one), `end` the last stable offset. What
    is planned already counts as unread, and is never jumped over.
    """
    if end - at <= policy.keep or (backlog.skipped_ms is not None and _of(backlog.skipped_ms) < policy.every):
        return None
    unread = end - at + backlog.waiting
    oldest = at if backlog.oldest is None else min(at, backlog.oldest)
    if policy.records is not None and unread > policy.records:
        why = f"more than {policy.records}"
    elif policy.age is not None and backlog.young_from is not None and oldest < backlog.young_from:
        why = f"the oldest for longer than {policy.age.total_seconds():g} s"
    else:
        return None
    upto = end - policy.keep
    reason = f"{SKIP_REASON}: {upto - at} offsets jumped over, for {unread} were unread, {why}"
    return NewSlice(at, upto, "skipped", reason)


def _of(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def cut(start: int, end: int, *, max_records: int) -> list[NewSlice]:
    """Few and equal slices: a backlog of 1.2 times `max_records` makes two of 0.6, not a big and a tiny one."""
    count = -(-(end - start) // max_records)
    size, longer = divmod(end - start, count)
    bounds = [start + size * index + min(index, longer) for index in range(count + 1)]
    return [NewSlice(first, last) for first, last in pairwise(bounds)]


def in_turns(
    planned: Mapping[Where, list[NewSlice]], *, max_slices: int, max_records: int
) -> dict[Where, list[NewSlice]]:
    """What of the partitions' plans one tick takes: a slice of each in turn, until the slices or records are enough.

    So the longest backlog takes what the others leave. At least one slice is taken, however big. Each
    partition gets the beginning of its plan: nothing is jumped over.
    """
    taken: dict[Where, list[NewSlice]] = {}
    slices = records = 0
    for turn in range(max(map(len, planned.values()), default=0)):
        for where, plan in planned.items():
            if turn >= len(plan):
                continue
            new = plan[turn]
            size = new.end - new.start if new.kind == "normal" else 0
            if slices == max_slices or (slices and records + size > max_records):
                return taken
            taken.setdefault(where, []).append(new)
            slices += 1
            records += size
    return taken
