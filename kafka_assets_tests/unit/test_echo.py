"""What Dagster is told: all of it, once, a bounded part in each tick, and again where it forgot."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import text

from kafka_assets.assets import echo
from kafka_assets.assets.cursor import Cursor
from kafka_assets.ledger.claims import claim, record_failure
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.publications import find
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import ASSET, scalar
from kafka_assets_tests.ticking import KEY, Desk, orders

pytestmark = pytest.mark.slow


@pytest.fixture
def landed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Twelve slices, landed and told; a tick tells five, and meets or sweeps seven."""
    monkeypatch.setattr(echo, "TOLD_PER_TICK", 5)
    monkeypatch.setattr(echo, "MET_PER_TICK", 7)
    monkeypatch.setattr(echo, "SWEPT_PER_TICK", 7)
    desk.broker.set("orders", 100, 20)
    desk.settle()
    assert len(desk.told) == 12
    return desk


def until_quiet(desk: Desk, *, most: int) -> list[int]:
    """How many are told in each tick, until none is."""
    told: list[int] = []
    for _ in range(10):
        told.append(len(desk.tick().events))
        assert told[-1] <= most
        if not told[-1]:
            return told
    raise AssertionError(f"it never ends: {told}")


def age(desk: Desk, days: int, condition: str = "1 = 1") -> None:
    with write(desk.engine) as connection:
        connection.execute(
            text(
                f"update kafka_publication set committed_at = datetime(committed_at, '-{days} days') || '.000000'"
                f" where {condition}"
            )
        )


def test_a_run_that_died_after_its_commit_is_told_of_at_the_next_tick(desk: Desk) -> None:
    desk.broker.set("orders", 15)
    desk.land(*desk.tick().requests, tells=False)
    found = desk.tick()
    assert [event.partition for event in found.events] == ["orders:0:0-8", "orders:0:8-15"]
    assert found.events[0].metadata["landed"].value == 8
    assert desk.tick().events == []


def test_a_run_that_goes_on_tells_itself(desk: Desk) -> None:
    desk.broker.set("orders", 5)
    [request] = desk.tick().requests
    keys = desk.keys_of(request)
    run = dg.DagsterRun(job_name="landing", run_id=dg_run_id(), status=dg.DagsterRunStatus.STARTED)
    desk.instance.add_run(run)
    desk.publish(keys, run_id=run.run_id, tells=False)
    assert desk.tick().events == []
    age(desk, 1)  # it would have, long ago: a worker that died is STARTED for ever
    assert len(desk.tick().events) == 1


def dg_run_id() -> str:
    from dagster._core.utils import make_new_run_id

    return make_new_run_id()


def test_a_tick_that_was_killed_before_dagster_heard_tells_once_more_and_one_that_it_heard_does_not(
    desk: Desk,
) -> None:
    desk.broker.set("orders", 15)
    desk.land(*desk.tick().requests, tells=False)
    assert len(desk.evaluate().events) == 2
    killed = desk.evaluate()
    assert len(killed.events) == 2
    for event in killed.events:  # heard, and killed before the cursor was written
        desk.instance.report_runless_asset_event(event)
    assert desk.tick().events == []


def test_an_empty_dagster_hears_all_over_several_ticks(landed: Desk) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        other = Desk(landed.engine, instance, landed.broker, landed.stream)
        assert until_quiet(other, most=5) == [5, 5, 2, 0]
        assert other.told == landed.told
        assert set(other.keys) == set(landed.keys)
        assert scalar(landed.engine, "select count(*) from orders") == 120


def test_a_key_that_was_given_up_comes_back_to_an_empty_dagster(desk: Desk) -> None:
    desk.broker.set("orders", 30)
    desk.tick()
    bad = SliceKey.parse("orders:0:10-20")
    desk.publish([key for key in map(SliceKey.parse, desk.keys) if key != bad])
    held = claim(desk.engine, list(find(desk.engine, asset=ASSET, keys=[bad]).values()), run_id="bad")
    assert record_failure(desk.engine, held, reason="no good", max_attempts=1)
    desk.tick()
    with dg.DagsterInstance.ephemeral() as instance:
        other = Desk(desk.engine, instance, desk.broker, desk.stream)
        until_quiet(other, most=5)
        assert set(other.keys) == set(desk.keys)
        assert str(bad) not in other.told
        other.publish([bad])
        other.tick()
        assert other.told == set(other.keys)


