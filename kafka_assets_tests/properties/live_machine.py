"""Random programs of two live owners, two sensors and runs: takeovers, kills and lost answers in any order.

Each step is a whole transaction or is ended inside of one; what an owner, a planner or a run knows may be old by the
time it acts. Where two transactions overlap, and who waits for whom, the tests on real servers ask.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import Engine, text

from kafka_assets.errors import Fenced, LedgerBusy, OutcomeUnknown, SliceRefused, TopicChanged
from kafka_assets.ledger import engine as doors
from kafka_assets.ledger import planning, retries
from kafka_assets.ledger import told as telling
from kafka_assets.ledger.backends import own_process
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.janitor import end_live
from kafka_assets.ledger.leases import Lease, extend, give_back, ready, take
from kafka_assets.ledger.sources import Source
from kafka_assets.ledger.windows import Author
from kafka_assets.plan import NewSlice, Offsets
from kafka_assets.sinks import live as transaction
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.batch import Batch, WindowPolicy
from kafka_assets.sinks.live import LiveTable
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import ASSET, Attempt, chunk_of, fetch, rows, target
from kafka_assets_tests.lives import HOUR_MS, end_leases
from kafka_assets_tests.properties.append_machine import counted
from kafka_assets_tests.properties.drawn import rarely
from kafka_assets_tests.properties.live_model import WINDOW, Model, Place, Slice

PARTITIONS = 2
ANY = BadPolicy("quarantine", 1.0)
POINTS = ("share", "lock_window", "move", "close_windows", "mark", "advance")
"""Steps of the live transaction: whoever is killed or meets a busy database is so right after one of them."""
LOG = logging.getLogger(__name__)

owners = st.integers(0, 1)
parts = st.integers(0, PARTITIONS - 1)
sizes = st.lists(st.integers(0, 5), min_size=PARTITIONS, max_size=PARTITIONS)
fates = st.sampled_from((None, None, None, "killed", "busy", "lost, committed", "lost, rolled back"))


class Killed(BaseException):
    """The process is no more; nothing may catch it."""


@dataclass
class Owner:
    """A consumer, and what it believes."""

    name: str
    table: LiveTable
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])
    positions: dict[int, int] = field(default_factory=dict[int, int])


@dataclass
class Late:
    """A run that has claimed, and publishes later."""

    attempt: Attempt
    key: SliceKey
    number: int


class LiveMachine(RuleBasedStateMachine):
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self, fresh: Callable[[], Engine]) -> None:
        super().__init__()
        self.seen["example"] += 1
        self.engine = fresh()
        self.model = Model([[Place() for _ in range(PARTITIONS)]])
        self.planners: dict[int, tuple[Source, dict[int, int], list[int]]] = {}
        self.late: list[Late] = []
        self.told: set[tuple[int, SliceKey]] = set()
        self.numbers = iter(range(1, 10_000))

    @initialize(more=sizes)
    @counted
    def begin(self, more: list[int]) -> None:
        self.goal = target(self.engine)
        self.observe(planner=0, more=more)
        self.owners = [self._owner() for _ in range(2)]

    def _owner(self) -> Owner:
        name = f"live-{next(self.numbers)}"
        window = WindowPolicy(seconds=3600, max_records=WINDOW)
        table = LiveTable(
            self.engine, self.goal, by=Author(ASSET, name, "v1"), bad_policy=ANY, window=window, lease_ms=HOUR_MS
        )
        return Owner(name, table)

    # The broker, and sensors.

    @rule(planner=owners, more=sizes)
    @counted
    def observe(self, planner: int, more: list[int]) -> None:
        """Records arrive, and a sensor asks the broker and writes down what it says."""
        places = self.model.topics[-1]
        for place, arrived in zip(places, more, strict=True):
            place.end += arrived
            place.seen, place.known = place.end, True
        source = self._source()
        found = planning.observe(
            self.engine,
            source,
            offsets={number: Offsets(0, place.end, place.end) for number, place in enumerate(places)},
            origins=dict.fromkeys(range(PARTITIONS), 0),
            asset=ASSET,
        )
        assert {number: one.owner for number, one in found.items()} == {
            number: place.owner if place.leased else None for number, place in enumerate(places)
        }
        stands = {number: one.planned_through for number, one in found.items()}
        self.planners[planner] = source, stands, [place.end for place in places]

    @rule(planner=owners, size=st.integers(1, 7), loses=st.booleans())
    @counted
    def plan(self, planner: int, size: int, loses: bool) -> None:
        """It plans what it saw before."""
        if planner not in self.planners:
            return
        source, stands, ends = self.planners.pop(planner)
        for number, expected in stands.items():
            end = min(expected + size, ends[number])
            if end > expected:
                self._plan(source, number, expected, end, "lost" if loses and size == 7 else "normal")

    def _plan(
        self, source: Source, number: int, expected: int, end: int, kind: Any, *, owner: str | None = None
    ) -> None:
        reason = None if kind == "normal" else "expired"
        new = [NewSlice(expected, end, kind, reason)]
        try:
            done = planning.commit_plan(
                self.engine, source, number, expected=expected, slices=new, asset=ASSET, owner=owner
            )
        except TopicChanged:
            assert source.incarnation != self.model.incarnation
            return
        assert source.incarnation == self.model.incarnation
        place = self.model.at(source.incarnation, number)
        planned = place.plan(expected, [(expected, end, kind)], owner=owner)
        assert (done is not None) == planned
        self.seen["planned" if planned else "planner was slower"] += 1

    @rule()
    @counted
    def janitor(self) -> None:
        """What a tick does before it plans."""
        assert end_live(self.engine, log=LOG) == []
        for _, _, place in self.model.places():
            if place.owner is not None and place.lease_ended and self._can_be_ended(place.owner):
                place.owner, place.lease_ended = None, False
            if not place.leased:
                self.seen["left window closed"] += place.tail is not None
                place.close()

    def _can_be_ended(self, owner: str) -> bool:
        """SQLite's owners are this process while they live, which nobody ends."""
        return self.engine.dialect.name != "sqlite" or owner not in {one.name for one in self.owners}

    @rule(sure=rarely)
    @counted
    def create_topic_again(self, sure: bool) -> None:
        if not sure or self.model.incarnation > 2:
            return
        for place in self.model.topics[-1]:
            place.gone()
        self.model.topics.append([Place() for _ in range(PARTITIONS)])
        self._source()
        self.seen["topic created again"] += 1

    @rule()
    @counted
    def leases_end(self) -> None:
        """Time passes."""
        end_leases(self.engine)
        for _, _, place in self.model.places():
            place.lease_ended = place.owner is not None

    # Live owners.

    @rule(which=owners, partitions=st.sets(parts, min_size=1))
    @counted
    def take(self, which: int, partitions: set[int]) -> None:
        owner, source = self.owners[which], self._source()
        taken = self._taken(owner, source, sorted(partitions))
        if taken is None:
            return
        for number in partitions:
            place = self.model.topics[-1][number]
            free = not place.leased or place.owner == owner.name
            assert (number in taken) == free
            if free:
                self.seen["taken over"] += place.owner not in {None, owner.name}
                place.owner, place.lease_ended = owner.name, False
        self.ask_where(which=which)

    def _taken(self, owner: Owner, source: Source, partitions: list[int]) -> set[int] | None:
        if not all(self.model.topics[-1][number].known for number in partitions):
            return None
        done = take(self.engine, [(source, number) for number in partitions], owner=owner.name, lease_ms=HOUR_MS)
        owner.leases |= {lease.partition: lease for lease in done.leases}
        return {lease.partition for lease in done.leases}

    @rule(which=owners)
    @counted
    def ask_where(self, which: int) -> None:
        """Where it begins; or that it waits, or that a partition is not its own any more."""
        owner = self.owners[which]
        for number, lease in list(owner.leases.items()):
            place = self.model.at(lease.source.incarnation, number)
            try:
                [found] = ready(self.engine, [lease], asset=ASSET).values()
            except Fenced:
                assert place.owner != owner.name
                del owner.leases[number]
                owner.positions.pop(number, None)
                continue
            assert place.owner == owner.name
            assert found.position == place.planned
            waits = place.committed_through < place.planned
            assert (found.waits_for is not None) == waits
            if waits:
                owner.positions.pop(number, None)
            else:
                owner.positions[number] = found.position

    @rule(which=owners, take=sizes, spoiled=st.integers(0, 4), fate=fates, point=st.sampled_from(POINTS))
    @counted
    def land(self, which: int, take: list[int], spoiled: int, fate: str | None, point: str) -> None:
        """A batch from where it believes to stand, of what is in the topic."""
        owner = self.owners[which]
        batch: dict[int, tuple[SliceKey, range, set[int]]] = {}
        for number, start in owner.positions.items():
            lease = owner.leases[number]
            end = min(start + take[number], self.model.at(lease.source.incarnation, number).end)
            if end > start:
                key = SliceKey("orders", lease.source.incarnation, number, start, end)
                batch[number] = key, range(start, end), {start + spoiled} & {*range(start, end)}
        if not batch:
            return
        note = f"{owner.name}#{next(self.numbers)}"
        chunks = [chunk_of(key, bad=bad, note=note) for key, _, bad in batch.values()]
        places = {number: self.model.at(key.incarnation, number) for number, (key, _, _) in batch.items()}
        stands = all(place.owner == owner.name and place.planned == batch[n][1].start for n, place in places.items())
        try:
            with fated(fate, point) as fired:
                owner.table.publish(owner.leases.values(), Batch(chunks, fetch=fetch))
        except Fenced:
            assert not stands, "it stood, and was fenced"
            self.seen["fenced"] += 1
            owner.positions.clear()
            return
        except Killed:
            assert stands
            self.seen["killed"] += 1
            self._die(which)
            return
        assert stands, "it did not stand, and committed"
        self.seen[f"batch {fate or 'committed'}" if fired else "batch committed"] += 1
        for number, (key, offsets, bad) in batch.items():
            places[number].grow(key.end, dict.fromkeys({*offsets} - bad, note), bad)
            owner.positions[number] = key.end

    @rule(which=owners, more=sizes, first=sizes, then=sizes, fate=fates, point=st.sampled_from(POINTS))
    @counted
    def consume(
        self, which: int, more: list[int], first: list[int], then: list[int], fate: str | None, point: str
    ) -> None:
        """What is every day's work: records arrive, what is planned lands, and the owner takes what it gets."""
        self.observe(planner=0, more=[5 + arrived for arrived in more])
        self.catch_up()
        self.take(which=which, partitions={*range(PARTITIONS)})
        self.land(which=which, take=first, spoiled=4, fate=None, point=point)
        self.land(which=which, take=then, spoiled=0, fate=fate, point=point)

    @rule()
    @counted
    def catch_up(self) -> None:
        """Runs land all that waits."""
        for incarnation, number, place in self.model.places():
            for one in place.slices:
                if one.kind == "normal" and not one.committed:
                    self._claim(one, SliceKey("orders", incarnation, number, one.start, one.end), replaces=False)
                    self.publish(which=len(self.late) - 1)

    @rule(which=owners)
    @counted
    def die(self, which: int) -> None:
        self._die(which)

    def _die(self, which: int) -> None:
        """Its process is gone, its lease stands until it ends; another one comes."""
        owner = self.owners[which]
        owner.table.close()
        if self.engine.dialect.name == "sqlite":
            database, host, _, _ = own_process().split(":")
            with write(self.engine) as connection:
                connection.execute(
                    text("UPDATE kafka_progress SET owner_backend = :gone WHERE owner = :name"),
                    {"gone": f"{database}:{host}:0:0", "name": owner.name},
                )
        self.owners[which] = self._owner()

    @rule(which=owners, planner=owners, size=st.integers(1, 7))
    @counted
    def leave(self, which: int, planner: int, size: int) -> None:
        """Its process is gone; its lease ends; a sensor ticks."""
        self._die(which)
        self.leases_end()
        self.janitor()
        self.observe(planner=planner, more=[1] * PARTITIONS)
        self.plan(planner=planner, size=size, loses=False)

    @rule(which=owners, take=sizes, back=st.booleans(), replaces=st.booleans())
    @counted
    def replay_what_grows(self, which: int, take: list[int], back: bool, replaces: bool) -> None:
        """A run reads a window that is open; it has grown, or is closed, by the time it publishes."""
        for incarnation, number, place in self.model.places():
            if place.tail is not None:
                key = SliceKey("orders", incarnation, number, place.tail.start, place.tail.end)
                self._claim(place.tail, key, replaces=replaces)
                break
        else:
            return
        self.land(which=which, take=take, spoiled=4, fate=None, point="advance")
        if back:
            self.give_back(which=which)
        self.publish(which=len(self.late) - 1)

    @rule(which=owners)
    @counted
    def forget(self, which: int) -> None:
        """A pause: it goes on from what it knew, whatever became of its lease."""
        owner = self.owners[which]
        lost = extend(self.engine, list(owner.leases.values()), lease_ms=HOUR_MS)
        for number, lease in owner.leases.items():
            place = self.model.at(lease.source.incarnation, number)
            assert (lease in lost) == (place.owner != owner.name)
            if lease not in lost:
                place.lease_ended = False

    @rule(which=owners)
    @counted
    def give_back(self, which: int) -> None:
        owner = self.owners[which]
        give_back(self.engine, list(owner.leases.values()))
        for number, lease in owner.leases.items():
            place = self.model.at(lease.source.incarnation, number)
            if place.owner == owner.name:
                place.close()
                place.owner, place.lease_ended = None, False
        owner.leases.clear()
        owner.positions.clear()

    @rule(which=owners, size=st.integers(1, 3))
    @counted
    def leave_out(self, which: int, size: int) -> None:
        """An owner plans what it does not read."""
        owner = self.owners[which]
        for number, start in list(owner.positions.items()):
            lease = owner.leases[number]
            end = min(start + size, self.model.at(lease.source.incarnation, number).end)
            if end > start:
                self._plan(lease.source, number, start, end, "skipped", owner=owner.name)
        owner.positions.clear()

    # Runs.

    @rule(pick=st.integers(0, 30), replaces=st.booleans(), at_once=st.booleans())
    @counted
    def run(self, pick: int, replaces: bool, at_once: bool) -> None:
        """A run claims a slice, an open window too, and publishes at once or later."""
        there = [
            (one, SliceKey("orders", incarnation, number, one.start, one.end))
            for incarnation, number, place in self.model.places()
            for one in place.slices
            if one.kind == "normal"
        ]
        if not there:
            return
        one, key = there[pick % len(there)]
        self._claim(one, key, replaces=replaces)
        if at_once:
            self.publish(which=len(self.late) - 1)

    def _claim(self, one: Slice, key: SliceKey, *, replaces: bool) -> None:
        attempt = Attempt(self.engine, [key], run_id=f"run-{next(self.numbers)}", replaces=replaces, force=True)
        attempt.claim(force=True)
        one.attempt += 1
        assert attempt.claims[0].attempt == one.attempt
        self.late.append(Late(attempt, key, one.attempt))

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 9))
    @counted
    def publish(self, which: int) -> None:
        late = self.late.pop(which % len(self.late))
        place = self.model.at(late.key.incarnation, late.key.partition)
        one = next(one for one in place.slices if one.start == late.key.start)
        try:
            late.attempt.publish(chunk_of(late.key, note=late.attempt.run_id), policy=ANY, table=self.goal)
        except Fenced:
            assert one.attempt != late.number, "a run was fenced by nobody"
        except SliceRefused:
            assert one.is_open or one.kind != "normal" or one.end != late.key.end
            self.seen["open window refused"] += one.is_open
            self.seen["grown since it was read"] += not one.is_open and one.end != late.key.end
        else:
            assert one.attempt == late.number
            assert not one.is_open
            assert one.kind == "normal"
            assert one.end == late.key.end
            if late.attempt.replaces or not one.committed:
                self.seen["slice landed by a run"] += 1
                one.committed = True
                one.notes = dict.fromkeys(range(one.start, one.end), late.attempt.run_id)
                one.bad = set()

    @rule()
    @counted
    def tell(self) -> None:
        """What a tick would tell Dagster now."""
        with read(self.engine) as connection:
            _, head = telling.moment(connection)
            found = telling.between(connection, 0, head, assets=[ASSET])
            waiting = telling.unfinished(connection, assets=[ASSET])
        self.told |= {(one.id, one.key) for one in found if one.attempt is not None}
        assert not waiting & {one.id for one in found if one.attempt is not None}

    # What must be true after each step.

    @invariant()
    def the_ledger_and_the_table_are_what_the_model_says(self) -> None:
        found = [(*row[:4], bool(row[4]), *row[5:]) for row in rows(self.engine, _SLICES)]
        assert found == [
            (incarnation, number, one.start, one.end, one.is_open, one.kind)
            + ((("committed" if one.committed else "planned"), one.attempt) if one.published else (None, None))
            for incarnation, number, place in self.model.places()
            for one in place.slices
        ]
        stands = [
            (incarnation, number, place.planned, place.committed_through, place.owner)
            for incarnation, number, place in self.model.places()
            if place.known
        ]
        assert rows(self.engine, _PROGRESS) == stands
        assert rows(self.engine, "select problem from kafka_gap") == []

    @invariant()
    def every_offset_has_its_row_once(self) -> None:
        notes: dict[tuple[int, int, int], str] = {}
        bad: set[tuple[int, int, int]] = set()
        for incarnation, number, place in self.model.places():
            for one in place.slices:
                notes |= {(incarnation, number, offset): note for offset, note in one.notes.items()}
                bad |= {(incarnation, number, offset) for offset in one.bad}
        found = rows(self.engine, _ROWS)
        assert len(found) == len(notes)
        assert {tuple(place): note for *place, note in found} == notes
        assert set(rows(self.engine, _QUARANTINE)) == bad

    @invariant()
    def dagster_knows_no_key_that_no_slice_has(self) -> None:
        closed = {
            SliceKey("orders", incarnation, number, one.start, one.end)
            for incarnation, number, place in self.model.places()
            for one in place.slices
            if one.committed and not one.is_open
        }
        assert {key for _, key in self.told} <= closed

    def _source(self) -> Source:
        now = self.model.incarnation
        source = planning.resolve_source(self.engine, stream=ASSET, topic="orders", topic_id=f"id-{now}")
        assert source.incarnation == now
        return source

    def teardown(self) -> None:
        for owner in getattr(self, "owners", ()):
            owner.table.close()


