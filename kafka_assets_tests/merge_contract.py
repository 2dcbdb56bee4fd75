"""What an upsert table promises, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import ClassVar

import pytest
from sqlalchemy import Engine, text

from kafka_assets.errors import CountsDisagree, KeyMoved, RowsRefused, TableIncompatible
from kafka_assets.ledger.engine import write
from kafka_assets_tests.ledgers import Attempt, committed_through, plan, scalar
from kafka_assets_tests.ledgers import target as append_target
from kafka_assets_tests.upserts import (
    BY_COLUMN,
    BY_OFFSET,
    BY_TIMESTAMP,
    Gone,
    Put,
    Upsert,
    chunk_of,
    counts,
    land,
    standing,
    target,
    tombstones,
)

# A key's life in three slices, and what must stand whenever those of them were committed.
LIVES = {
    "put gone put": (Put(0, 7, "first"), Gone(1, 7), Put(2, 7, "last")),
    "put put gone": (Put(0, 7, "first"), Put(1, 7, "second"), Gone(2, 7)),
    "gone put put": (Gone(0, 7), Put(1, 7, "second"), Put(2, 7, "last")),
    "gone gone put": (Gone(0, 7), Gone(1, 7), Put(2, 7, "last")),
}


class MergeContract:
    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_the_later_version_wins_whichever_commits_first(self, engine: Engine, order: tuple[int, int]) -> None:
        keys = plan(engine, slices=[(0, 1), (1, 2)])
        records = [Put(0, 7, "old"), Put(1, 7, "new")]
        for number in order:
            land(engine, keys[number], records[number])
        assert standing(engine) == {7: "new"}
        assert committed_through(engine) == 2
        assert counts(engine)[0] == ((1, 1, 0, 0, 0, 0) if order == (0, 1) else (1, 0, 1, 0, 0, 0))

    histories: ClassVar[dict[str, list[tuple[int, ...]]]] = {
        # As in model C: all three slices in any order, and any of them again at any time.
        "put gone put": [order for order in itertools.product(range(3), repeat=4) if len({*order}) == 3],
        **{life: list(itertools.permutations(range(3))) for life in list(LIVES)[1:]},
    }

    @pytest.mark.slow
    def test_slices_in_any_order_and_any_replay_come_to_the_same_end(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 1), (1, 2), (2, 3)])
        target(engine)
        for life, histories in self.histories.items():
            records = LIVES[life]
            for history in histories:
                _empty(engine)
                for step, number in enumerate(history, start=1):
                    land(engine, keys[number], records[number])
                    newest = records[max(history[:step])]
                    expected = {7: newest.note} if isinstance(newest, Put) else {}
                    assert standing(engine) == expected, (life, history[:step])
                    assert len(tombstones(engine)) == (not expected)

    def test_of_several_versions_in_one_slice_the_last_one_lands(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 9)])
        first = chunk_of(keys[0], Put(0, 1, "a"), Put(1, 1, "b"), Put(2, 2, "a"), Gone(3, 2), Put(4, 3, "a"))
        second = chunk_of(keys[0], Put(5, 1, "c"), Gone(6, 3), Put(7, 3, "b"), Gone(8, 4))
        Attempt(engine, keys).claim().publish(first, second, table=target(engine))
        assert standing(engine) == {1: "c", 3: "b"}
        assert counts(engine) == [(9, 2, 5, 0, 0, 2)]
        assert tombstones(engine) == ['{"id":2}', '{"id":4}']

    def test_slices_of_one_run_are_counted_apart(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 2), (2, 5)])
        chunks = [chunk_of(keys[0], Put(0, 1), Put(1, 2)), chunk_of(keys[1], Put(2, 1, "b"), Gone(3, 3), read=3)]
        Attempt(engine, keys).claim().publish(*chunks, table=target(engine))
        assert counts(engine) == [(2, 1, 1, 0, 0, 0), (3, 1, 0, 1, 0, 1)]
        assert standing(engine) == {1: "b", 2: "a"}

    def test_a_replay_writes_again_what_it_wrote_and_takes_nothing_away(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 3), (3, 4)])
        land(engine, first, Put(0, 1), Put(1, 2), Put(2, 3))
        land(engine, second, Put(3, 3, "later"))
        # Corrected code, on a topic that was compacted since: offset 0 is gone.
        land(engine, first, Put(1, 2, "again"), Put(2, 3, "again"))
        assert standing(engine) == {1: "a", 2: "again", 3: "later"}
        assert counts(engine)[0] == (2, 1, 1, 0, 0, 0)

    def test_a_key_in_another_partition_fails_the_slice(self, engine: Engine) -> None:
        [first] = plan(engine, slices=[(0, 3)])
        [second] = plan(engine, slices=[(0, 3)], partition=1)
        land(engine, first, Put(0, 1), Gone(1, 2))
        for record in (Put(2, 1), Gone(2, 1), Put(2, 2), Gone(2, 2)):
            with pytest.raises(KeyMoved, match=r"met in partition 1 .*and before in partition 0"):
                land(engine, second, record)
        assert standing(engine) == {1: "a"}
        land(engine, second, Put(2, 3))
        assert standing(engine) == {1: "a", 3: "a"}

    def test_a_key_in_two_partitions_of_one_run_fails_it(self, engine: Engine) -> None:
        keys = [*plan(engine, slices=[(0, 3)]), *plan(engine, slices=[(0, 3)], partition=1)]
        chunks = [chunk_of(keys[0], Put(0, 2), Put(1, 1)), chunk_of(keys[1], Put(0, 3), Put(2, 1))]
        with pytest.raises(KeyMoved, match=r"met in partition 0 \(offset 1\), and before in partition 1"):
            Attempt(engine, keys).claim().publish(*chunks, table=target(engine))

    def test_a_key_may_be_in_another_partition_of_a_topic_created_again(self, engine: Engine) -> None:
        [old] = plan(engine, slices=[(0, 3)])
        land(engine, old, Put(1, 1, "old"))
        [new] = plan(engine, slices=[(0, 3)], topic_id="id-2", partition=1)
        chunks = [chunk_of(old, Put(1, 1, "old"), Put(2, 1, "old")), chunk_of(new, Put(0, 1, "new"))]
        Attempt(engine, [old, new], replaces=True).claim(force=True).publish(*chunks, table=target(engine))
        assert standing(engine) == {1: "new"}

    @pytest.mark.parametrize("upsert", [BY_TIMESTAMP, BY_COLUMN], ids=lambda one: one.order_by)
    def test_partitions_may_differ_where_a_value_orders(self, engine: Engine, upsert: Upsert) -> None:
        [first] = plan(engine, slices=[(0, 9)])
        [second] = plan(engine, slices=[(0, 9)], partition=1)
        land(engine, second, Put(0, 1, "later", at=20), Put(1, 2, "p1", at=10), Gone(2, 3, at=20), upsert=upsert)
        late = (Put(5, 1, "x", at=10), Put(6, 2, "p0", at=10), Put(7, 3, "x", at=19), Put(8, 4))
        land(engine, first, *late, upsert=upsert)
        # Equal values: the higher partition, then the higher offset.
        assert standing(engine) == {1: "later", 2: "p1", 4: "a"}
        land(engine, first, Put(6, 3, "back", at=21), upsert=upsert)
        assert standing(engine) == {1: "later", 2: "p1", 3: "back", 4: "a"}

    @pytest.mark.parametrize("upsert", [BY_TIMESTAMP, BY_COLUMN], ids=lambda one: one.order_by)
    def test_a_late_record_of_an_earlier_time_loses(self, engine: Engine, upsert: Upsert) -> None:
        [only] = plan(engine, slices=[(0, 4)])
        land(engine, only, Put(0, 1, "new", at=9), Put(1, 1, "late", at=3), Gone(2, 1, at=5), upsert=upsert)
        assert standing(engine) == {1: "new"}
        assert counts(engine) == [(3, 1, 2, 0, 0, 0)]

    def test_a_topic_created_again_outranks_the_old_one(self, engine: Engine) -> None:
        old = plan(engine, slices=[(0, 50)])
        land(engine, old[0], Put(40, 1, "old"), Put(41, 2, "old"), Gone(42, 3), Put(43, 4, "old"))
        [new] = plan(engine, slices=[(0, 5)], topic_id="id-2", partition=1)
        land(engine, new, Put(0, 1, "new"), Gone(1, 2), Put(2, 3, "new"))
        assert standing(engine) == {1: "new", 3: "new", 4: "old"}

    def test_keys_that_differ_in_little_are_apart(self, engine: Engine) -> None:
        upsert = Upsert(("note",), "offset")
        [key] = plan(engine, slices=[(0, 20)])
        notes = ["", " ", "a", "a ", "A", "ä", "a\u0308", "ａ", "'", "%s:x", "\\", "\t", "😀"]
        land(engine, key, *(Put(offset, offset, note) for offset, note in enumerate(notes)), upsert=upsert)
        land(engine, key, *(Put(offset, offset + 100, note) for offset, note in enumerate(notes)), upsert=upsert)
        assert {note: number for number, note in standing(engine).items()} == {
            note: offset + 100 for offset, note in enumerate(notes)
        }
        assert counts(engine) == [(len(notes), len(notes), 0, 0, 0, 0)]

    def test_a_row_without_its_key_is_never_taken(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 3)])
        land(engine, keys[0], Put(0, 1), Put(1, None))
        assert standing(engine) == {1: "a"}
        assert counts(engine) == [(2, 1, 0, 0, 1, 0)]

    def test_a_record_that_became_two_rows_is_refused(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 3)])
        with pytest.raises(RowsRefused, match="one row per record"):
            land(engine, keys[0], Put(0, 1), Put(0, 2))

    def test_deletes_that_got_lost_on_the_way_are_no_filtered_records(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 3)])
        whole = chunk_of(key, Put(0, 1), Gone(1, 2), Gone(2, 3))
        assert whole.deletes is not None
        for part in (None, whole.deletes.slice(0, 1)):
            with pytest.raises(CountsDisagree, match="delete their key"):
                Attempt(engine, [key]).claim(force=True).publish(replace(whole, deletes=part), table=target(engine))

    def test_the_last_record_of_kafka_is_asked_for_before_the_asset_is_locked(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 1)])

        def gone(seen: object) -> None:
            raise CountsDisagree("gone")

        with pytest.raises(CountsDisagree):
            land(engine, key, Put(0, 1), confirm=gone)
        assert standing(engine) == {}

    def test_a_table_keeps_its_mode_key_and_order(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 3)])
        land(engine, key, Put(0, 1))
        assert scalar(engine, "select key_columns from kafka_target") == '["id"]'
        for other in (BY_COLUMN, BY_TIMESTAMP, Upsert(("id", "rank"), "offset")):
            with pytest.raises(TableIncompatible):
                target(engine, other)
        with pytest.raises(TableIncompatible, match="mode upsert"):
            append_target(engine)
        assert target(engine).upsert == BY_OFFSET

    def test_a_table_in_which_nothing_landed_takes_another_key(self, engine: Engine) -> None:
        target(engine)
        target(engine, Upsert(("id", "rank"), "offset"))
        assert scalar(engine, "select key_columns from kafka_target") == '["id", "rank"]'
        target(engine, BY_COLUMN)
        assert scalar(engine, "select key_columns from kafka_target") == '["id"]'

    def test_a_table_that_orders_by_a_value_refuses_the_offset(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 3)])
        land(engine, key, Put(0, 1), upsert=BY_COLUMN)
        with pytest.raises(TableIncompatible, match="kafka_order_rank"):
            target(engine)

    @pytest.mark.parametrize("upsert", [Upsert(("nothing",), "offset"), Upsert(("id",), "note")])
    def test_a_key_or_order_that_cannot_be_is_refused_before_any_work(self, engine: Engine, upsert: Upsert) -> None:
        with pytest.raises(TableIncompatible):
            target(engine, upsert)


def _empty(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(text("delete from orders"))
        connection.execute(text("delete from kafka_tombstone"))
