"""What the one transaction promises, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, func, select, text, update
from sqlalchemy import table as named_table

from kafka_assets.errors import (
    CountsDisagree,
    Fenced,
    LeaseHeld,
    SliceFailed,
    SliceRefused,
    TableIncompatible,
    TopicChanged,
)
from kafka_assets.ledger import claims, fences, planning, publishing
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.claims import record_failure, release
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.fences import Held, kept_alive
from kafka_assets.ledger.observing import LAST_LOOK_MS
from kafka_assets.ledger.publications import find
from kafka_assets.plan import NewSlice, Offsets
from kafka_assets.records import OFFSET, PARTITION, Chunk, Seen
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.inserts import insert_rows
from kafka_assets.sinks.road import road_for
from kafka_assets.sinks.rows import delete_rows
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import (
    SCHEMA,
    Attempt,
    chunk_of,
    committed_through,
    plan,
    quoted,
    rows,
    rows_of,
    scalar,
    target,
)
from kafka_assets_tests.values import CORPUS, as_given, as_python


class PublishContract:
    def test_a_slice_lands_with_its_offsets(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5), (5, 9)])
        Attempt(engine, keys[:1]).claim().publish()
        assert [offset for _, offset, _ in rows_of(engine)] == [0, 1, 2, 3, 4]
        assert committed_through(engine) == 5
        assert scalar(engine, "select next_offset from kafka_committed_offset") == 5

    def test_records_may_have_waited_since_the_last_look_that_did_not_see_them(self, engine: Engine) -> None:
        source = planning.resolve_source(engine, stream="orders", topic="orders", topic_id="id-1")

        def waited(end: int, *, looked_ago: timedelta) -> int | None:
            with write(engine) as connection:
                connection.execute(update(t.progress).values(observed_at=datetime.now(UTC) - looked_ago))
            seen = planning.observe(engine, source, offsets={0: Offsets(0, end, end)}, origins={0: 0}, asset="orders")
            return seen[0].pending_ms

        assert waited(0, looked_ago=timedelta(0)) is None
        assert waited(0, looked_ago=timedelta(seconds=20)) is None
        assert 20_000 <= (waited(5, looked_ago=timedelta(seconds=20)) or 0) < LAST_LOOK_MS
        assert 20_000 <= (waited(7, looked_ago=timedelta(0)) or 0) < LAST_LOOK_MS
        planning.commit_plan(engine, source, 0, expected=0, slices=[NewSlice(0, 7)], asset="orders")
        after_a_pause = waited(9, looked_ago=timedelta(hours=1)) or 0
        assert LAST_LOOK_MS <= after_a_pause < 3_600_000

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

    def test_a_run_that_was_taken_over_reads_no_further(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5)])
        mine, read = Attempt(engine, keys).claim().claims, list[int]()

        def chunks() -> Iterator[Chunk]:
            for number in range(1000):
                read.append(number)
                yield chunk_of(keys[0])
                if number == 1:
                    Attempt(engine, keys, run_id="heir").claim(force=True)
                    _fenced_by_now(held)

        with kept_alive(engine, mine, lease_ms=150) as held, pytest.raises(Fenced, match="taken over"):
            list(held.while_held(chunks)())
        assert len(read) == 3

    def test_what_nobody_thought_of_ends_the_run_whose_lease_it_ends(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        mine = Attempt(engine, plan(engine, slices=[(0, 5)])).claim().claims

        def fail(*given: object, **more: object) -> None:
            raise ZeroDivisionError("nobody thought of it")

        monkeypatch.setattr(fences, "extend", fail)
        with kept_alive(engine, mine, lease_ms=150) as held, pytest.raises(ZeroDivisionError):
            _fenced_by_now(held)
            held.check()
        assert "not extended any more: nobody thought of it" in caplog.text

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

    def test_a_reason_that_no_text_can_hold_is_kept_as_it_can(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5)])
        failed = Attempt(engine, keys).claim()
        record_failure(engine, failed.claims, reason="id: \0 and \ud800", max_attempts=9)
        assert scalar(engine, "select failure from kafka_claim") == "id: ␀ and ?"
        Attempt(engine, keys).claim().publish(chunk_of(keys[0], bad=[3], reason="id: \0 and \ud800"))
        assert scalar(engine, "select reason from kafka_quarantine") == "id: ␀ and ?"

    def test_too_many_bad_records_fail_the_slice_from_a_hundred_on(self, engine: Engine) -> None:
        small, big = plan(engine, slices=[(0, 99), (99, 1099)])
        Attempt(engine, [small]).claim().publish(chunk_of(small, bad=range(99)))
        with pytest.raises(SliceFailed, match="max_bad_ratio") as failed:
            Attempt(engine, [big]).claim().publish(chunk_of(big, bad=range(99, 199), reason="id: x is no number"))
        assert "one of them: id: x is no number (offset 99 of partition 0)" in failed.value.why
        assert [one.offset for one in failed.value.bad] == [99, 100, 101], "some, to be looked at"
        holes = chunk_of(big, offsets=[], bad=range(99, 199), read_count=100)
        with pytest.raises(
            SliceFailed, match="100 bad records of 100"
        ):  # of its offsets few are bad, of its records all
            Attempt(engine, [big]).claim(force=True).publish(holes, policy=BadPolicy("quarantine", 0.5))
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

    def test_of_what_another_run_committed_meanwhile_nothing_is_missed(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Where the old backend can be ended, this attempt is fenced instead.
        monkeypatch.setattr(publishing, "register_backend", lambda *given: None)
        first, second = plan(engine, slices=[(0, 3), (3, 6)])
        mine = Attempt(engine, [first, second]).claim()
        Attempt(engine, [first], run_id="faster").claim(force=True).publish()
        told: list[Mapping[SliceKey, Seen]] = []
        mine.publish(confirm=told.append)
        assert second in told[-1]
        assert all(part.read == 3 for part in told[-1].values()), "it looks as if Kafka had not delivered them"
        assert [offset for _, offset, _ in rows_of(engine)] == [*range(6)]

    def test_a_slice_of_which_nothing_was_delivered_is_asked_for(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 3), (3, 6)])
        told: list[Mapping[SliceKey, Seen]] = []
        Attempt(engine, [first, second]).claim().publish(chunk_of(first), confirm=told.append)
        assert {key: part.read for key, part in told[-1].items()} == {first: 3, second: 0}

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

    def test_of_a_run_that_somebody_ends_while_it_writes_nothing_stays_and_nothing_is_held(
        self, engine: Engine
    ) -> None:
        [key] = plan(engine, slices=[(0, 6)])

        def ended() -> None:
            raise KeyboardInterrupt

        for _ in range(3):
            attempt = Attempt(engine, [key]).claim()
            with pytest.raises(KeyboardInterrupt):
                attempt.publish(chunk_of(key), between=ended)
            assert not record_failure(engine, attempt.claims, reason="ended", max_attempts=1, counts=False)
        assert rows_of(engine) == []
        assert rows(engine, "select failures_alone, failure from kafka_claim") == [(0, "ended")]
        Attempt(engine, [key]).claim().publish()
        assert [offset for _, offset, _ in rows_of(engine)] == [*range(6)]
        assert scalar(engine, "select committed_attempt from kafka_publication") == 4

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

    def test_an_attempt_that_nobody_ended_commits_nothing_after_a_takeover(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Ending the old backend is the first fence, and hides whether there is a second one.
        monkeypatch.setattr(claims, "terminate", lambda *given: True)
        monkeypatch.setattr(publishing, "register_backend", lambda *given: None)
        keys = plan(engine, slices=[(0, 5)])

        def taken_over(seen: object) -> None:
            Attempt(engine, keys, run_id="heir").claim(force=True)

        with pytest.raises(Fenced):
            Attempt(engine, keys).claim().publish(confirm=taken_over)
        assert rows_of(engine) == []
        assert scalar(engine, "select state from kafka_publication") == "planned"

    def test_a_claim_reads_again_when_the_holder_registered_another_backend_meanwhile(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = plan(engine, slices=[(0, 5)])
        holder = Attempt(engine, keys, run_id="holder").claim()
        claims.register_backend(engine, holder.claims, f"{engine.dialect.name}:1:1")
        ended: list[str] = []

        def end(_: Engine, backend: str) -> bool:
            if not ended:
                claims.register_backend(engine, holder.claims, f"{engine.dialect.name}:2:2")
            ended.append(backend.split(":")[1])
            return True

        monkeypatch.setattr(claims, "terminate", end)
        Attempt(engine, keys).claim(force=True)
        assert ended == ["1", "2"]

    def test_two_runs_that_read_the_same_claim_never_hold_the_same_attempt(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = plan(engine, slices=[(0, 5)])
        # On SQLite all runs of this process have one backend: from now on, that alone tells nobody apart.
        Attempt(engine, keys, run_id="before").claim()
        faster, slower = Attempt(engine, keys, run_id="faster"), Attempt(engine, keys, run_id="slower")
        read_claims = claims._read_claims

        def overtaken(*given: Any) -> Any:
            found = read_claims(*given)
            monkeypatch.setattr(claims, "_read_claims", read_claims)
            faster.claim(force=True)
            return found

        monkeypatch.setattr(claims, "_read_claims", overtaken)
        slower.claim(force=True)
        assert [faster.claims[0].attempt, slower.claims[0].attempt] == [2, 3]

    def test_a_lease_that_a_run_left_behind_holds_up_nobody_who_knows_that_it_is_over(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5), (5, 8)])
        Attempt(engine, keys[:1], run_id="killed").claim()
        Attempt(engine, keys[1:], run_id="another").claim()
        found = list(find(engine, asset="orders", keys=keys).values())
        with pytest.raises(LeaseHeld, match="run killed"):
            claims.claim(engine, found[:1], run_id="retry", over={"another"})
        with pytest.raises(LeaseHeld, match="run another"):
            claims.claim(engine, found, run_id="retry", over={"killed"})
        [taken] = claims.claim(engine, found[:1], run_id="retry", over={"killed"})
        assert taken.attempt == 2
        with pytest.raises(LeaseHeld, match="run retry"):
            claims.claim(engine, found[:1], run_id="second retry", over={"killed"})

    def test_a_zombie_leaves_the_heir_s_claim_alone(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5)])
        zombie = Attempt(engine, keys, run_id="zombie").claim()
        heir = Attempt(engine, keys, run_id="heir").claim(force=True)
        claims.register_backend(engine, heir.claims, "the heir's")
        before = rows(engine, "select * from kafka_claim")
        with pytest.raises(Fenced):
            claims.extend(engine, zombie.claims)
        with pytest.raises(Fenced):
            claims.register_backend(engine, zombie.claims, "the zombie's")
        release(engine, zombie.claims)
        record_failure(engine, zombie.claims, reason="no", max_attempts=1)
        assert rows(engine, "select * from kafka_claim") == before
        assert scalar(engine, "select state from kafka_publication") == "planned"

    def test_a_planner_that_saw_the_topic_before_it_was_deleted_plans_nothing_of_it(self, engine: Engine) -> None:
        plan(engine, slices=[(0, 5)], end=9)
        old = planning.resolve_source(engine, stream="orders", topic="orders", topic_id="id-1")
        planning.resolve_source(engine, stream="orders", topic="orders", topic_id="id-2")
        with pytest.raises(TopicChanged):
            planning.commit_plan(engine, old, 0, expected=9, slices=[NewSlice(9, 12)], asset="orders")
        assert scalar(engine, "select max(end_offset) from kafka_slice") == 9

    def test_a_second_sensor_and_a_failure_leave_a_committed_result_alone(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5)])
        Attempt(engine, keys).claim().publish()
        again = Attempt(engine, keys, run_id="again").claim(force=True)
        assert rows(engine, "select state, committed_attempt, run_id from kafka_publication") == [
            ("committed", 1, "run-1")
        ]
        [published] = again.publish()
        assert published.outcome is None

    @pytest.mark.parametrize("name", ["select", "Order Lines", "per%cent", 'quo"te', "back`tick", "Größe 大", "a:b"])
    def test_tables_and_columns_of_any_name(self, engine: Engine, name: str) -> None:
        schema = pa.schema([(name, pa.int64()), (PARTITION, pa.int32()), (OFFSET, pa.int64())])
        road = road_for(engine)
        if "`" in name and engine.dialect.name in {"mysql", "mariadb"}:
            with pytest.raises(TableIncompatible, match="backtick"):
                road.quoted(name)
            return
        for _ in range(2):  # the second time, it is there and fits
            table = ensure_table(engine, road, name=name, asset="named", schema=schema)
        key = plan(engine, slices=[(0, 3)])[0]
        columns = [pa.array([1, 2, 3]), pa.array([0, 0, 0], pa.int32()), pa.array([0, 1, 2])]
        with write(engine) as connection:
            road.insert(connection, table, pa.table(columns, schema=schema), source_id=1)
            source = find(engine, asset="orders", keys=[key])[key].source_id
            road.insert(connection, table, pa.table(columns, schema=schema), source_id=source + 1)
            delete_rows(connection, table, replace(find(engine, asset="orders", keys=[key])[key], source_id=1))
        with read(engine) as connection:
            assert connection.scalar(select(func.count()).select_from(named_table(name))) == 3

    def test_rows_in_parts_of_which_some_are_empty_are_inserted(self, engine: Engine) -> None:
        table, made = target(engine), chunk_of(SliceKey("orders", 1, 0, 0, 4)).rows
        nothing = made.slice(0, 0)
        parts = pa.concat_tables([nothing, made.slice(0, 2), nothing, made.slice(2, 2), nothing])
        assert 0 in [batch.num_rows for batch in parts.to_batches()], "as a filter leaves them"
        inserts = [road_for(engine).insert]
        if engine.dialect.name in {"mysql", "mariadb"}:  # the road that local_infile is not there for
            inserts.append(partial(insert_rows, road=road_for(engine)))
        for number, insert in enumerate(inserts, start=1):
            with write(engine) as connection:
                insert(connection=connection, table=table, rows=parts, source_id=number)
        assert rows(engine, "select id, count(*) from orders group by id order by id") == [
            (number, len(inserts)) for number in range(4)
        ]

    @pytest.mark.parametrize(
        ("change", "difference"),
        [
            ("drop column note", "no column 'note'"),
            ("add column more bigint not null", "'more' must have a value"),
            ("add column more bigint", None),
            ("add column more bigint not null default 7", None),
        ],
    )
    def test_a_table_that_does_not_fit_is_refused_before_any_work(
        self, engine: Engine, change: str, difference: str | None
    ) -> None:
        if engine.dialect.name == "sqlite" and difference and "must" in difference:
            return  # it adds no such column
        target(engine)
        with write(engine) as connection:
            connection.execute(text(f"alter table orders {change}"))
        with nullcontext() if difference is None else pytest.raises(TableIncompatible, match=difference):
            target(engine)

    def test_a_name_that_would_be_cut_is_refused(self, engine: Engine) -> None:
        if engine.dialect.name == "sqlite":
            return  # it has no limit
        for name in ("x" * 65, "日" * 65):
            with pytest.raises(TableIncompatible, match="cannot have"):
                ensure_table(engine, road_for(engine), name=name, asset="long", schema=SCHEMA)

    @pytest.mark.parametrize("column", list(CORPUS))
    def test_values_land_exactly(self, engine: Engine, column: str) -> None:
        values = CORPUS[column]
        places = list(range(len(values)))
        given = pa.table(
            {column: values, PARTITION: pa.array([0] * len(values), pa.int32()), OFFSET: pa.array(places, pa.int64())}
        )
        road = road_for(engine)
        table = ensure_table(engine, road, name="typed", asset="typed", schema=given.schema)
        ensure_table(engine, road, name="typed", asset="typed", schema=given.schema)
        with write(engine) as connection:
            road.insert(connection, table, given, source_id=1)
        kept = rows(engine, f"select {quoted(engine, column)} from typed order by kafka_offset")
        assert [as_given(value, values.type) for (value,) in kept] == as_python(values)


def _fenced_by_now(held: Held) -> None:
    """Wait until the thread that extends the leases has met what ends it."""
    for _ in range(600):
        time.sleep(0.05)
        try:
            held.check()
        except Exception:  # noqa: BLE001 - whatever it is, the run's next step raises it
            return
    raise AssertionError("the lease is extended still")
