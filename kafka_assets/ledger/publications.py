"""Publications: one asset's result for one slice, read, locked and committed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Engine, Row, Select, select, union_all, update

from kafka_assets.errors import KeysUnknown
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import read
from kafka_assets.slices import SliceKey

Item = TypeVar("Item")


@dataclass(frozen=True)
class Publication:
    """A publication with its slice, as one statement saw it."""

    id: int
    asset: str
    slice_id: int
    source_id: int
    key: SliceKey
    topic_id: str
    kind: str
    is_open: bool
    state: str
    committed_attempt: int | None
    records_read: int
    fingerprint: str | None = None
    run_id: str | None = None
    """The run that committed it."""

    def stays(self, *, replaces: bool, keeps: Collection[str]) -> bool:
        """Whether a run has nothing to do with it; `keeps` are runs whose results it leaves, though it replaces."""
        return self.state == "committed" and (not replaces or self.run_id in keeps)


@dataclass(frozen=True)
class Outcome:
    """What one slice came to, in the records that DESIGN.md's accounting names."""

    records_read: int
    landed: int
    filtered: int
    quarantined: int
    holes: int
    rows_written: int
    bytes_read: int
    superseded: int = 0
    tombstoned: int = 0
    expired_start: int | None = None
    expired_end: int | None = None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    fingerprint: str | None = None

    @property
    def expired(self) -> int:
        return (self.expired_end or 0) - (self.expired_start or 0)

    def __add__(self, more: Outcome) -> Outcome:
        """This and what follows it, of which nothing expired before it was read."""
        both = replace(self, **{name: getattr(self, name) + getattr(more, name) for name in _COUNTS})
        firsts = [at for at in (self.first_timestamp, more.first_timestamp) if at is not None]
        lasts = [at for at in (self.last_timestamp, more.last_timestamp) if at is not None]
        return replace(
            both,
            first_timestamp=min(firsts, default=None),
            last_timestamp=max(lasts, default=None),
            fingerprint=_both(self, more),
        )


_COUNTS = (
    *("records_read", "landed", "filtered", "quarantined", "holes", "rows_written", "bytes_read"),
    *("superseded", "tombstoned"),
)


def _both(one: Outcome, more: Outcome) -> str | None:
    """The fingerprint of all records of both: their hashes are combined by xor, in any parts."""
    if not one.records_read or not more.records_read:
        return more.fingerprint if not one.records_read else one.fingerprint
    if one.fingerprint is None or more.fingerprint is None:
        return None
    return f"{int(one.fingerprint, 16) ^ int(more.fingerprint, 16):016x}"


NOTHING = Outcome(records_read=0, landed=0, filtered=0, quarantined=0, holes=0, rows_written=0, bytes_read=0)


def find(engine: Engine, *, asset: str, keys: Sequence[SliceKey]) -> dict[SliceKey, Publication]:
    """The publications of these slices, in their order; each must be a slice that the ledger planned for this asset."""
    found: dict[SliceKey, Publication] = {}
    wanted = set(keys)
    with read(engine) as connection:
        for (source_id, partition), starts in _starts(connection, wanted).items():
            for some in batches(starts):
                rows = connection.execute(
                    _publications().where(
                        t.publication.c.asset == asset,
                        t.slice_.c.source_id == source_id,
                        t.slice_.c.partition == partition,
                        t.slice_.c.start_offset.in_(some),
                    )
                )
                mine = (publication for publication in map(_publication, rows) if publication.key in wanted)
                found.update((publication.key, publication) for publication in mine)
    unknown = [str(key) for key in keys if key not in found]
    if unknown:
        raise KeysUnknown(
            f"the ledger knows no slice {unknown[0]} for {asset!r}"
            + (f" (nor {len(unknown) - 1} more of this run)" if len(unknown) > 1 else ""),
            why="slices come from planning; a key in Dagster alone is no slice",
            cure="let the sensor plan, or check that this is the database that planned it (KAFKA_ASSETS_DATABASE_URL)",
        )
    return {key: found[key] for key in keys}


def _starts(connection: Connection, keys: Collection[SliceKey]) -> dict[tuple[int, int], list[int]]:
    """Where slices with these keys begin, by source and partition: an index finds them by those."""
    topics: dict[tuple[str, int], list[SliceKey]] = {}
    for key in keys:
        topics.setdefault((key.topic, key.incarnation), []).append(key)
    found: dict[tuple[int, int], list[int]] = {}
    src = t.source.c
    for (topic, incarnation), mine in sorted(topics.items()):
        for source_id in connection.scalars(
            select(src.id).where(src.topic == topic, src.incarnation == incarnation).order_by(src.id)
        ):
            for key in sorted(mine):
                found.setdefault((source_id, key.partition), []).append(key.start)
    return found


