"""Rows into SQLite, of which many go in one statement: each lands as it would alone."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from kafka_assets.errors import CountsDisagree
from kafka_assets.ledger.engine import write
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.road import road_for
from kafka_assets.sinks.sqlite import values
from kafka_assets.sinks.tables import ensure_table
from kafka_assets_tests.ledgers import Attempt, chunk_of, plan, rows, rows_of, scalar, target
from kafka_assets_tests.values import CORPUS

FULL = 999 // (len(CORPUS) + 2)
"""Rows of all of the corpus' columns in one statement; forty times as many are Python objects at a time."""


@pytest.mark.parametrize("count", [1, FULL - 1, FULL, FULL + 1, 40 * FULL + 3])
def test_values_of_many_rows_in_one_statement_are_stored_as_of_one(engine: Engine, count: int) -> None:
    columns: dict[str, Any] = {
        name: pa.array((column.to_pylist() * count)[:count], column.type)
        for name, column in CORPUS.items()
        if name != "words"
    }
    columns["words"] = pa.array((["tab\tline\nback\\slash", "\\N", "'\"`%:;?", "", None] * count)[:count], pa.string())
    places: Any = pa.array(range(count), pa.int64())
    table = pa.table({**columns, PARTITION: pa.array([3] * count, pa.int32()), OFFSET: places})
    road = road_for(engine)
    together = ensure_table(engine, road, name="together", asset="together", schema=table.schema)
    alone = ensure_table(engine, road, name="alone", asset="alone", schema=table.schema)
    names = (SOURCE, PARTITION, OFFSET, *alone.columns)
    listed = ", ".join(map(road.quoted, names))
    marks = ", ".join("?" * len(names))
    with write(engine) as connection:
        assert road.insert(connection, together, table, source_id=7) == count
        given: list[Any] = [values(table.column(name).combine_chunks()) for name in names[1:]]
        for row in zip(repeat(7, count), *given, strict=True):
            connection.exec_driver_sql(f"insert into alone ({listed}) values ({marks})", row)
    stored = ", ".join(f"typeof({road.quoted(name)}), quote({road.quoted(name)})" for name in names)
    found = rows(engine, f"select {stored} from together")
    assert len(found) == count
    assert found == rows(engine, f"select {stored} from alone")


def test_a_row_that_the_table_refuses_is_the_only_one_missing(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 3_000)])
    table = target(engine)
    with write(engine) as connection:
        connection.exec_driver_sql(
            "create trigger picky before insert on orders when new.id in (0, 555, 2999)"
            " begin select raise(abort, 'not this one'); end"
        )
    Attempt(engine, [key]).claim().publish(table=table, policy=BadPolicy("quarantine", 1.0))
    assert [offset for _, offset, _ in rows_of(engine)] == [*range(1, 555), *range(556, 2999)]
    refused = rows(engine, "select kafka_offset, reason from kafka_quarantine order by kafka_offset")
    assert [(offset, "not this one" in reason) for offset, reason in refused] == [(0, True), (555, True), (2999, True)]


@pytest.mark.parametrize("lost", [0, 555, 2_999])
def test_one_row_of_many_that_a_trigger_takes_away_without_a_word_is_missed(engine: Engine, lost: int) -> None:
    [key] = plan(engine, slices=[(0, 3_000)])
    table = target(engine)
    with write(engine) as connection:
        connection.exec_driver_sql(
            f"create trigger quiet before insert on orders when new.id = {lost} begin select raise(ignore); end"
        )
    with pytest.raises(CountsDisagree, match="3000 rows were sent to the table 'orders', and 2999 arrived"):
        Attempt(engine, [key]).claim().publish(chunk_of(key), table=table)
    assert scalar(engine, "select count(*) from orders") == 0
