"""Live consumers on SQLite: the suite that all databases share, and what Dagster is told of their windows."""

from __future__ import annotations

import pytest

from kafka_assets.assets import echo
from kafka_assets.assets.tick import sensor_result
from kafka_assets_tests.live_contract import LiveContract
from kafka_assets_tests.lives import Live, end_leases, landed, meet, whole
from kafka_assets_tests.ticking import Desk


class TestLiveOnSQLite(LiveContract):
    """The engine is the unit tests' own."""


@pytest.mark.slow
def test_dagster_is_told_of_a_window_once_it_is_closed(desk: Desk) -> None:
    live = Live(desk.engine, meet(desk.engine)).take()
    desk.broker.set("orders", 100)
    for start, end in ((0, 5), (5, 9), (9, 12)):
        live.land(start, end)
        assert desk.tick().events == []
        assert desk.keys == []
    live.give_back()
    told = desk.tick()
    assert [event.partition for event in told.events] == ["orders:0:0-12"]
    assert told.events[0].metadata["attempt"].value == 1
    assert "orders:0:0-12" in desk.keys
    desk.land(*told.requests)
    desk.settle()
    assert desk.told == set(desk.keys)
    assert len(landed(desk.engine)) == 100
    assert whole(desk.engine)


@pytest.mark.slow
def test_a_window_that_was_met_open_is_told_whatever_was_planned_since(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(echo, "SWEPT_PER_TICK", 0)  # which finds in the end whatever was forgotten
    live = Live(desk.engine, meet(desk.engine, partitions=2, end=0)).take(0)
    live.land(0, 5)
    desk.broker.set("orders", 5, 30)
    desk.settle()
    assert not [key for key in desk.told if key.startswith("orders:0")]
    live.give_back()
    assert [event.partition for event in desk.tick().events] == ["orders:0:0-5"]


@pytest.mark.slow
def test_a_tick_leaves_leased_partitions_alone_and_says_whose_they_are(desk: Desk) -> None:
    live = Live(desk.engine, meet(desk.engine, partitions=2, end=0)).take(1)
    desk.broker.set("orders", 8, 30)
    desk.settle()
    assert landed(desk.engine) == list(range(8))
    assert landed(desk.engine, 1) == []
    found = desk.tick()
    reason = sensor_result(found).skip_reason
    assert reason is not None
    assert "orders: 1 of 2 partitions of 'orders' are landed live by live-1" in str(reason.skip_message)
    assert found.troubles == []
    live.land(0, 12, 1)
    # What it has committed since the broker was asked is no truncation.
    desk.broker.set("orders", 8, 10)
    assert desk.tick().troubles == []
    desk.broker.set("orders", 8, 30)
    end_leases(desk.engine)
    desk.settle()
    assert landed(desk.engine, 1) == list(range(30))
    assert desk.told == set(desk.keys)
    assert whole(desk.engine)
