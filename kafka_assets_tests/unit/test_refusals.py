"""Rows that only SQLite refuses, and values that it cannot hold: the suites that all databases share."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import RowsRefused
from kafka_assets_tests.ledgers import plan, scalar
from kafka_assets_tests.refusals_contract import RefusalsContract, land, run, target
from kafka_assets_tests.upserts import BY_OFFSET, Gone, Put, standing
from kafka_assets_tests.values_contract import ValuesContract


@pytest.mark.slow  # all of them together
class TestRefusalsOnSQLite(RefusalsContract):
    """The engine is the unit tests' own."""


@pytest.mark.slow  # all of them together
class TestValuesOnSQLite(ValuesContract):
    """The engine is the unit tests' own."""


def test_a_deferred_foreign_key_of_other_rows_fails_the_slice_in_words(engine: Engine) -> None:
    first, second = plan(engine, slices=[(0, 4), (4, 8)])
    target(engine, BY_OFFSET)
    land(engine, first, Put(0, 0), Put(1, 1), upsert=BY_OFFSET)
    deferred = "deferrable initially deferred"
    run(
        engine,
        f"create table children (id bigint primary key references orders (id) {deferred})",
        "insert into children values (1)",
    )
    with pytest.raises(RowsRefused, match=r"broken at COMMIT.*NOT DEFERRABLE"):
        land(engine, second, Gone(4, 0), Gone(5, 1), upsert=BY_OFFSET)
    assert sorted(standing(engine)) == [0, 1]
    assert scalar(engine, "select count(*) from kafka_publication where state = 'committed'") == 1