@contextmanager
def fated(fate: str | None, point: str) -> Iterator[list[str]]:
    """What befalls the next live transaction; the list says whether it did."""
    fired: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        if fate in {"killed", "busy"}:
            patch.setattr(transaction, point, _struck(getattr(transaction, point), fate, fired))
        elif fate is not None:
            patch.setattr(transaction, "advance", _armed(transaction.advance, fired))
            patch.setattr(doors, "_commit", _lost(doors._commit, fired, committed=fate == "lost, committed"))
        yield fired


def _struck(step: Callable[..., Any], fate: str, fired: list[str]) -> Callable[..., Any]:
    def then(*given: Any, **more: Any) -> Any:
        result = step(*given, **more)
        if not fired:
            fired.append(fate)
            raise Killed if fate == "killed" else LedgerBusy("busy, says the test")
        return result

    return then


def _armed(advance: Callable[..., Any], fired: list[str]) -> Callable[..., Any]:
    def then(*given: Any, **more: Any) -> None:
        advance(*given, **more)
        if not fired:
            fired.append("armed")

    return then


def _lost(commit: Callable[..., Any], fired: list[str], *, committed: bool) -> Callable[..., Any]:
    def then(connection: Any) -> None:
        if fired != ["armed"]:
            commit(connection)
            return
        fired[:] = ["lost"]
        if committed:
            commit(connection)
        else:
            connection.rollback()
        raise OutcomeUnknown("the answer was lost, says the test", why="it was to be")

    return then


