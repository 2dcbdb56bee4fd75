"""The live transaction: what a consumer has read since its last commit, and the fact that it is done, together.

    rows · lock the windows that grow · planned_through by compare-and-set · grow or begin the windows
    · (upsert: rows, merge) · quarantine, counts · committed_through · COMMIT · outcome known

Killed anywhere before COMMIT, nothing of the batch is visible. After it, everything is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, Engine

from kafka_assets.errors import KeysUnknown, RowsRefused, StreamError
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.leases import LEASE_MS, Lease
from kafka_assets.ledger.owning import Moves, move, owning, require_standing
from kafka_assets.ledger.publications import Outcome, Publication
from kafka_assets.ledger.retries import retried
from kafka_assets.ledger.sources import share
from kafka_assets.ledger.windows import (
    Author,
    Total,
    Window,
    begin,
    close_over,
    close_windows,
    grow,
    lock_window,
    mark,
    tail,
)
from kafka_assets.records import BadRecord, Chunk, Fetch, Refused, Seen
from kafka_assets.sinks.accounting import BadPolicy, Landed, judge, outcome_of
from kafka_assets.sinks.modes import Mode, mode_of, place_in, settled
from kafka_assets.sinks.quarantine import insert_quarantine
from kafka_assets.sinks.refusals import not_again, refusals, said_at_commit
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.rounds import Refusing, in_rounds
from kafka_assets.sinks.sieve import sifted
from kafka_assets.slices import SliceKey


@dataclass(frozen=True)
class WindowPolicy:
    """When a window is over: its slice then gets its Dagster key, and the next commit begins another."""

    seconds: float = 60
    max_records: int = 500_000


@dataclass(frozen=True)
class Batch:
    """What was read since the last commit, decoded; nothing of it changes when the transaction is retried.

    The chunks' keys are the batch's own slices, one for each partition: from the position before its first record
    to the position after its last. What lies between and was not delivered is counted as holes.
    """

    chunks: Sequence[Chunk]
    fetch: Fetch = not_again
    """Gives the bytes of records that the table refuses: they are quarantined."""
    confirm: Callable[[], None] = lambda: None
    """Asks Kafka, after the last record was read, whether what was not delivered is a hole; raises where it expired,
    or where the topic is another one by now."""


@dataclass(frozen=True)
class Committed:
    """What one partition's part of a batch came to."""

    key: SliceKey
    outcome: Outcome


Bad = tuple[Sequence[SliceKey], Sequence[BadRecord]]


@dataclass
class _Part:
    """One partition's part of a batch, in one transaction."""

    lease: Lease
    key: SliceKey
    seen: Seen
    window: Window | None
    """The window that it grows."""
    over: Window | None
    """The window that it closes: it begins another."""
    publication: Publication
    before: Total = field(default_factory=Total)
    """What the window has had so far."""


