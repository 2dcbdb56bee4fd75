"""The ledger's part of a transaction whose rows are the caller's own: windows grow, and no table of ours is touched.

the caller's SQL · lock the windows that grow · planned_through by compare-and-set · grow or begin the windows
· counts · committed_through · COMMIT
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from kafka_assets.broker.read import StoredRecord
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.leases import Lease
from kafka_assets.ledger.owning import move
from kafka_assets.ledger.publications import NOTHING, Outcome, Publication
from kafka_assets.ledger.sources import share
from kafka_assets.ledger.windows import Author, Placed, Window, begin, close_windows, grow, lock_window, mark, tail
from kafka_assets.records import BadRecord
from kafka_assets.sinks.live import WindowPolicy
from kafka_assets.sinks.quarantine import insert_quarantine
from kafka_assets.slices import SliceKey


@dataclass(frozen=True)
class Part:
    """One partition's part of a unit: what was done of the offsets [start, end)."""

    lease: Lease
    start: int
    end: int
    records: Collection[StoredRecord]
    bad: Sequence[BadRecord] = ()
    """Those of the records that were quarantined."""

    @property
    def outcome(self) -> Outcome:
        """Each other record was handed over, and counts as landed; which rows it made is the caller's to know."""
        times = [record.timestamp_ms for record in self.records if record.timestamp_ms >= 0]
        return replace(
            NOTHING,
            records_read=len(self.records),
            landed=len(self.records) - len(self.bad),
            quarantined=len(self.bad),
            holes=self.end - self.start - len(self.records),
            bytes_read=sum(len(record.key or b"") + len(record.value or b"") for record in self.records),
            first_timestamp=min(times, default=None),
            last_timestamp=max(times, default=None),
        )


def keep(
    connection: Connection,
    parts: Collection[Part],
    *,
    by: Author,
    window: WindowPolicy,
    lease_ms: int,
    duration_ms: int,
) -> None:
    """Write that these offsets are done, as the last of the transaction; Fenced where they are another's."""
    ordered = sorted(parts, key=lambda part: part.lease.place)
    found: Mapping[Lease, Window | None] = {
        part.lease: tail(
            connection,
            asset=by.asset,
            source_id=part.lease.source.id,
            partition=part.lease.partition,
            position=part.start,
        )
        for part in ordered
    }
    over = {lease: one for lease, one in found.items() if one is not None and _is_over(one, window)}
    growing = {lease: one for lease, one in found.items() if one is not None and lease not in over}
    share(connection, {part.lease.source.id for part in ordered if part.lease not in growing})
    totals = {
        one.publication_id: lock_window(connection, one)
        for one in sorted([*over.values(), *growing.values()], key=lambda one: one.publication_id)
    }
    move(connection, {part.lease: (part.start, part.end) for part in ordered}, lease_ms=lease_ms)
    close_windows(connection, [(one.slice_id, one.publication_id) for one in over.values()])
    for part in ordered:
        before, took = NOTHING, duration_ms
        if part.lease in growing:
            placed = grow(connection, growing[part.lease], end=part.end)
            total = totals[placed.publication_id]
            before, took = total.outcome, total.duration_ms + duration_ms
        else:
            placed = begin(connection, part.lease.place, start=part.start, end=part.end, by=by)
        total = before + part.outcome
        mark(connection, placed.publication_id, end=part.end, by=by, total=total, duration_ms=took)
        publication = _publication(part, placed, asset=by.asset)
        insert_quarantine(connection, part.bad, {publication.key: publication})
    for part in ordered:
        advance(connection, asset=by.asset, source_id=part.lease.source.id, partition=part.lease.partition)


def _is_over(window: Window, policy: WindowPolicy) -> bool:
    return window.age_ms >= policy.seconds * 1000 or window.offsets >= policy.max_records


def _publication(part: Part, placed: Placed, *, asset: str) -> Publication:
    source = part.lease.source
    return Publication(
        id=placed.publication_id,
        asset=asset,
        slice_id=placed.slice_id,
        source_id=source.id,
        key=SliceKey(source.topic, source.incarnation, part.lease.partition, part.start, part.end),
        topic_id=source.topic_id,
        kind="normal",
        is_open=True,
        state="committed",
        committed_attempt=None,
        records_read=0,
    )
