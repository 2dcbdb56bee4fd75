"""Values at the edges, the same on every database: each lands exactly, or is quarantined with the reason.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, column, select
from sqlalchemy import table as named_table

from kafka_assets.ledger.engine import read
from kafka_assets.records import OFFSET, PARTITION, Chunk, Seen
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.road import road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.streams import Upsert
from kafka_assets_tests.ledgers import ASSET, Attempt, plan, rows, scalar
from kafka_assets_tests.values import BEYOND, CORPUS, as_given, as_python, misfits

NAMES = ["order", "Größe 大", "two words", 'quo"te', "it's", "100%", "%s", ":colon", "x" * 63, "SELECT", "a\\b"]


class ValuesContract:
    @pytest.mark.parametrize("upsert", [None, Upsert(("id",), "offset")], ids=["append", "upsert"])
    @pytest.mark.parametrize("value", [*CORPUS, *BEYOND])
    def test_a_value_lands_exactly_or_is_quarantined_with_the_reason(
        self, engine: Engine, value: str, upsert: Upsert | None
    ) -> None:
        given = (CORPUS | BEYOND)[value]
        bad = misfits(value, engine.dialect.name)
        landed_as(engine, "value", given, bad=bad, upsert=upsert)

    @pytest.mark.parametrize("name", NAMES)
    def test_a_column_of_any_name_holds_its_values(self, engine: Engine, name: str) -> None:
        landed_as(engine, name, CORPUS["words"], bad={}, upsert=None)

    def test_a_name_of_64_characters_is_whole_or_refused(self, engine: Engine) -> None:
        if engine.dialect.name != "postgresql":  # refused there: see the suite of the one transaction
            landed_as(engine, "x" * 64, CORPUS["words"], bad={}, upsert=None)

    @pytest.mark.slow
    def test_ten_megabytes_of_text_land(self, engine: Engine) -> None:
        landed_as(engine, "value", pa.array(["🙂" * 2_500_000, "", None]), bad={}, upsert=None)
        assert scalar(engine, "select count(*) from kafka_publication where state = 'committed'") == 1


def landed_as(engine: Engine, name: str, given: Any, *, bad: dict[int, str], upsert: Upsert | None) -> None:
    count = len(given)
    [key] = plan(engine, slices=[(0, count)])
    places = pa.array(range(count), pa.int64())
    table = pa.table({"id": places, name: given, PARTITION: pa.array([0] * count, pa.int32()), OFFSET: places})
    road = road_for(engine)
    target = ensure_table(engine, road, name="orders", asset=ASSET, schema=table.schema, upsert=upsert)
    chunk = Chunk(rows=table, seen={key: Seen(read=count)})
    Attempt(engine, [key]).claim().publish(chunk, table=target, policy=BadPolicy("quarantine", 1.0))
    with read(engine) as connection:
        asked = select(column("id"), column(name)).select_from(named_table("orders")).order_by(column("id"))
        kept = [tuple(row) for row in connection.execute(asked)]
    expected = [(at, value) for at, value in enumerate(_values(given, bad))]
    expected = [(at, value) for at, value in expected if at not in bad]
    found = [(at, as_given(value, given.type)) for at, value in kept]
    assert list(map(_exact, found)) == list(map(_exact, expected))
    reasons = rows(engine, "select kafka_offset, reason from kafka_quarantine order by kafka_offset")
    assert [at for at, _ in reasons] == sorted(bad)
    for at, reason in reasons:
        assert reason.startswith(f"{name}: ")
        assert bad[at] in reason


def _values(given: Any, bad: dict[int, str]) -> list[Any]:
    """What is bad may be nothing that Python can say."""
    return [None if at in bad else as_python(given.slice(at, 1))[0] for at in range(len(given))]


def _exact(pair: tuple[int, Any]) -> tuple[int, Any]:
    """NaN is not even equal to itself: its spelling tells. (A zero's sign, which tells nothing, SQLite forgets.)"""
    at, value = pair
    return at, repr(value or 0.0) if isinstance(value, float) else value