@pytest.mark.parametrize("given_up", [True, False])
def test_the_key_of_a_slice_that_is_skipped_goes_at_the_next_tick(desk: Desk, given_up: bool) -> None:
    desk.broker.set("orders", 30)
    desk.tick()
    bad = SliceKey.parse("orders:0:10-20")
    if given_up:
        held = claim(desk.engine, list(find(desk.engine, asset=ASSET, keys=[bad]).values()), run_id="bad")
        assert record_failure(desk.engine, held, reason="no good", max_attempts=1)
    desk.publish([key for key in map(SliceKey.parse, desk.keys) if key != bad])
    until_quiet(desk, most=5)
    assert str(bad) in desk.keys
    with write(desk.engine) as connection:
        connection.execute(text("update kafka_slice set kind = 'skipped', reason = 'by hand' where start_offset = 10"))
        connection.execute(text("update kafka_publication set state = 'planned' where state = 'failed'"))
    desk.tick()
    assert set(desk.keys) == {"orders:0:0-10", "orders:0:20-30"} == desk.told
    until_quiet(desk, most=5)
    assert str(bad) not in desk.keys, "and stays away"


def test_what_was_wiped_is_told_again_by_the_sweep(landed: Desk) -> None:
    landed.instance.wipe_assets([KEY])
    for key in landed.keys[3:]:
        landed.instance.delete_dynamic_partition(landed.stream.partitions_name, key)
    assert sum(len(landed.tick().events) for _ in range(6)) == 12
    assert len(landed.told) == 12
    assert landed.told == set(landed.keys)


def test_a_replay_whose_run_died_is_told_again_by_the_sweep(landed: Desk) -> None:
    landed.publish([SliceKey.parse("orders:1:10-20")], tells=False, replaces=True)
    told = [event for _ in range(3) for event in landed.tick().events]
    assert [(event.partition, event.metadata["attempt"].value) for event in told] == [("orders:1:10-20", 2)]


def test_keys_are_forgotten_and_never_told_again_and_the_ledger_keeps_all(landed: Desk) -> None:
    landed.stream = orders(keep_keys="30d")
    landed.tick()
    assert len(landed.keys) == 12
    age(landed, 31, "id <= 8")
    for _ in range(4):
        assert landed.tick().events == []
    assert len(landed.keys) == 4
    assert Cursor.parse(landed.cursor).settled == {"orders": 8}
    assert scalar(landed.engine, "select count(*) from kafka_publication where state = 'committed'") == 12
    with dg.DagsterInstance.ephemeral() as instance:
        other = Desk(landed.engine, instance, landed.broker, landed.stream)
        assert [len(other.tick().events) for _ in range(3)] == [0, 4, 0]


def test_a_cursor_of_something_else_is_an_empty_one(landed: Desk) -> None:
    for strange in ("", "17", "null", "[]", "{}", '{"met": "x"}'):
        assert Cursor.parse(strange) == Cursor()
    landed.cursor = Cursor(met=10**6, swept=10**6).written()  # another ledger's, with more in it
    landed.broker.set("orders", 110, 20)
    landed.land(*landed.tick().requests, tells=False)
    assert sum(len(landed.tick().events) for _ in range(3)) == 1


def test_a_cursor_survives_being_written() -> None:
    cursor = Cursor(met=9, waiting={1, 2, 3, 7}, swept=4, settled={"a": 3}, unsettled={"b"}, turn=2)
    assert Cursor.parse(cursor.written()) == cursor
    assert '"1-3 7"' in cursor.written()


def test_slices_that_wait_are_met_once_and_followed(desk: Desk) -> None:
    desk.broker.set("orders", 30)
    desk.tick()
    assert Cursor.parse(desk.tick().cursor).waiting == {1, 2, 3}
    desk.publish([SliceKey.parse("orders:0:10-20")], tells=False)  # out of order
    assert [event.partition for event in desk.tick().events] == ["orders:0:10-20"]
    assert Cursor.parse(desk.cursor).waiting == {1, 3}


def test_dagsters_storage_is_deleted_half_way(desk: Desk, tmp_path: Path) -> None:
    """With its default storage: files, and the cursor goes with them."""
    desk.stream = orders(slices={"per_tick": 6})
    desk.broker.set("orders", 60, 60)
    for number in range(2):
        folder = tmp_path / f"dagster_{number}"
        folder.mkdir()
        with dg.DagsterInstance.local_temp(str(folder)) as instance:
            now = Desk(desk.engine, instance, desk.broker, desk.stream)
            if number == 0:
                now.land(*now.tick().requests)
                assert now.tick().requests  # asked for, and lost with the storage
            else:
                with write(desk.engine) as connection:  # a minute later
                    connection.execute(text("update kafka_claim set not_before = 0"))
                now.settle()
                assert len(now.told) == 12
                assert now.told == set(now.keys)
        shutil.rmtree(folder)
    assert scalar(desk.engine, "select count(*) from orders") == 120
    assert scalar(desk.engine, "select max(committed_attempt) from kafka_publication") == 1