class LiveTable:
    """A target table, as one live consumer lands in it. Of one thread."""

    def __init__(
        self,
        engine: Engine,
        table: Table,
        *,
        by: Author,
        bad_policy: BadPolicy,
        window: WindowPolicy | None = None,
        lease_ms: int = LEASE_MS,
    ) -> None:
        if table.ordinal:
            raise StreamError(
                f"the table {table.name!r} cannot be landed in by a live consumer",
                why="its rows are those of whole slices, and a live window is never whole while it grows",
                cure="land it through the sensor, or declare scope: record",
            )
        self._engine, self._table, self._by, self._policy = engine, table, by, bad_policy
        self._road = road_for(engine)
        self._window = window or WindowPolicy()
        self._lease_ms = lease_ms

    def publish(self, leases: Iterable[Lease], batch: Batch) -> list[Committed]:
        """Commit a batch, all of it or nothing, and extend the leases of its partitions.

        Fenced: a partition is another's by now, or stands elsewhere than the batch begins; its cure says how to go on.
        """
        moves = _moves(leases, batch.chunks)
        chunks = [sifted(chunk, self._road, batch.fetch) for chunk in batch.chunks]
        batch.confirm()

        def attempt(kept: Callable[[Chunk], Chunk]) -> list[Committed]:
            rest = replace(batch, chunks=[kept(chunk) for chunk in chunks])
            return retried(lambda: self._transaction(moves, rest))

        return in_rounds(attempt, table=self._table, fetch=batch.fetch)

    def close_over(self, leases: Iterable[Lease]) -> list[SliceKey]:
        """Close the windows of these partitions that are over, for when no batch comes that would; their keys."""
        return close_over(self._engine, [lease.place for lease in leases], seconds=self._window.seconds)

    def _transaction(self, moves: Moves, batch: Batch) -> list[Committed]:
        started = time.monotonic()
        with said_at_commit(self._table) as ended, owning(self._engine, moves) as connection:
            require_standing(connection, moves)
            parts = self._parts(connection, moves, batch.chunks)
            mode = mode_of(connection, self._road, self._table)
            with refusals(self._table, parts):
                self._road.undefer(connection, self._table)
            if self._table.upsert is None:
                bad = self._insert(connection, mode, parts, moves, batch)
                self._place(connection, parts, moves)
            else:
                # The merge marks its rows with their publications, and takes the asset's lock: after all others.
                self._place(connection, parts, moves)
                bad = self._insert(connection, mode, parts, moves, batch)
            done = self._settle(connection, mode, parts, started=started)
            for keys, records in bad:
                insert_quarantine(connection, records, {key: parts[key].publication for key in keys})
            for part in sorted(parts.values(), key=lambda one: one.lease.place):
                place = part.lease.place
                advance(connection, asset=self._by.asset, source_id=place[0], partition=place[1])
            ended.append(True)
        return done

    def _parts(self, connection: Connection, moves: Moves, chunks: Sequence[Chunk]) -> dict[SliceKey, _Part]:
        parts: dict[SliceKey, _Part] = {}
        for lease, (start, end) in moves.items():
            key = SliceKey(lease.source.topic, lease.source.incarnation, lease.partition, start, end)
            found = tail(
                connection, asset=self._by.asset, source_id=lease.source.id, partition=lease.partition, position=start
            )
            over = found is not None and (
                found.age_ms >= self._window.seconds * 1000 or found.offsets >= self._window.max_records
            )
            parts[key] = _Part(
                lease=lease,
                key=key,
                seen=sum((chunk.seen.get(key, Seen()) for chunk in chunks), Seen()),
                window=None if over else found,
                over=found if over else None,
                publication=_provisional(lease, key, asset=self._by.asset),
                before=Total() if over or found is None else found.total,
            )
        return parts

    def _insert(
        self, connection: Connection, mode: Mode, parts: Mapping[SliceKey, _Part], moves: Moves, batch: Batch
    ) -> list[Bad]:
        """The rows; and the bad records of each chunk, those that the table refuses among them."""
        bad: list[Bad] = []
        for chunk in batch.chunks:
            mine = {key: parts[key].publication for key in chunk.seen}
            with refusals(self._table, mine), _not_anothers(connection, moves):
                refused = list(self._judged(mode.insert(chunk, mine), parts))
                if refused:
                    require_standing(connection, moves)
            bad.append((tuple(mine), (*chunk.bad, *(batch.fetch(refused) if refused else ()))))
        return bad

    def _place(self, connection: Connection, parts: Mapping[SliceKey, _Part], moves: Moves) -> None:
        """From here on others wait: the source's planners, replays of the windows, planners of these partitions."""
        share(connection, {part.lease.source.id for part in parts.values() if part.window is None})
        held = [(one, part) for part in parts.values() if (one := part.window or part.over) is not None]
        for window, part in sorted(held, key=lambda one: one[0].publication_id):
            total = lock_window(connection, window)
            if part.window is not None:
                part.before = total
        move(connection, moves, lease_ms=self._lease_ms)
        over = [part.over for part in parts.values() if part.over is not None]
        close_windows(connection, [(one.slice_id, one.publication_id) for one in over])
        for part in parts.values():
            if part.window is not None:
                placed = grow(connection, part.window, end=part.key.end)
            else:
                placed = begin(connection, part.lease.place, start=part.key.start, end=part.key.end, by=self._by)
            part.publication = replace(part.publication, id=placed.publication_id, slice_id=placed.slice_id)

    def _settle(
        self, connection: Connection, mode: Mode, parts: Mapping[SliceKey, _Part], *, started: float
    ) -> list[Committed]:
        """What became of the records; then the windows' counts."""
        slices = {key: part.publication for key, part in parts.items()}
        for part in parts.values():
            judge(part.key, part.before.seen + part.seen, self._policy)
        landed: dict[SliceKey, Landed] = {}

        def settle() -> Generator[Refused]:
            landed.update((yield from settled(connection, self._road, self._table, mode, slices)))

        with refusals(self._table, slices):
            if refused := list(self._judged(settle(), parts)):
                raise Refusing(refused)
        took = int((time.monotonic() - started) * 1000)
        done = [
            Committed(key, outcome_of(key, part.seen, landed=landed[key], expired_to=None))
            for key, part in parts.items()
        ]
        for one in done:
            part = parts[one.key]
            mark(
                connection,
                part.publication.id,
                end=one.key.end,
                by=self._by,
                total=part.before.outcome + one.outcome,
                duration_ms=part.before.duration_ms + took,
            )
        return done

    def _judged(self, refused: Iterable[Refused], parts: Mapping[SliceKey, _Part]) -> Generator[Refused]:
        """Count refused records as bad; no more are looked for where the window fails by so many for certain."""
        for one in refused:
            part = parts[place_in(parts, one)]
            part.seen += Seen(bad=1)
            # More records than it has offsets a batch cannot have.
            so_far = part.before.seen + replace(part.seen, read=part.key.offsets)
            judge(part.key, so_far, self._policy, example=one.reason)
            yield replace(one, topic=part.key.topic)


@contextmanager
def _not_anothers(connection: Connection, moves: Moves) -> Generator[None]:
    """Rows that stand in the table already are another owner's, where this one stands elsewhere by now."""
    try:
        yield
    except RowsRefused:
        require_standing(connection, moves)
        raise


def _moves(leases: Iterable[Lease], chunks: Iterable[Chunk]) -> Moves:
    """By partition from where to where the batch goes."""
    mine = {(lease.source.topic, lease.source.incarnation, lease.partition): lease for lease in leases}
    moves: dict[Lease, tuple[int, int]] = {}
    for key in {key for chunk in chunks for key in chunk.seen}:
        lease = mine.get((key.topic, key.incarnation, key.partition))
        if lease is None or moves.setdefault(lease, (key.start, key.end)) != (key.start, key.end):
            raise KeysUnknown(
                f"a batch of {key} cannot be committed",
                why="no lease of its partition was given" if lease is None else "it has two parts of one partition",
                cure="give the lease of each partition, and one range of each",
            )
    return moves


def _provisional(lease: Lease, key: SliceKey, *, asset: str) -> Publication:
    """What rows are inserted for before their window is locked; its ids are known then."""
    return Publication(
        id=0,
        asset=asset,
        slice_id=0,
        source_id=lease.source.id,
        key=key,
        topic_id=lease.source.topic_id,
        kind="normal",
        is_open=True,
        state="planned",
        committed_attempt=None,
        records_read=0,
    )
