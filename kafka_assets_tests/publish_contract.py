"""What the one transaction promises, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import CountsDisagree, Fenced, LeaseHeld, SliceFailed, SliceRefused
from kafka_assets.ledger import planning
from kafka_assets.ledger.claims import record_failure, release
from kafka_assets.plan import NewSlice
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets_tests.ledgers import Attempt, chunk_of, committed_through, plan, rows, rows_of, scalar


class PublishContract:
    def test_a_slice_lands_with_its_offsets(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5), (5, 9)])
        Attempt(engine, keys[:1]).claim().publish()
        assert [offset for _, offset, _ in rows_of(engine)] == [0, 1, 2, 3, 4]
        assert committed_through(engine) == 5
        assert scalar(engine, "select next_offset from kafka_committed_offset") == 5

    def test_slices_commit_in_any_order_and_committed_through_waits_for_the_lowest(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 5), (5, 9)])
        Attempt(engine, [second]).claim().publish()
        assert committed_through(engine) == 0
        Attempt(engine, [first]).claim().publish()
        assert committed_through(engine) == 9

    def test_a_zombie_cannot_commit_after_a_takeover(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5)])
        zombie = Attempt(engine, keys, run_id="zombie").claim()
        heir = Attempt(engine, keys, run_id="heir").claim(force=True)
        with pytest.raises(Fenced):
            zombie.publish(chunk_of(keys[0], note="zombie"))
        assert rows_of(engine) == []
        heir.publish(chunk_of(keys[0], note="heir"))
        assert {note for _, _, note in rows_of(engine)} == {"heir"}

    def test_a_zombie_that_wakes_after_the_heir_committed_changes_nothing(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5)])
        zombie = Attempt(engine, keys, run_id="zombie", replaces=True).claim()
        Attempt(engine, keys, run_id="heir").claim(force=True).publish(chunk_of(keys[0], note="heir"))
        with pytest.raises(Fenced):
            zombie.publish(chunk_of(keys[0], note="zombie"))
        assert {note for _, _, note in rows_of(engine)} == {"heir"}
        assert scalar(engine, "select run_id from kafka_publication") == "heir"

    def test_a_live_lease_is_respected_and_an_ended_one_is_taken_over(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5)])
        Attempt(engine, keys, run_id="first").claim(lease_ms=60_000)
        with pytest.raises(LeaseHeld, match="first"):
            Attempt(engine, keys).claim()
        other = plan(engine, slices=[(5, 9)])
        Attempt(engine, other, run_id="dead").claim(lease_ms=-1)
        assert Attempt(engine, other).claim().claims[0].attempt == 2

    def test_a_replay_replaces_its_own_rows_and_no_others(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 3), (3, 6)])
        attempt = Attempt(engine, keys).claim()
        attempt.publish(chunk_of(keys[0]), chunk_of(keys[1]))
        release(engine, attempt.claims)
        Attempt(engine, keys[:1], replaces=True).claim().publish(chunk_of(keys[0], note="b"))
        assert [note for _, _, note in rows_of(engine)] == ["b", "b", "b", "a", "a", "a"]
        assert scalar(engine, "select max(committed_attempt) from kafka_publication") == 2

    def test_a_run_of_the_sensor_does_nothing_for_what_is_committed(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 3)])
        Attempt(engine, keys).claim().publish()
        late = Attempt(engine, keys, run_id="late").claim(force=True).publish(chunk_of(keys[0], note="late"))
        assert [one.outcome for one in late] == [None]
        assert {note for _, _, note in rows_of(engine)} == {"a"}

    def test_a_replay_with_fewer_records_is_refused_unless_forced(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5)])
        Attempt(engine, keys).claim().publish()
        fewer = chunk_of(keys[0], offsets=[0, 1, 2])
        with pytest.raises(SliceRefused, match="lose records"):
            Attempt(engine, keys, replaces=True).claim(force=True).publish(fewer)
        assert len(rows_of(engine)) == 5
        Attempt(engine, keys, replaces=True, force=True).claim(force=True).publish(fewer)
        assert len(rows_of(engine)) == 3
        assert scalar(engine, "select holes from kafka_publication") == 2

    def test_bad_records_are_quarantined_with_their_slice(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5)])
        Attempt(engine, keys).claim().publish(chunk_of(keys[0], bad=[2]))
        assert [offset for _, offset, _ in rows_of(engine)] == [0, 1, 3, 4]
        assert scalar(engine, "select kafka_offset from kafka_quarantine") == 2
        Attempt(engine, keys, replaces=True).claim(force=True).publish(chunk_of(keys[0]))
        assert scalar(engine, "select count(*) from kafka_quarantine") == 0
        assert len(rows_of(engine)) == 5

    def test_too_many_bad_records_fail_the_slice_from_a_hundred_on(self, engine: Engine) -> None:
        small, big = plan(engine, slices=[(0, 99), (99, 1099)])
        Attempt(engine, [small]).claim().publish(chunk_of(small, bad=range(99)))
        with pytest.raises(SliceFailed, match="max_bad_ratio"):
            Attempt(engine, [big]).claim().publish(chunk_of(big, bad=range(99, 199)))
        with pytest.raises(SliceFailed, match="on_bad"):
            Attempt(engine, [big]).claim(force=True).publish(chunk_of(big, bad=[100]), policy=BadPolicy("fail", 1.0))
        assert rows_of(engine) == []
        assert scalar(engine, "select count(*) from kafka_quarantine") == 99

    def test_a_transform_that_doubles_a_record_is_refused_by_the_database(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 3)])
        with pytest.raises((SliceFailed, CountsDisagree)):
            Attempt(engine, keys).claim().publish(chunk_of(keys[0], offsets=[0, 1, 1], read_count=3))
        assert rows_of(engine) == []

    def test_a_row_from_outside_its_slice_is_refused(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 3)])
        with pytest.raises(CountsDisagree, match="outside"):
            Attempt(engine, keys).claim().publish(chunk_of(keys[0], offsets=[0, 1, 7]))

    def test_expired_offsets_are_recorded_and_the_rest_lands(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10)])
        Attempt(engine, keys).claim().publish(chunk_of(keys[0], offsets=range(4, 10)), expired={keys[0]: 4})
        assert rows(engine, "select expired, holes, landed from kafka_publication") == [(4, 0, 6)]
        assert committed_through(engine) == 10

    def test_what_the_broker_says_after_the_last_record_can_still_stop_the_commit(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 3)])

        def gone(seen: object) -> None:
            raise SliceRefused("gone")

        with pytest.raises(SliceRefused):
            Attempt(engine, keys).claim().publish(confirm=gone)
        assert rows_of(engine) == []

    def test_a_failed_replay_never_touches_a_result(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 3)])
        Attempt(engine, keys).claim().publish()
        before = rows(engine, "select state, committed_attempt, run_id from kafka_publication")
        again = Attempt(engine, keys, replaces=True).claim(force=True)
        for _ in range(3):
            record_failure(engine, again.claims, reason="no", max_attempts=1)
        assert rows(engine, "select state, committed_attempt, run_id from kafka_publication") == before
        assert committed_through(engine) == 3

    def test_what_fails_alone_too_often_is_given_up_and_its_neighbours_go_on(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 3), (3, 6)])
        for number in range(1, 4):
            attempt = Attempt(engine, [first]).claim(force=True)
            assert record_failure(engine, attempt.claims, reason="no", max_attempts=3) is (number == 3)
        assert scalar(engine, "select state from kafka_publication order by id limit 1") == "failed"
        Attempt(engine, [second]).claim().publish()
        assert committed_through(engine) == 0

    def test_two_planners_cannot_plan_the_same_offsets(self, engine: Engine) -> None:
        plan(engine, slices=[(0, 5)])
        source = planning.resolve_source(engine, stream="orders", topic="orders", topic_id="id-1")
        late = planning.commit_plan(engine, source, 0, expected=0, slices=[NewSlice(0, 7)], asset="orders")
        assert late is None
        assert scalar(engine, "select count(*) from kafka_slice") == 1
        assert scalar(engine, "select planned_through from kafka_progress") == 5

    def test_a_topic_created_again_is_a_new_source_and_the_rest_of_the_old_one_is_lost(self, engine: Engine) -> None:
        old = plan(engine, slices=[(0, 5), (5, 8)], end=12)
        Attempt(engine, old[:1]).claim().publish()
        new = plan(engine, slices=[(0, 4)], topic_id="id-2")
        assert str(new[0]) == "orders:0:0-4:2"
        Attempt(engine, new).claim().publish()
        assert len(rows_of(engine)) == 5 + 4
        lost = "select start_offset, end_offset from kafka_slice where kind = 'lost' order by start_offset"
        assert rows(engine, lost) == [(5, 8), (8, 12)]
        assert scalar(engine, "select count(*) from kafka_gap") == 0
