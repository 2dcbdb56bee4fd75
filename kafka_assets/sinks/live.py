"""The live transaction: what a consumer has read since its last commit, and the fact that it is done, together.

    rows · lock the windows that grow · planned_through by compare-and-set · grow or begin the windows
    · (upsert: rows, merge) · quarantine, counts · committed_through · COMMIT · outcome known

Killed anywhere before COMMIT, nothing of the batch is visible. After it, everything is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import Connection, Engine

from kafka_assets.errors import RowsRefused, StreamError
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.leases import LEASE_MS, Lease
from kafka_assets.ledger.owning import LiveConnection, Moves, move, require_standing
from kafka_assets.ledger.retries import retried
from kafka_assets.ledger.sources import share
from kafka_assets.ledger.windows import (
    Author,
    begin,
    close_over,
    close_windows,
    grow,
    lock_window,
    mark,
)
from kafka_assets.records import BadRecord, Chunk, Refused, Seen
from kafka_assets.sinks.accounting import BadPolicy, Examples, Landed, judge, outcome_of
from kafka_assets.sinks.batch import Batch, Committed, Part, WindowPolicy, moves_of, parts_of
from kafka_assets.sinks.modes import Mode, mode_of, place_in, settled
from kafka_assets.sinks.quarantine import insert_quarantine
from kafka_assets.sinks.refusals import refusals, said_at_commit
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.rounds import Refusing, in_rounds, of_topic
from kafka_assets.sinks.sieve import sifted
from kafka_assets.slices import SliceKey

_Bad = tuple[Sequence[SliceKey], Sequence[BadRecord]]
"""A chunk's slices, and its bad records."""


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
        self._connection = LiveConnection(engine)

    def publish(self, leases: Iterable[Lease], batch: Batch) -> list[Committed]:
        """Commit a batch, all of it or nothing, and extend the leases of its partitions.

        Fenced: a partition is another's by now, or stands elsewhere than the batch begins; its cure says how to go on.
        """
        moves = moves_of(leases, batch.chunks)
        chunks = [sifted(chunk, self._road, batch.fetch) for chunk in batch.chunks]
        batch.confirm()

        def attempt(kept: Callable[[Chunk], Chunk]) -> list[Committed]:
            rest = replace(batch, chunks=[kept(chunk) for chunk in chunks])
            return retried(lambda: self._transaction(moves, rest))

        return in_rounds(attempt, table=self._table, fetch=batch.fetch)

    def close_over(self, leases: Iterable[Lease]) -> list[SliceKey]:
        """Close the windows of these partitions that are over, for when no batch comes that would; their keys."""
        return close_over(self._engine, [lease.place for lease in leases], seconds=self._window.seconds)

    def close(self) -> None:
        """Drop its connection; what it was of can go on with another one."""
        self._connection.close()

    def _transaction(self, moves: Moves, batch: Batch) -> list[Committed]:
        started = time.monotonic()
        with said_at_commit(self._table) as ended, self._connection.owning(moves) as connection:
            parts = parts_of(connection, moves, batch.chunks, asset=self._by.asset, policy=self._window)
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
            examples = Examples(parts)
            for keys, records in bad:
                examples.add(records, keys)
            done = self._settle(connection, mode, parts, examples, started=started)
            for keys, records in bad:
                insert_quarantine(connection, records, {key: parts[key].publication for key in keys})
            for part in sorted(parts.values(), key=lambda one: one.lease.place):
                place = part.lease.place
                advance(connection, asset=self._by.asset, source_id=place[0], partition=place[1])
            ended.append(True)
        return done

    def _insert(
        self, connection: Connection, mode: Mode, parts: Mapping[SliceKey, Part], moves: Moves, batch: Batch
    ) -> list[_Bad]:
        """The rows; and the bad records of each chunk, those that the table refuses among them."""
        bad: list[_Bad] = []
        for chunk in batch.chunks:
            mine = {key: parts[key].publication for key in chunk.seen}
            with refusals(self._table, mine), _not_anothers(connection, moves), of_topic(mine):
                refused = list(self._judged(mode.insert(chunk, mine), {key: parts[key] for key in mine}))
            bad.append((tuple(mine), (*chunk.bad, *(batch.fetch(refused) if refused else ()))))
        return bad

    def _place(self, connection: Connection, parts: Mapping[SliceKey, Part], moves: Moves) -> None:
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
        self,
        connection: Connection,
        mode: Mode,
        parts: Mapping[SliceKey, Part],
        examples: Examples,
        *,
        started: float,
    ) -> list[Committed]:
        """What became of the records; then the windows' counts."""
        slices = {key: part.publication for key, part in parts.items()}
        for part in parts.values():
            judge(part.key, part.before.seen + part.seen, self._policy, examples=examples.of(part.key))
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

    def _judged(self, refused: Iterable[Refused], parts: Mapping[SliceKey, Part]) -> Generator[Refused]:
        """Count refused records as bad; no more are looked for where the window fails by so many for certain."""
        for one in refused:
            part = parts[place_in(parts, one)]
            part.seen += Seen(bad=1)
            # More records than it has offsets a batch cannot have.
            so_far = part.before.seen + replace(part.seen, read=part.key.offsets)
            judge(part.key, so_far, self._policy, reason=one.reason)
            yield replace(one, topic=part.key.topic)


@contextmanager
def _not_anothers(connection: Connection, moves: Moves) -> Generator[None]:
    """Rows that stand in the table already are another owner's, where this one stands elsewhere by now."""
    try:
        yield
    except RowsRefused:
        require_standing(connection, moves)
        raise
