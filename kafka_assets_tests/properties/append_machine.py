"""Random programs for append: planners, runs, kills and deleted topics in any order, against the model.

Runs go one at a time and stop between their steps, so that a program always runs the same; on a server two of them
also meet at committed_through, where one waits for the other's COMMIT.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from itertools import pairwise
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import Engine, text

from kafka_assets.errors import LedgerBusy, TopicChanged
from kafka_assets.ledger import planning
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.janitor import end_expired
from kafka_assets.ledger.publications import find
from kafka_assets.plan import NewSlice, Offsets
from kafka_assets.sinks.road import Table
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import ASSET, target
from kafka_assets_tests.properties.append_model import Model
from kafka_assets_tests.properties.attempts import Attempt, Plan
from kafka_assets_tests.properties.drawn import INSIDE, OUTSIDE, PARTITIONS, arrivals, few, plans, rarely, seldom, sizes
from kafka_assets_tests.properties.standing import compare


def counted(step: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(step)
    def taken(self: AppendMachine, **drawn: Any) -> None:
        self.seen["step"] += 1
        step(self, **drawn)

    return taken


class AppendMachine(RuleBasedStateMachine):
    attempts_are: ClassVar[type[Attempt]] = Attempt
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self, fresh: Callable[[], Engine]) -> None:
        super().__init__()
        self.attempts: list[Attempt] = []
        self.seen["example"] += 1
        self.engine = fresh()
        self.planners: dict[int, tuple[planning.Source, dict[int, int], dict[int, int]]] = {}
        self.launched = 0

    def make(self, *, by_value: bool) -> tuple[Table, Model]:
        return target(self.engine), Model()

    @initialize(more=arrivals, sizes=sizes, by_value=st.booleans())
    @counted
    def begin(self, more: list[int], sizes: list[int], by_value: bool) -> None:
        self.table, self.model = self.make(by_value=by_value)
        self.model.topics.append({})
        self.observe(planner=0, more=more)
        self.plan(planner=0, sizes=sizes, loses=False)

    # The broker, and who plans.

    @rule(planner=st.integers(0, 1), more=arrivals)
    @counted
    def observe(self, planner: int, more: list[int]) -> None:
        """Records arrive, and a planner asks the broker and writes down what it says."""
        now = self.model.incarnation
        for number, arrived in enumerate(more):
            self.model.partition(now, number).end += arrived
        ends = {number: self.model.partition(now, number).end for number in range(PARTITIONS)}
        source = planning.resolve_source(self.engine, stream=ASSET, topic="orders", topic_id=f"id-{now}")
        assert source.incarnation == now
        progress = planning.observe(
            self.engine,
            source,
            offsets={number: Offsets(0, end, end) for number, end in ends.items()},
            origins=dict.fromkeys(ends, 0),
            asset=ASSET,
        )
        stands = self.model.observe(now, ends)
        assert {number: one.planned_through for number, one in progress.items()} == stands
        self.planners[planner] = (source, stands, ends)

    @rule(planner=st.integers(0, 1), sizes=sizes, loses=seldom)
    @counted
    def plan(self, planner: int, sizes: list[int], loses: bool) -> None:
        """A planner commits what it saw before."""
        if planner not in self.planners:
            return
        source, stands, ends = self.planners.pop(planner)
        for number, expected in stands.items():
            bounds = [expected]
            for size in sizes:
                bounds.append(min(bounds[-1] + size, ends[number]))
            cuts = [(start, end, "normal") for start, end in pairwise(bounds) if end > start]
            if not cuts:
                continue
            if loses:
                cuts[0] = (*cuts[0][:2], "lost")
            new = [NewSlice(*cut[:2], "lost", "expired") if cut[2] == "lost" else NewSlice(*cut[:2]) for cut in cuts]
            gone = source.incarnation != self.model.incarnation
            try:
                planned = planning.commit_plan(self.engine, source, number, expected=expected, slices=new, asset=ASSET)
            except TopicChanged:
                assert gone, "the topic is the same"
                self.seen["planned too late"] += 1
                continue
            assert not gone, "slices were planned of a topic that is gone"
            faster = not self.model.plan(source.incarnation, number, expected=expected, cuts=cuts)
            self.seen["planner was faster"] += faster
            assert (planned is None) == faster

    @rule(more=arrivals, sizes=sizes, topic=rarely)
    @counted
    def race_to_plan(self, more: list[int], sizes: list[int], topic: bool) -> None:
        """Two planners saw the same, and the topic may be gone by the time they write."""
        for planner in (0, 1):
            self.observe(planner=planner, more=more if planner == 0 else [0] * PARTITIONS)
        if topic:
            self._create_topic_again()
        for planner in (0, 1):
            self.plan(planner=planner, sizes=sizes, loses=False)

    @rule(sure=rarely)
    @counted
    def create_topic_again(self, sure: bool) -> None:
        if sure:
            self._create_topic_again()

    def _create_topic_again(self) -> None:
        if not any(part.known for part in self.model.topics[-1].values()) or self.model.incarnation > 2:
            return
        held = any(attempt.holds_locks() for attempt in self.attempts)
        now = self.model.incarnation + 1
        try:
            planning.resolve_source(self.engine, stream=ASSET, topic="orders", topic_id=f"id-{now}")
        except LedgerBusy:
            assert held, "nobody holds a publication"
            self.seen["retirement waits"] += 1
            return
        self.model.topic_gone()
        self.seen["topic created again"] += 1

    # Runs.

    @rule(several=st.booleans(), plan=plans)
    @counted
    def land(self, several: bool, plan: Plan) -> None:
        """What is every day's work: a run of what waits, or of all there is again; and nothing happens to it."""
        waiting = [one for number in range(PARTITIONS) for one in self.model.waiting(number)]
        again = [one for one in self.model.slices() if one.result and one.incarnation == self.model.incarnation]
        chosen = again if plan.replaces and again else waiting
        keys = [SliceKey("orders", one.incarnation, one.partition, one.start, one.end) for one in chosen]
        if keys:
            calm = replace(plan, claims_by_force=True, expired=0, stops=(), kill_at=None, busy_at=None, commit=None)
            self._start(keys[: 4 if several else 1], calm)

    @rule(pick=few, plan=plans)
    @counted
    def launch_one(self, pick: int, plan: Plan) -> None:
        self._launch([pick], plan)

    @rule(picks=st.lists(few, min_size=2, max_size=4), plan=plans)
    @counted
    def launch_several(self, picks: list[int], plan: Plan) -> None:
        self._launch(picks, plan)

    def _launch(self, picks: list[int], plan: Plan) -> None:
        there = [one for one in self.model.slices() if one.published]
        # A run reads one topic: what belongs to another of its name is refused before anything is claimed.
        newest = [one for one in there if one.incarnation == there[picks[0] % len(there)].incarnation] if there else []
        if not newest:
            return
        chosen = {one.key: one for one in (newest[pick % len(newest)] for pick in picks)}
        keys = [SliceKey("orders", one.incarnation, one.partition, one.start, one.end) for one in chosen.values()]
        self._start(keys, plan)

    def _start(self, keys: list[SliceKey], plan: Plan) -> None:
        if self.engine.dialect.name == "sqlite":
            stops = dict.fromkeys(point if point in OUTSIDE else "registered" for point in plan.stops)
            plan = replace(plan, stops=tuple(stops))
        self.launched += 1
        attempt = self.attempts_are(
            engine=self.engine,
            table=self.table,
            model=self.model,
            seen=self.seen,
            name=f"run-{self.launched}",
            plan=plan,
            publications=list(find(self.engine, asset=ASSET, keys=keys).values()),
        )
        self.attempts.append(attempt)
        attempt.run.go()
        self._settle(attempt)

    @precondition(lambda self: self.attempts)
    @rule(which=few, plan=plans)
    @counted
    def take_over(self, which: int, plan: Plan) -> None:
        """Somebody forces a run of just what another one is working on."""
        held = self.attempts[which % len(self.attempts)].publications
        self._start([one.key for one in held], replace(plan, claims_by_force=True))

    @rule(pick=few, first=plans, second=plans, where=st.sampled_from((*OUTSIDE, *INSIDE)), finishes=st.booleans())
    @counted
    def overtake(self, pick: int, first: Plan, second: Plan, where: str, finishes: bool) -> None:
        """A run stands still somewhere; another one does all its work; then the first goes on."""
        before = len(self.attempts)
        self._launch([pick], replace(first, stops=(where,)))
        if len(self.attempts) > before:
            slow = self.attempts[-1]
            self._start([one.key for one in slow.publications], replace(second, claims_by_force=True, stops=()))
            if finishes:
                self._finish(slow)

    @precondition(lambda self: self.attempts)
    @rule(which=few)
    @counted
    def resume(self, which: int) -> None:
        attempt = self.attempts[which % len(self.attempts)]
        attempt.run.go()
        self._settle(attempt)

    @precondition(lambda self: self.attempts)
    @rule(which=few)
    @counted
    def finish(self, which: int) -> None:
        self._finish(self.attempts[which % len(self.attempts)])

    @precondition(lambda self: self.attempts)
    @rule(which=few, sure=seldom)
    @counted
    def kill(self, which: int, sure: bool) -> None:
        if sure:
            attempt = self.attempts[which % len(self.attempts)]
            attempt.run.kill()
            self._settle(attempt)

    @precondition(lambda self: self.engine.dialect.name != "sqlite")
    @rule(number=st.integers(0, PARTITIONS - 1), turned=st.booleans(), first=plans, second=plans)
    @counted
    def meet(self, number: int, turned: bool, first: Plan, second: Plan) -> None:
        """Two publishers at once: the second waits for committed_through until the first has committed."""
        before, pair = len(self.attempts), self.model.waiting(number)[:2]
        for one, plan in zip(pair[::-1] if turned else pair, (first, second), strict=False):
            key = SliceKey("orders", one.incarnation, one.partition, one.start, one.end)
            # Whoever begins again once it was there begins behind the other, and would not be the first.
            lost = None if plan.commit == "lost, rolled back" else plan.commit
            calm = replace(plan, kill_at=None, busy_at=None, on_bad="quarantine", stops=("registered",), commit=lost)
            self._start([key], calm)
        if len(self.attempts) != before + 2:
            return
        one, other = self.attempts[-2:]
        one.run.stop_at("advanced")
        one.run.go()
        if not one.run.ended:
            other.run.begin()
            self.seen["one waits for another"] += not other.run.wait(0.2)
            one.run.go()
            other.run.wait()
            one.settle()  # it committed first
            self._settle(other)
        self._settle(one)

    @rule(sure=seldom)
    @counted
    def leases_end(self, sure: bool) -> None:
        """Time passes."""
        if sure:
            with write(self.engine) as connection:
                connection.execute(text("UPDATE kafka_claim SET lease_until = 1 WHERE lease_until IS NOT NULL"))
            for one in self.model.slices():
                one.lease = "ended" if one.lease == "live" else one.lease
            end_expired(self.engine, log=logging.getLogger(__name__))

    def _finish(self, attempt: Attempt) -> None:
        attempt.run.stop_nowhere()
        attempt.run.go()
        self._settle(attempt)

    def _settle(self, attempt: Attempt) -> None:
        attempt.settle()
        if attempt.done:
            self.attempts.remove(attempt)
            attempt.tell_end(others=self.attempts)

    # What must be true after each step.

    @invariant()
    def the_ledger_and_the_table_are_what_the_model_says(self) -> None:
        compare(self.engine, self.model)

    def teardown(self) -> None:
        for attempt in self.attempts:
            if not attempt.run.ended:
                attempt.run.kill()
