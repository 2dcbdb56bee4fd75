"""skip_when_behind on SQLite: the suite that all databases share, and kills."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

import dagster as dg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from kafka_assets.ledger import requests
from kafka_assets.ledger.engine import make_engine
from kafka_assets_tests.behind_contract import BEHIND, BehindContract, landed, slices, time_passes, whole
from kafka_assets_tests.ledgers import rows, target
from kafka_assets_tests.properties.runner import AS_IT_IS
from kafka_assets_tests.ticking import Desk, Killed, answering, at_commits, killing, orders

BROKER_ENDS = st.lists(st.integers(0, 120), min_size=2, max_size=2)
STEPS = st.lists(st.one_of(BROKER_ENDS, st.sampled_from(["tick", "land", "other", "time"])), max_size=14)


@pytest.mark.slow  # all of them together
class TestBehindOnSQLite(BehindContract):
    """The engine is the unit tests' own."""


@pytest.mark.slow
@pytest.mark.parametrize("after", [True, False], ids=["after", "before"])
def test_a_tick_that_jumps_may_be_killed_around_any_commit(
    engine: Engine, anew: Callable[[], None], monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr(requests, "HOLD_MS", 0)  # else what was asked for and lost waits a minute
    broker = answering(monkeypatch)
    broker.set("orders", 100)
    for kills in itertools.count():
        anew()
        with dg.DagsterInstance.ephemeral() as instance:
            desk = Desk(engine, instance, broker, orders(skip_when_behind=BEHIND))
            with monkeypatch.context() as patched:
                at_commits(patched, killing(kills + 1), after=after)
                try:
                    desk.evaluate()
                except Killed:
                    alive = False
                else:
                    alive = True
            desk.settle()
            assert slices(desk.engine) == [(0, 80, "skipped"), (80, 90, "normal"), (90, 100, "normal")]
            assert landed(desk.engine) == list(range(80, 100))
            assert whole(desk.engine)
        if alive:
            break
    assert kills > 5  # else nothing was killed


@pytest.mark.slow
def test_of_two_sensors_that_meet_in_any_step_one_jumps(
    engine: Engine, anew: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one sees more records meanwhile, and jumps no second time."""
    broker, others_engine = answering(monkeypatch), make_engine(engine.url)
    for steps in itertools.count(1):
        anew()
        broker.set("orders", 100)
        met: list[str] = []
        with dg.DagsterInstance.ephemeral() as one, dg.DagsterInstance.ephemeral() as other:
            stream = orders(skip_when_behind=BEHIND)
            first, second = Desk(engine, one, broker, stream), Desk(others_engine, other, broker, stream)

            def meets(number: int, wanted: int = steps, second: Desk = second, met: list[str] = met) -> None:
                if number == wanted and not met:
                    met.append("here")
                    broker.set("orders", 300)
                    met.extend(second.evaluate().skipped)

            with monkeypatch.context() as patched:
                at_commits(patched, meets, after=True)
                said = first.tick().skipped
            if not met:
                break
            first.settle()
            second.settle()
            assert len(said) + len(met[1:]) == 1
            assert [kind for _, _, kind in slices(first.engine)].count("skipped") == 1
            assert whole(first.engine)
    assert steps > 5


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    phases=AS_IT_IS,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_whatever_happens_nothing_but_the_declared_is_left_out(
    engine: Engine, anew: Callable[[], None], monkeypatch: pytest.MonkeyPatch, steps: list[object]
) -> None:
    monkeypatch.setattr(requests, "HOLD_MS", 0)
    anew()
    broker, ends = answering(monkeypatch), [0, 0]
    broker.set("orders", *ends)
    with dg.DagsterInstance.ephemeral() as one, dg.DagsterInstance.ephemeral() as other:
        stream = orders(skip_when_behind=BEHIND, slices={"max_records": 60})
        desks = [Desk(engine, each, broker, stream) for each in (one, other)]
        asked = list[dg.RunRequest]()
        target(engine)
        for step in [*steps, "tick", "land", "tick", "land"]:
            if isinstance(step, list):
                ends = [end + more for end, more in zip(ends, step, strict=True)]
                broker.set("orders", *ends)
            elif step == "land":
                desks[0].land(*asked, tells=False)
                asked = []
            elif step == "time":
                time_passes(engine, timedelta(minutes=15))
            else:
                before = chain(engine)
                found = desks[step == "other"].evaluate()
                asked = found.requests if step == "tick" else []
                _only_the_declared(chain(engine), before=before, ends=ends, said=found.skipped)
        assert whole(engine)
        skipped = {
            (part, at) for part, start, end, kind in chain(engine) if kind == "skipped" for at in range(start, end)
        }
        there = set(rows(engine, "select kafka_partition, kafka_offset from orders"))
        assert not skipped & there
        assert skipped | there == {(part, at) for part, end in enumerate(ends) for at in range(end)}


Chain = list[tuple[int, int, int, str]]


def chain(engine: Engine) -> Chain:
    return rows(engine, "select s.partition, s.start_offset, s.end_offset, s.kind from kafka_slice s order by 1, 2")


def _only_the_declared(now: Chain, *, before: Chain, ends: list[int], said: list[str]) -> None:
    """A tick jumps up to the newest 20, once in a partition; and over nothing that was planned before it."""
    assert [one for one in now if one in before] == before
    jumps = [one for one in now if one not in before and one[3] == "skipped"]
    assert [(part, end) for part, _, end, _ in jumps] == [(part, ends[part] - 20) for part, *_ in jumps]
    assert len({part for part, *_ in jumps}) == len(jumps) == len(said)
