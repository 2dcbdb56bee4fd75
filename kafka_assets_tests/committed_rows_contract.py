"""What reading committed rows back promises, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from kafka_assets.errors import SliceRefused, TableIncompatible, UpstreamChanged
from kafka_assets.ledger.engine import write
from kafka_assets.records import OFFSET, ORDINAL, PARTITION, Chunk, Seen
from kafka_assets.sinks import committed_rows as reading
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.committed_rows import CommittedRows, committed_rows
from kafka_assets.sinks.nested import json_text
from kafka_assets.sinks.road import road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey
from kafka_assets_tests import whole_contract as whole
from kafka_assets_tests.ledgers import ASSET, Attempt, chunk_of, plan
from kafka_assets_tests.values import BEYOND, CORPUS, as_python, misfits
from kafka_assets_tests.values_contract import NAMES

EVERYTHING = CORPUS | BEYOND


class CommittedRowsContract:
    @pytest.mark.parametrize("value", [*EVERYTHING])
    def test_a_value_is_read_back_as_it_was_declared(self, engine: Engine, value: str) -> None:
        given, kept = landed(engine, "value", EVERYTHING[value], bad=misfits(value, engine.dialect.name))
        declared = pa.schema([("value", given.type)])
        [found] = all_of(engine, declared=declared)
        expected = pa.string() if pa.types.is_nested(given.type) else given.type
        assert found.schema.field("value").type == expected
        assert _exact(found.column("value"), given.type) == _exact(kept, given.type)
        assert found.schema.field(PARTITION).type == pa.int32()
        assert found.schema.field(OFFSET).type == pa.int64()

    @pytest.mark.parametrize("value", ["tiny", "small", "whole", "big", "truth", "words", "money", "bytes", "nested"])
    def test_a_value_that_nobody_declared_is_read_by_the_type_of_its_table(self, engine: Engine, value: str) -> None:
        given, kept = landed(engine, "value", CORPUS[value], bad={})
        [found] = all_of(engine)
        assert _exact(found.column("value"), given.type) == _exact(kept, given.type)

    @pytest.mark.parametrize("value", ["day", "moment", "clock", "wide"])
    def test_what_a_database_has_only_as_text_comes_as_text_where_nobody_declared_it(
        self, engine: Engine, value: str
    ) -> None:
        given, kept = landed(engine, "value", CORPUS[value], bad={})
        [found] = all_of(engine)
        if engine.dialect.name == "sqlite":
            assert found.schema.field("value").type == pa.string()
        else:
            spelled = [str(one).removesuffix("+00:00") for one in as_python(found.column("value"))]
            assert spelled == [str(one).removesuffix("+00:00") for one in kept]
            assert pa.types.is_date(given.type) == pa.types.is_date(found.schema.field("value").type)

    @pytest.mark.parametrize("name", NAMES)
    def test_a_column_of_any_name_is_read_back(self, engine: Engine, name: str) -> None:
        _, kept = landed(engine, name, CORPUS["words"], bad={})
        [found] = all_of(engine)
        assert as_python(found.column(name)) == kept

    def test_a_value_that_is_not_of_its_declared_type_is_said_and_never_bent(self, engine: Engine) -> None:
        # A transform may give a column another type than the declaration; where types share storage, only values tell.
        landed(engine, "value", pa.array([1, 7], pa.int64()), bad={})
        if engine.dialect.name == "sqlite":
            with pytest.raises(TableIncompatible, match="'value' holds 7"):
                all_of(engine, declared=pa.schema([("value", pa.bool_())]))
        else:
            [found] = all_of(engine, declared=pa.schema([("value", pa.bool_())]))
            assert as_python(found.column("value")) == [1, 7]

    def test_a_decimal_of_more_digits_than_its_column_says_is_never_rounded(self, engine: Engine) -> None:
        landed(engine, "value", pa.array(["0.1234567890123456", "1"]), bad={})
        if engine.dialect.name == "sqlite":
            with pytest.raises(TableIncompatible, match=r"'value' holds '0\.1234567890123456'"):
                all_of(engine, declared=pa.schema([("value", pa.decimal128(20, 4))]))
        else:
            [found] = all_of(engine, declared=pa.schema([("value", pa.decimal128(20, 4))]))
            assert as_python(found.column("value")) == ["0.1234567890123456", "1"]

    def test_a_table_that_is_gone_is_said(self, engine: Engine) -> None:
        landed(engine, "value", pa.array([1]), bad={})
        with write(engine) as connection:
            connection.exec_driver_sql("DROP TABLE orders")
        with pytest.raises(TableIncompatible, match="there is no table 'orders'"):
            all_of(engine)

    def test_rows_come_in_the_order_of_their_offsets_a_bounded_number_at_a_time(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = plan(engine, slices=[(0, 10), (10, 17)])
        for key in (second, first):
            Attempt(engine, [key]).claim().publish(chunk_of(key))
        monkeypatch.setattr(reading, "BATCH", 3)
        batches = list(of(engine, second).batches(second))
        assert [as_python(one.column(OFFSET)) for one in batches] == [[10, 11, 12], [13, 14, 15], [16]]
        monkeypatch.setattr(reading, "BATCH", 5)
        assert [one.num_rows for one in of(engine, first).batches(first)] == [5, 5]

    def test_rows_of_whole_slices_come_in_the_order_of_their_ordinals(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = plan(engine, slices=[(0, 5), (5, 9)])
        whole.land(engine, whole.whole_chunk(first, list("abcde")), whole.whole_chunk(second, list("xyz")))
        monkeypatch.setattr(reading, "BATCH", 2)
        found = pa.concat_tables(of(engine, first).batches(first))
        assert as_python(found.column("note")) == list("abcde")
        assert as_python(found.column(ORDINAL)) == [0, 1, 2, 3, 4]
        assert set(as_python(found.column(OFFSET))) == {0}

    def test_only_the_rows_of_the_slice_come_whatever_lies_beside_it(self, engine: Engine) -> None:
        mine, beside = plan(engine, slices=[(0, 5), (5, 9)])
        [other] = plan(engine, slices=[(0, 5)], partition=1)
        for key in (mine, beside, other):
            Attempt(engine, [key]).claim().publish(chunk_of(key, note=str(key)))
        # The same partition and offsets, of the topic's next incarnation.
        [again] = plan(engine, slices=[(0, 5)], topic_id="id-2")
        Attempt(engine, [again]).claim().publish(chunk_of(again, note=str(again)))
        for key in (mine, beside, other, again):
            found = pa.concat_tables(of(engine, key).batches(key))
            assert set(as_python(found.column("note"))) == {str(key)}
            assert as_python(found.column(OFFSET)) == list(range(key.start, key.end))

    def test_a_committed_slice_without_rows_is_empty_and_no_error(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        Attempt(engine, [key]).claim().publish(chunk_of(key, offsets=[], read_count=5))
        assert list(of(engine, key).batches(key)) == []

    def test_what_is_not_committed_is_refused_and_can_be_tried_again(self, engine: Engine) -> None:
        done, waiting = plan(engine, slices=[(0, 5), (5, 9)])
        Attempt(engine, [done]).claim().publish()
        with pytest.raises(UpstreamChanged, match="5-9 of 'orders' is not committed"):
            of(engine, done, waiting)

    @pytest.mark.parametrize("kind", ["lost", "skipped"])
    def test_what_is_lost_or_skipped_is_refused_for_good(self, engine: Engine, kind: str) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        with write(engine) as connection:
            connection.exec_driver_sql(f"update kafka_slice set kind = '{kind}', reason = 'gone'")
        with pytest.raises(SliceRefused, match=f"recorded as {kind}"):
            of(engine, key)


def of(engine: Engine, *keys: SliceKey, declared: pa.Schema | None = None) -> CommittedRows:
    return committed_rows(engine, asset=ASSET, target="orders", keys=keys, declared=declared)


def all_of(engine: Engine, *, declared: pa.Schema | None = None) -> list[pa.Table]:
    key = SliceKey("orders", 1, 0, 0, _planned(engine))
    return list(of(engine, key, declared=declared).batches(key))


def _planned(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("select max(end_offset) from kafka_slice").scalar() or 0)


def landed(engine: Engine, name: str, given: Any, *, bad: dict[int, str], partition: int = 0) -> tuple[Any, list[Any]]:
    """Land a column of values, and return it with those of them that the database could hold."""
    count = len(given)
    [key] = plan(engine, slices=[(0, count)], partition=partition)
    places = pa.array(range(count), pa.int64())
    rows = pa.table({"id": places, name: given, PARTITION: pa.array([partition] * count, pa.int32()), OFFSET: places})
    table = ensure_table(engine, road_for(engine), name="orders", asset=ASSET, schema=rows.schema)
    chunk = Chunk(rows=rows, seen={key: Seen(read=count)})
    Attempt(engine, [key]).claim().publish(chunk, table=table, policy=BadPolicy("quarantine", 1.0))
    return given, [as_python(given.slice(at, 1))[0] for at in range(count) if at not in bad]


def _exact(values: Any, kind: Any) -> list[Any]:
    """Spelled out: NaN is not even equal to itself. (A zero's sign SQLite forgets.)"""
    plain: list[Any] = values if isinstance(values, list) else as_python(values)
    if pa.types.is_nested(kind):
        return [None if one is None else json.loads(one if isinstance(one, str) else json_text(one)) for one in plain]
    if pa.types.is_boolean(kind) or not any(isinstance(one, float) for one in plain):
        return plain
    return [repr(one or 0.0) if isinstance(one, float) else one for one in plain]
