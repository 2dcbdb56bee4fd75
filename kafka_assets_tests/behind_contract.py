"""skip_when_behind on the sensor's path, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
import pytest
from sqlalchemy import Engine, select, update

from kafka_assets.assets import planning as planner
from kafka_assets.ledger import behind
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.claims import claim, record_failure
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.health import health
from kafka_assets.ledger.publications import find
from kafka_assets.ledger.skipping import skip_slices
from kafka_assets.ledger.slice_list import find_slices
from kafka_assets.slices import SliceKey
from kafka_assets.verdicts import lag
from kafka_assets_tests.ledgers import ASSET, committed_through, rows, scalar
from kafka_assets_tests.ticking import Desk, answering, orders

BEHIND = {"records": 50, "keep": 20, "every": "15m"}


def slices(engine: Engine) -> list[tuple[int, int, str]]:
    return rows(
        engine, "select s.start_offset, s.end_offset, s.kind from kafka_slice s order by s.partition, s.start_offset"
    )


def landed(engine: Engine) -> list[int]:
    return [row[0] for row in rows(engine, "select kafka_offset from orders order by kafka_offset")]


def whole(engine: Engine) -> bool:
    return rows(engine, "select * from kafka_gap") == []


def time_passes(engine: Engine, by: timedelta) -> None:
    """All that is planned was planned so much earlier."""
    with write(engine) as connection:
        found = connection.execute(select(t.slice_.c.id, t.slice_.c.created_at)).all()
        for number, at in found:
            connection.execute(update(t.slice_).where(t.slice_.c.id == number).values(created_at=at - by))


class BehindContract:
    @pytest.fixture
    def desk(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
        with dg.DagsterInstance.ephemeral() as instance:
            yield Desk(engine, instance, answering(monkeypatch), orders(skip_when_behind=BEHIND))

    def test_all_but_the_newest_become_a_skipped_slice_and_are_done(self, desk: Desk) -> None:
        desk.broker.set("orders", 100, 50)
        found = desk.tick()
        jumped = [(0, 80, "skipped"), (80, 90, "normal"), (90, 100, "normal")]
        assert slices(desk.engine)[:3] == jumped
        assert {kind for _, _, kind in slices(desk.engine)[3:]} == {"normal"}, "50 are not more than 50"
        reason = "skip_when_behind: 80 offsets jumped over, for 100 were unread, more than 50"
        assert rows(desk.engine, "select reason from kafka_slice where kind = 'skipped'") == [(reason,)]
        assert found.skipped == [f"orders: orders:0: {reason}"]
        assert committed_through(desk.engine) == 80
        desk.land(*found.requests)
        desk.settle()
        assert committed_through(desk.engine) == 100
        assert scalar(desk.engine, "select count(*) from orders") == 70
        assert whole(desk.engine)
        assert desk.told == set(desk.keys), "nobody is asked for what was skipped, or told of it"

    def test_it_happens_once_in_so_long_whoever_looks(self, desk: Desk) -> None:
        desk.broker.set("orders", 100)
        desk.settle()
        desk.broker.set("orders", 300)
        with dg.DagsterInstance.ephemeral() as other:
            Desk(desk.engine, other, desk.broker, desk.stream).settle()
        assert landed(desk.engine) == list(range(80, 300)), "the ledger knows when it was, and not the sensor"
        time_passes(desk.engine, timedelta(minutes=16))
        desk.broker.set("orders", 400)
        desk.settle()
        assert landed(desk.engine) == [*range(80, 300), *range(380, 400)]
        assert whole(desk.engine)

    def test_what_is_planned_is_landed_and_what_comes_after_it_is_jumped_over(self, desk: Desk) -> None:
        desk.broker.set("orders", 40)
        desk.land(*desk.tick().requests[:0])  # planned, and nobody lands it yet
        desk.broker.set("orders", 75)
        desk.tick()
        assert slices(desk.engine)[3:] == [
            (30, 40, "normal"),
            (40, 55, "skipped"),
            (55, 65, "normal"),
            (65, 75, "normal"),
        ]
        assert committed_through(desk.engine) == 0
        desk.publish(
            [SliceKey("orders", 1, 0, start, end) for start, end, kind in slices(desk.engine) if kind == "normal"]
        )
        assert landed(desk.engine) == [*range(40), *range(55, 75)]
        assert committed_through(desk.engine) == 75
        assert whole(desk.engine)

    def test_what_was_given_up_does_not_make_it_behind(self, desk: Desk) -> None:
        desk.broker.set("orders", 50)
        desk.settle()
        desk.broker.set("orders", 60)
        desk.tick()
        bad = SliceKey("orders", 1, 0, 50, 60)
        claims = claim(desk.engine, list(find(desk.engine, asset=ASSET, keys=[bad]).values()), run_id="bad")
        assert record_failure(desk.engine, claims, reason="no good", max_attempts=1)
        desk.broker.set("orders", 110)
        desk.settle()
        assert landed(desk.engine) == [*range(50), *range(60, 110)]
        assert "skipped" not in {kind for _, _, kind in slices(desk.engine)}

    def test_what_people_skip_is_not_counted(self, desk: Desk) -> None:
        desk.broker.set("orders", 50)
        desk.tick()
        keys = [SliceKey("orders", 1, 0, 40, 50)]
        skip_slices(desk.engine, find_slices(desk.engine, stream=ASSET, asset=ASSET, keys=keys), reason="by hand")
        desk.broker.set("orders", 200)
        assert len(desk.tick().skipped) == 1

    def test_a_record_that_is_too_old_is_reason_enough(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[int] = []
        young = {0: 0}

        def offsets_at(connection: object, topic: str, timestamp_ms: int) -> dict[int, int]:
            asked.append(timestamp_ms)
            return young

        monkeypatch.setattr(planner, "offsets_at", offsets_at)
        desk.stream = orders(skip_when_behind={"age": "10m", "keep": 20})
        desk.broker.set("orders", 20)
        desk.settle()
        assert asked == [], "nothing is asked where nothing could be skipped"
        desk.broker.set("orders", 60)
        young[0] = 20
        assert desk.tick().skipped == []
        clock = behind.database_ms(desk.engine)
        assert clock - 600_000 - 60_000 < asked[-1] <= clock - 600_000
        young[0] = 61
        desk.broker.set("orders", 100)
        [said] = desk.tick().skipped
        assert said.endswith("20 offsets jumped over, for 80 were unread, the oldest for longer than 600 s")
        assert whole(desk.engine)

    def test_the_look_back_ends_where_it_no_longer_matters(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(behind, "_PAGE", 3)
        desk.broker.set("orders", 100)
        desk.settle()
        for end in range(120, 300, 20):  # many slices after the jump
            desk.broker.set("orders", end)
            desk.settle()
        [source] = rows(desk.engine, "select id from kafka_source")
        with read(desk.engine) as connection:
            ago = behind.last_jump_ms(connection, (source[0], 0), within=timedelta(minutes=15))
            assert ago is not None
            assert behind.last_jump_ms(connection, (source[0], 1), within=timedelta(minutes=15)) is None
        time_passes(desk.engine, timedelta(minutes=16))
        with read(desk.engine) as connection:
            assert behind.last_jump_ms(connection, (source[0], 0), within=timedelta(minutes=15)) is None
            assert behind.last_jump_ms(connection, (source[0], 0), within=timedelta(days=1)) is not None

    def test_the_check_says_how_much_was_left_out(self, desk: Desk) -> None:
        desk.broker.set("orders", 100, 30)
        desk.settle()
        found = health(desk.engine, asset=ASSET, target="orders", counted=True)
        verdict = lag(found.places, max_lag_ms=1000, skipped=found.skipped)
        assert verdict.passed
        assert verdict.numbers["skipped_offsets"] == 80
        assert "80 others were skipped lately" in verdict.said

    def test_nothing_is_left_out_where_nothing_is_declared(self, desk: Desk) -> None:
        desk.stream = orders()
        desk.broker.set("orders", 500)
        desk.settle()
        assert landed(desk.engine) == list(range(500))
