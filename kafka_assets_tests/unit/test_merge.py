"""The merge on SQLite: the suite that all databases share, and what breaks where a step of it is left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import CountsDisagree, KafkaAssetsError
from kafka_assets.ledger.engine import write
from kafka_assets.sinks import merge, versions
from kafka_assets.sinks.merge import Merge
from kafka_assets.sinks.modes import Upserting
from kafka_assets.sinks.rows import delete_rows
from kafka_assets_tests.ledgers import plan
from kafka_assets_tests.merge_contract import MergeContract
from kafka_assets_tests.upserts import BY_COLUMN, Gone, Put, land, standing, target


class TestMergeOnSQLite(MergeContract):
    """The engine is the unit tests' own."""


@pytest.mark.slow
def test_without_the_tombstone_s_version_an_older_slice_brings_a_row_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = plan(engine, slices=[(0, 1), (1, 2)])
    land(engine, second, Gone(1, 7))
    land(engine, first, Put(0, 7))
    assert standing(engine) == {}
    monkeypatch.setattr(Merge, "_drop_buried", lambda self: None)
    land(engine, first, Put(0, 7))
    assert standing(engine) == {7: "a"}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["_drop_older", "_drop_buried", "_forget_tombstones", "_keep_tombstones", "_delete"])
def test_no_step_of_the_merge_can_be_left_out(engine: Engine, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(Merge, step, lambda *given: None)
    with pytest.raises((AssertionError, KafkaAssetsError)):
        MergeContract().test_slices_in_any_order_and_any_replay_come_to_the_same_end(engine)


@pytest.mark.slow
def test_versions_of_one_slice_must_be_reduced(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Merge, "reduce", lambda self: None)
    with pytest.raises((AssertionError, KafkaAssetsError)):
        MergeContract().test_of_several_versions_in_one_slice_the_last_one_lands(engine)


@pytest.mark.slow
def test_the_incarnation_must_weigh_most(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "version_columns", lambda upsert: versions.version_columns(upsert)[1:])
    with pytest.raises(AssertionError):
        MergeContract().test_a_topic_created_again_outranks_the_old_one(engine)


@pytest.mark.slow
def test_a_replay_must_not_begin_with_a_delete(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(self: Upserting, publication: object) -> None:
        delete_rows(self._connection, self._table, publication)  # type: ignore[attr-defined]

    monkeypatch.setattr(Upserting, "replace", replace)
    with pytest.raises(AssertionError):
        MergeContract().test_a_replay_writes_again_what_it_wrote_and_takes_nothing_away(engine)


@pytest.mark.slow
@pytest.mark.parametrize(
    "test",
    [
        MergeContract.test_a_key_in_another_partition_fails_the_slice,
        MergeContract.test_a_key_in_two_partitions_of_one_run_fails_it,
    ],
)
def test_a_moved_key_goes_unseen_without_looking_for_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, test: Callable[[MergeContract, Engine], None]
) -> None:
    monkeypatch.setattr(Merge, "_refuse_moved", lambda self, query: None)
    with pytest.raises(pytest.fail.Exception):
        test(MergeContract(), engine)


@pytest.mark.slow
def test_the_order_of_a_tombstone_is_kept(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 9)])
    target(engine, BY_COLUMN)
    land(engine, key, Gone(0, 7, at=-5), Put(1, 8, at=3), upsert=BY_COLUMN)
    land(engine, key, Put(5, 7, at=-6), Put(6, 8, "b", at=2), upsert=BY_COLUMN)
    assert standing(engine) == {8: "a"}
    land(engine, key, Put(7, 7, "back", at=-4), upsert=BY_COLUMN)
    assert standing(engine) == {7: "back", 8: "a"}


@pytest.mark.parametrize("quiet", ["insert", "update"])
def test_a_row_that_a_trigger_takes_away_without_a_word_is_missed(engine: Engine, quiet: str) -> None:
    first, second = plan(engine, slices=[(0, 1), (1, 3)])
    land(engine, first, Put(0, 7, "old"))
    _trigger(engine, quiet)
    with pytest.raises(CountsDisagree, match="2 rows were sent to the table 'orders', and 1 arrived"):
        land(engine, second, Put(1, 7, "new"), Put(2, 8, "new"))
    assert standing(engine) == {7: "old"}


def test_a_row_that_a_trigger_keeps_from_being_deleted_is_told(engine: Engine) -> None:
    first, second = plan(engine, slices=[(0, 2), (2, 3)])
    land(engine, first, Put(0, 7, "old"), Put(1, 8, "old"))
    _trigger(engine, "delete")
    with pytest.raises(CountsDisagree, match="a record deletes a row of the table 'orders', and it is still there"):
        land(engine, second, Gone(2, 8))
    assert standing(engine) == {7: "old", 8: "old"}


def _trigger(engine: Engine, before: str) -> None:
    """Nothing is done to one key of two, and nobody is told."""
    row, which = ("new", 8) if before == "insert" else ("old", 8 if before == "delete" else 7)
    with write(engine) as connection:
        connection.exec_driver_sql(
            f"create trigger quiet before {before} on orders when {row}.id = {which} begin select raise(ignore); end"
        )
