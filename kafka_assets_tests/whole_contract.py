"""What rows of whole slices promise, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from kafka_assets.errors import RowsRefused, TableIncompatible
from kafka_assets.records import Chunk, Seen
from kafka_assets.sinks.publish import Published
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey
from kafka_assets.spark.transformed import placed
from kafka_assets_tests.ledgers import ASSET, Attempt, committed_through, plan, rows, scalar
from kafka_assets_tests.ledgers import chunk_of as record_chunk
from kafka_assets_tests.ledgers import target as record_target

SCHEMA = pa.schema([("note", pa.string()), ("total", pa.int64())])


def whole_target(engine: Engine) -> Table:
    return ensure_table(engine, road_for(engine), name="orders", asset=ASSET, schema=SCHEMA, ordinal=True)


def whole_chunk(key: SliceKey, notes: Sequence[str], *, bad: int = 0, fingerprint: int | None = None) -> Chunk:
    """All of a slice's records, of which these rows came and the first `bad` were bad."""
    table = pa.table([pa.array(notes, pa.string()), pa.array(range(len(notes)), pa.int64())], schema=SCHEMA)
    spoiled = record_chunk(key, offsets=[], bad=range(key.start, key.start + bad)).bad
    seen = Seen(read=key.offsets, bad=bad, fingerprint=fingerprint)
    return Chunk(rows=placed(table, key), seen={key: seen}, bad=spoiled)


def land(engine: Engine, *chunks: Chunk) -> list[Published]:
    keys = [key for chunk in chunks for key in chunk.seen]
    attempt = Attempt(engine, keys, replaces=True).claim(force=True)
    return attempt.publish(*chunks, table=whole_target(engine))


def standing(engine: Engine) -> list[tuple[int, int, str]]:
    return rows(engine, "select kafka_offset, kafka_ordinal, note from orders order by kafka_offset, kafka_ordinal")


def counts(engine: Engine) -> list[tuple[int, ...]]:
    """Of each slice in order: read, landed, filtered, quarantined, rows written."""
    return rows(
        engine, "select records_read, landed, filtered, quarantined, rows_written from kafka_publication order by id"
    )


class WholeContract:
    def test_a_slice_of_many_records_lands_in_a_few_rows_at_its_start(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 5), (5, 9)])
        land(engine, whole_chunk(first, ["a", "b"], bad=1), whole_chunk(second, ["c"] * 7))
        assert standing(engine) == [(0, 0, "a"), (0, 1, "b"), *((5, number, "c") for number in range(7))]
        # Counts are in records, and rows stand apart: here fewer, there more.
        assert counts(engine) == [(5, 4, 0, 1, 2), (4, 4, 0, 0, 7)]
        assert committed_through(engine) == 9

    def test_a_slice_without_rows_was_left_out_by_its_transform(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        land(engine, whole_chunk(key, [], bad=2))
        assert counts(engine) == [(5, 0, 3, 2, 0)]

    @pytest.mark.parametrize("notes", [["x"], ["x", "y", "z"], []])
    def test_a_replay_replaces_all_rows_of_its_slice_and_no_others(self, engine: Engine, notes: list[str]) -> None:
        keys = plan(engine, slices=[(0, 5), (5, 9), (9, 12)])
        land(engine, *(whole_chunk(key, ["a", "b"]) for key in keys))
        land(engine, whole_chunk(keys[1], notes))
        others = [(0, 0, "a"), (0, 1, "b")], [(9, 0, "a"), (9, 1, "b")]
        assert standing(engine) == [*others[0], *((5, number, note) for number, note in enumerate(notes)), *others[1]]
        assert committed_through(engine) == 12

    def test_a_result_of_more_rows_than_go_at_once_lands_whole(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        for _ in range(2):
            land(engine, whole_chunk(key, ["a"] * 60_000))
        assert scalar(engine, "select count(*) from orders") == 60_000
        assert scalar(engine, "select max(kafka_ordinal) from orders") == 59_999

    def test_the_two_scopes_never_share_a_table(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 3)])
        Attempt(engine, [key]).claim().publish(record_chunk(key), table=record_target(engine))
        with pytest.raises(TableIncompatible, match="kafka_ordinal"):
            whole_target(engine)

    def test_the_two_scopes_never_share_a_table_the_other_way(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 3)])
        land(engine, whole_chunk(key, ["a"]))
        with pytest.raises(TableIncompatible, match=r"primary key .*kafka_ordinal"):
            record_target(engine)

    def test_a_replay_of_other_records_says_so_and_of_the_same_does_not(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        told = [land(engine, whole_chunk(key, ["a"], fingerprint=of))[0].other_records for of in (7, 7, -7, -7)]
        assert told == [False, False, True, False]
        assert scalar(engine, "select fingerprint from kafka_publication") == "fffffffffffffff9"
        # Nobody counted it: nothing is said, and nothing is kept that was not seen.
        assert not land(engine, whole_chunk(key, ["a"]))[0].other_records
        assert scalar(engine, "select fingerprint from kafka_publication") is None

    @pytest.mark.parametrize("notes", [["a", "a"], ["a", None]])
    def test_a_row_that_the_table_refuses_fails_its_slice_and_no_record_is_blamed(
        self, engine: Engine, notes: list[str]
    ) -> None:
        whole_target(engine)
        with engine.connect() as connection:
            kind = "(note(100))" if engine.dialect.name in {"mysql", "mariadb"} else "(note)"
            connection.exec_driver_sql(f"CREATE UNIQUE INDEX one_note ON orders {kind}")
            connection.commit()
        first, second = plan(engine, slices=[(0, 5), (5, 9)])
        land(engine, whole_chunk(first, ["x"]))
        taken = [note or "x" for note in notes]
        with pytest.raises(RowsRefused, match=r"orders"):
            land(engine, whole_chunk(second, taken))
        assert [note for _, _, note in standing(engine)] == ["x"]
        assert scalar(engine, "select count(*) from kafka_quarantine") == 0
        assert committed_through(engine) == 5