def lock(connection: Connection, ids: Iterable[int]) -> list[Publication]:
    """Lock publications in the order of their ids, and read them again as they are now."""
    ordered = sorted(ids)
    lock_rows(connection, ordered)
    found: list[Publication] = []
    for some in batches(ordered):
        wanted = _publications().where(t.publication.c.id.in_(some)).order_by(t.publication.c.id)
        found += [_publication(row) for row in connection.execute(wanted)]
    return found


def lock_rows(connection: Connection, ids: Iterable[int], *, nowait: bool = False) -> None:
    """Lock these publications alone, in order, each by a statement of its own.

    One statement for all may read the whole table, where that is small, and MySQL and MariaDB then wait
    for whatever lock somebody holds in it: publishers of other slices would stop each other.
    """
    for number in sorted(ids):
        row = select(t.publication.c.id).where(t.publication.c.id == number)
        connection.execute(row.with_for_update(nowait=nowait)).all()


def mark_committed(
    connection: Connection,
    publication: Publication,
    *,
    attempt: int,
    run_id: str,
    code_version: str,
    duration_ms: int,
    outcome: Outcome,
) -> None:
    """Write a slice's result; the caller holds its lock and has verified the attempt."""
    connection.execute(
        update(t.publication)
        .where(t.publication.c.id == publication.id)
        .values(
            state="committed",
            committed_attempt=attempt,
            run_id=run_id,
            code_version=code_version,
            committed_at=now_ts(),
            duration_ms=duration_ms,
            **counts_of(outcome),
        )
    )


def counts_of(outcome: Outcome) -> dict[str, Any]:
    """An outcome as the columns of its publication."""
    return {
        "records_read": outcome.records_read,
        "landed": outcome.landed,
        "superseded": outcome.superseded,
        "filtered": outcome.filtered,
        "quarantined": outcome.quarantined,
        "tombstoned": outcome.tombstoned,
        "holes": outcome.holes,
        "expired": outcome.expired,
        "expired_start": outcome.expired_start,
        "expired_end": outcome.expired_end,
        "rows_written": outcome.rows_written,
        "bytes_read": outcome.bytes_read,
        "first_timestamp": outcome.first_timestamp,
        "last_timestamp": outcome.last_timestamp,
        "fingerprint": outcome.fingerprint,
    }


def results(engine: Engine, ids: Iterable[int]) -> dict[int, Row[Any]]:
    """The publication rows as they stand committed, by id: what Dagster is told."""
    found: dict[int, Row[Any]] = {}
    with read(engine) as connection:
        for some in batches(sorted(ids)):
            rows = connection.execute(select(t.publication).where(t.publication.c.id.in_(some)))
            found.update((row.id, row) for row in rows)
    return found


def inserted(result: CursorResult[Any]) -> int:
    """The id of the row that was inserted."""
    key: Any = result.inserted_primary_key
    assert key is not None
    return int(key[0])


def _publications() -> Any:
    return (
        select(
            t.publication.c.id,
            t.publication.c.asset,
            t.publication.c.slice_id,
            t.publication.c.state,
            t.publication.c.committed_attempt,
            t.publication.c.records_read,
            t.publication.c.fingerprint,
            t.publication.c.run_id,
            t.slice_.c.source_id,
            t.slice_.c.partition,
            t.slice_.c.start_offset,
            t.slice_.c.end_offset,
            t.slice_.c.kind,
            t.slice_.c.is_open,
            t.source.c.topic,
            t.source.c.topic_id,
            t.source.c.incarnation,
        )
        .join_from(t.publication, t.slice_, t.publication.c.slice_id == t.slice_.c.id)
        .join(t.source, t.slice_.c.source_id == t.source.c.id)
    )


def _publication(row: Row[Any]) -> Publication:
    return Publication(
        id=row.id,
        asset=row.asset,
        slice_id=row.slice_id,
        source_id=row.source_id,
        key=SliceKey(row.topic, row.incarnation, row.partition, row.start_offset, row.end_offset),
        topic_id=row.topic_id,
        kind=row.kind,
        is_open=bool(row.is_open),
        state=row.state,
        committed_attempt=row.committed_attempt,
        records_read=row.records_read,
        fingerprint=row.fingerprint,
        run_id=row.run_id,
    )


def batches(some: Sequence[Item]) -> Iterable[Sequence[Item]]:
    """Bound values have a limit in every database; a hundred keys stay far below it."""
    return (some[at : at + 100] for at in range(0, len(some), 100))


def each(connection: Connection, selects: Sequence[Select[Any]]) -> list[Row[Any]]:
    """What all of these find: many by one statement, of which SQLite takes at most 500 SELECTs."""
    found: list[Row[Any]] = []
    for some in batches(selects):
        found += connection.execute(union_all(*(select(one.subquery()) for one in some))).all()
    return found
