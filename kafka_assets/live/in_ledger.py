"""Offsets kept in the ledger, in one transaction with the caller's own SQL; of a group's name, or of a name given."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Literal

from sqlalchemy import Connection, Engine

from kafka_assets.broker.keepers import Attached, First, Nowhere
from kafka_assets.broker.read import StoredRecord, bad_record
from kafka_assets.broker.topic_ids import TopicIds
from kafka_assets.broker.units import Unit, Where, place_of
from kafka_assets.errors import Fenced, UsageError
from kafka_assets.ledger.leases import LEASE_MS, Lease, new_owner
from kafka_assets.ledger.owning import LiveConnection
from kafka_assets.ledger.windows import Author, close_over
from kafka_assets.live import unit_savepoint
from kafka_assets.live.claiming import Claiming
from kafka_assets.live.keeping import Keeper as Leases
from kafka_assets.live.own_work import Part, keep
from kafka_assets.reasons import HANDLED
from kafka_assets.records import BadRecord
from kafka_assets.sinks.live import WindowPolicy


class InLedger(Nowhere):
    """The keeper for your own tables: while a unit is in hand, `sql` is the connection in its open transaction.

    What you do on it, and the unit's offsets, are committed together when the unit is done, or not at all.
    `name` is what `kafka_committed_offset` shows as the group; without it, the group's.

    What it does NOT promise: anything about what is done on other connections, or outside of the database.
    """

    whole = knows_expired = True

    def __init__(
        self,
        engine: Engine,
        *,
        name: str | None = None,
        on_expired: Literal["fail", "record"] = "fail",
        window: WindowPolicy | None = None,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._engine, self._name = engine, name
        self._on_expired: Literal["fail", "record"] = on_expired
        self._window, self._lease_ms = window or WindowPolicy(), lease_ms
        self._connection = LiveConnection(engine)
        self._stack, self._transaction = ExitStack(), ExitStack()
        self._held: dict[Where, Lease] = {}
        self._positions: dict[Where, int] = {}
        self._bad: list[tuple[Where, BadRecord]] = []
        self._moves: dict[Lease, tuple[int, int]] = {}
        self._had: set[Where] = set()
        """Whose lease it has had since it was given them."""
        self._started: dict[Where, tuple[Lease, int]] = {}
        """Of the unit in hand: whose each partition is, and where it stood."""
        self._sql: Connection | None = None
        self._began = 0.0

    @property
    def sql(self) -> Connection:
        """The connection in the transaction of what is in hand. It is committed for you: do neither yourself."""
        if self._sql is None:
            raise UsageError(
                "there is no transaction: no record is in hand",
                why="it begins with the first record of a unit, and ends when the next unit is asked for",
                cure="use it inside the loop over records() or batches()",
            )
        return self._sql

    def quarantine(self, record: StoredRecord, reason: str) -> None:
        """Keep this record of the unit in hand in kafka_quarantine, with its bytes, in the unit's transaction."""
        _ = self.sql
        self._bad.append((place_of(record), bad_record(record, reason, code=HANDLED)))

    def attach(self, consumer: Attached) -> None:
        name = self._name or consumer.group
        if name is None:
            raise UsageError("the ledger keeps offsets by a name", cure="give InLedger a name, or the consumer a group")
        self._owner = new_owner(consumer.group)
        self._by = Author(name, run_id=self._owner, code_version="")
        self._ids = TopicIds(consumer.connection)
        self._claiming = Claiming(
            self._engine,
            consumer.connection,
            name,
            self._owner,
            grouped=consumer.group is not None,
            on_expired=self._on_expired,
            lease_ms=self._lease_ms,
        )
        aside = partial(_close_over, self._engine, seconds=self._window.seconds)
        self._connection = self._stack.enter_context(closing(LiveConnection(self._engine)))
        self._leases = self._stack.enter_context(
            Leases(self._engine, lease_ms=self._lease_ms, aside=aside, silence=consumer.longest_silence)
        )

    def begins(self, places: Collection[Where], first: First) -> Mapping[Where, int]:
        for place in places:
            self._positions.pop(place, None)
        try:
            given = [place for place in places if place not in self._had]
            self._claiming.take(places, first, given=given, held=self._held, positions=self._positions)
        finally:
            self._had.update(self._held)
            self._leases.hold(self._held.values())
        return {place: self._positions[place] for place in places if place in self._positions}

    def before(self, unit: Unit) -> None:
        started: dict[Where, tuple[Lease, int]] = {}
        for place, offset in unit.begins.items():
            lease, position = self._held.get(place), self._positions.get(place)
            # Of what was fetched before another had the partition, nothing may be done again.
            if lease is None or position is None or offset < position:
                raise Fenced(
                    f"partition {place[1]} of the topic {place[0]!r} is not this consumer's any more",
                    why="its lease had ended, and somebody else has had it since",
                    cure="nothing: it is asked for again",
                )
            started[place] = (lease, position)
        moves = {lease: (position, unit.begins[place]) for place, (lease, position) in started.items()}
        with ExitStack() as stack:
            sql = stack.enter_context(self._connection.owning(moves))
            unit_savepoint.begin(sql)
            self._transaction, self._moves, self._started = stack.pop_all(), moves, started
        self._bad = []
        self._sql, self._began = sql, time.monotonic()

    def require_whole(self) -> None:
        """See that what is done on `sql` still belongs to the unit in hand; LedgerBusy where it is to be done again."""
        unit_savepoint.release(self.sql)
        unit_savepoint.begin(self.sql)

    def done(self, unit: Unit) -> None:
        sql, started = self.sql, self._began
        self._sql = None
        parts = self._parts(unit)
        with self._transaction:
            unit_savepoint.release(sql)
            self._ids.require({part.lease.source.topic: part.lease.source.topic_id for part in parts})
            # What the outcome is asked by, should COMMIT have no answer.
            self._moves.clear()
            self._moves.update({part.lease: (part.start, part.end) for part in parts})
            keep(
                sql,
                parts,
                by=self._by,
                window=self._window,
                lease_ms=self._lease_ms,
                duration_ms=int((time.monotonic() - started) * 1000),
            )
        self._positions |= {place: end for place, end in unit.ends.items() if place in self._held}

    def undo(self, unit: Unit) -> None:
        self._roll_back()

    def released(self, places: Collection[Where]) -> None:
        self._had.difference_update(places)
        self._leases.give_back(self._let_go(places))

    def lost(self, places: Collection[Where]) -> None:
        self._had.difference_update(places)
        try:
            self._roll_back()
        finally:
            self._leases.forget(self._let_go(places))

    def idle(self) -> Collection[Where]:
        gone = set(self._leases.lost())
        places = [place for place, lease in self._held.items() if lease in gone]
        self._let_go(places)
        return places

    def close(self) -> None:
        try:
            self._roll_back()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        try:
            self._connection.close()
            if self._held:
                self._leases.give_back(self._let_go(list(self._held)))
        finally:
            self._stack.close()

    def _parts(self, unit: Unit) -> list[Part]:
        records: dict[Where, list[StoredRecord]] = defaultdict(list)
        for record in unit.done:
            records[place_of(record)].append(record)
        return [
            Part(
                self._started[place][0],
                start=self._started[place][1],
                end=end,
                records=records[place],
                bad=[bad for where, bad in self._bad if where == place],
            )
            for place, end in unit.ends.items()
        ]

    def _let_go(self, places: Collection[Where]) -> list[Lease]:
        for place in places:
            self._positions.pop(place, None)
        return [lease for place in places if (lease := self._held.pop(place, None)) is not None]

    def _roll_back(self) -> None:
        if self._sql is None:
            return
        sql, self._sql = self._sql, None
        with self._transaction:
            sql.rollback()


def _close_over(engine: Engine, leases: Sequence[Lease], *, seconds: float) -> None:
    close_over(engine, [lease.place for lease in leases], seconds=seconds)
