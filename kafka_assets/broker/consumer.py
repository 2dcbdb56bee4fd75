"""The consumer: an iterator over records, and a promise of when each one's offset is kept.

A record is done when the next one is asked for, or `done()` is called. A loop that is left in any other way (an
exception, `break`) leaves its record undone: it comes again, from memory, since Kafka is past it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence

from kafka_assets.broker.commit_modes import Commit, check, keeper_of
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.idleness import Idleness
from kafka_assets.broker.keepers import Keeper
from kafka_assets.broker.leaving import Leaving
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.reader import Reader, Wanted
from kafka_assets.broker.starts import Start
from kafka_assets.broker.units import Each, Unit, Where, cut, place_of, without
from kafka_assets.errors import UsageError

_POLL = 0.2
"""Seconds that one look for records lasts: so soon a `stop` is noticed."""
_SERVE_EVERY = 1.0
"""Seconds of work on one unit after which the group is heard: it must not wait for the last record."""


class Consumer(Leaving):
    """Reads topics as a member of `group`, or, without one, the named partitions (or all) from `start` on.

    `start` counts where no offset is kept yet. Use it from one thread; only `stop` may come from another one, as a
    call or as the event of that name, which many may share.
    """

    what = "consumer"

    def __init__(  # noqa: PLR0913 - each is one word of configuration, by name
        self,
        connection: Connection,
        topics: str | Sequence[str],
        *,
        group: str | Membership | None = None,
        partitions: Collection[int] | None = None,
        start: Start = "earliest",
        commit: Commit | Keeper | None = None,
        each: Each = "batch",
        offset_first: bool = False,
        max_records: int = 500,
        auto_interval: float = 5.0,
        stop: threading.Event | None = None,
    ) -> None:
        member = Membership(group) if isinstance(group, str) else group
        self._each: Each = each
        self._offset_first = offset_first
        self._max_records = max_records
        self._keeper = keeper_of(commit, group=member, auto_interval=auto_interval)
        check(self._keeper, commit, group=member, each=each, offset_first=offset_first, partitions=partitions)
        self._unit: Unit | None = None
        self._units: deque[Unit] = deque()
        self._ahead: list[StoredRecord] = []
        self._stopping = stop or threading.Event()
        self._closed = False
        wanted = Wanted(topics, member, partitions, start)
        self._reader = Reader(
            connection,
            wanted,
            self._keeper,
            on_revoke=self._revoked,
            on_lost=self._lost,
            on_again=self._drop,
            polled=self._polled,
        )

    def records(self, *, idle: float | None = None) -> Iterator[StoredRecord]:
        """One record after the other, until `stop`.

        With `idle`, until every partition was read to its end and nothing more has come for so many seconds: not
        while a broker is slow or away, or a partition cannot be had yet.
        """
        self._recover()
        while (unit := self._ready(idle)) is not None:
            yield unit.take()[0]

    def batches(self, *, idle: float | None = None) -> Iterator[Sequence[StoredRecord]]:
        """What belongs to one commit at a time: a record, a batch, or a partition's part of one; see `each`."""
        self._recover()
        while (unit := self._ready(idle)) is not None:
            yield unit.take(len(unit.todo))

    def done(self) -> None:
        """What is in hand is done, too: to be said before a loop is left by `break`. A unit's last is kept at once."""
        if self._unit is not None:
            self._unit.settle()
            if not self._unit.todo:
                self._finish()

    def stop(self) -> None:
        """End the iteration after what is in hand. From any thread, or a signal's handler."""
        self._stopping.set()

    @property
    def assigned(self) -> frozenset[Where]:
        """The partitions that it reads now."""
        return self._reader.assigned

    def close(self) -> None:
        """Keep what is done, give up what is in hand, and leave the group."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._unit is not None and self._unit.in_hand:
                self._give_up()
            else:
                self._finish()
        finally:
            self._units.clear()
            self._ahead.clear()
            try:
                self._keeper.close()
            finally:
                self._reader.close()

    # -- units

    def _ready(self, idle: float | None) -> Unit | None:
        """The unit with the next record; all that was handed over before is done."""
        if self._closed:
            raise UsageError("the consumer is closed", cure="make a new one")
        if self._unit is not None:
            self._unit.settle()
            if self._unit.todo:
                self._be_heard()
        if self._unit is not None and self._unit.todo and (self._offset_first or not self._stopping.is_set()):
            return self._unit
        self._finish()
        idleness = Idleness(self._reader, idle)
        while not self._stopping.is_set():
            if self._units:
                self._be_heard()
                unit = self._units.popleft()
                if unit.todo:
                    self._begin(unit)
                    return unit
                continue
            records = self._reader.poll(self._max_records, 0 if self._ahead else _POLL)
            self._units = deque(cut([*self._ahead, *records], self._each))
            self._ahead = []
            if self._units:
                idleness.broken()
            elif idleness.over():
                return None
        return None

    def _be_heard(self) -> None:
        """By the group, also while what is handed over comes from memory."""
        if time.monotonic() - self._reader.polled_at > _SERVE_EVERY:
            polled = self._reader.poll(1, 0)
            self._ahead = [*self._ahead, *polled]

    def _begin(self, unit: Unit) -> None:
        try:
            if self._offset_first:
                self._keeper.done(_as_if_done(unit))
            self._keeper.before(unit)
        except BaseException:
            self._refused(unit)
            raise
        self._unit = unit

    def _finish(self) -> None:
        """Keep what is done of the unit; what is not done is handed over next."""
        unit, self._unit = self._unit, None
        if unit is None:
            return
        if unit.todo:
            self._units.appendleft(Unit(unit.todo))
        if unit.done and not self._offset_first:
            try:
                self._keeper.done(unit)
            except BaseException:
                if self._keeper.whole:
                    self._refused(unit)
                raise

    def _refused(self, unit: Unit) -> None:
        """Nothing of it is kept. A whole one comes again from where the keeper says by then, others from memory."""
        if not self._keeper.whole:
            self._poll_before([*unit.done, *unit.in_hand, *unit.todo])
            return
        self._drop(unit.begins)
        self._reader.begin_again(unit.begins)

    def _give_up(self) -> None:
        unit, self._unit = self._unit, None
        if unit is None:
            return
        try:
            if not self._offset_first:
                self._keeper.undo(unit)
        except BaseException:
            if self._keeper.whole:
                self._refused(unit)
            else:
                self._poll_before([*unit.in_hand, *unit.todo])
            raise
        if self._keeper.whole:
            # What was in hand is tried again alone: otherwise each of its tries were one of all the others, too.
            self._hand_over_again(unit.done, unit.in_hand, unit.todo)
        else:
            self._hand_over_again([*unit.in_hand, *unit.todo])

    def _hand_over_again(self, *parts: Sequence[StoredRecord]) -> None:
        """As units, next and in this order."""
        self._units.extendleft(Unit(part) for part in reversed(parts) if part)

    def _poll_before(self, records: Sequence[StoredRecord]) -> None:
        """They come again next, but not before the group was heard: it may have given them to somebody else."""
        later = [record for unit in self._units for record in unit.todo]
        self._units.clear()
        self._ahead = [*records, *later, *self._ahead]

    def _recover(self) -> None:
        """A loop was left with a record in hand: it was not done, and comes again."""
        if self._unit is not None and self._unit.in_hand:
            self._give_up()

    def _drop(self, places: Collection[Where]) -> None:
        self._ahead = without(self._ahead, places)
        for unit in self._units:
            unit.drop(places)

    def _polled(self) -> set[Where]:
        """Of which there are records here that are not done, or not kept."""
        units = [*self._units, *([self._unit] if self._unit is not None else [])]
        return {place_of(record) for record in self._ahead}.union(*(unit.begins for unit in units))

    # -- called inside a poll, so nothing is in hand

    def _revoked(self, places: Sequence[Where]) -> None:
        """Keep what is done, before they go. What was committed first is handed over all the same: nobody else will."""
        try:
            if self._unit is not None and not self._offset_first:
                self._unit.drop(places)
                self._finish()
        finally:
            # They go whatever became of that: what is kept here of them would be in their next owner's way.
            self._drop(places)
            self._keeper.released(places)

    def _lost(self, places: Sequence[Where]) -> None:
        unit = self._unit
        self._drop(places)
        try:
            self._keeper.lost(places)
        except BaseException:
            if unit is not None and self._keeper.whole:
                self._unit = None
                self._refused(unit)
            raise
        if unit is None or self._offset_first:
            return
        self._unit = None
        if self._keeper.whole:
            self._hand_over_again(without([*unit.done, *unit.in_hand, *unit.todo], places))
            return
        self._hand_over_again(without(unit.todo, places))
        # What was done of the others is still to be kept.
        kept = Unit(())
        kept.done = without(unit.done, places)
        if kept.done:
            self._keeper.done(kept)


def _as_if_done(unit: Unit) -> Unit:
    ahead = Unit(())
    ahead.done = list(unit.todo)
    return ahead