@contextmanager
def unhurried() -> Iterator[None]:
    """Retries do not sleep."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retries, "time", SimpleNamespace(sleep=lambda seconds: None))
        yield


_SLICES = """
SELECT r.incarnation, s.partition, s.start_offset, s.end_offset, s.is_open, s.kind, u.state, c.attempt
FROM kafka_slice s
JOIN kafka_source r ON r.id = s.source_id
LEFT JOIN kafka_publication u ON u.slice_id = s.id
LEFT JOIN kafka_claim c ON c.publication_id = u.id
ORDER BY r.incarnation, s.partition, s.start_offset
"""
_PROGRESS = """
SELECT r.incarnation, p.partition, p.planned_through, c.committed_through, p.owner
FROM kafka_progress p
JOIN kafka_source r ON r.id = p.source_id
LEFT JOIN kafka_committed c ON c.source_id = p.source_id AND c.partition = p.partition
ORDER BY r.incarnation, p.partition
"""
_ROWS = """
SELECT r.incarnation, o.kafka_partition, o.kafka_offset, o.note
FROM orders o JOIN kafka_source r ON r.id = o.kafka_source
"""
_QUARANTINE = """
SELECT r.incarnation, q.kafka_partition, q.kafka_offset
FROM kafka_quarantine q JOIN kafka_source r ON r.id = q.kafka_source
"""
