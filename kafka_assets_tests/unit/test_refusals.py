"""Rows that only SQLite refuses, and values that it cannot hold: the suites that all databases share."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, event

from kafka_assets.errors import RowsRefused
from kafka_assets_tests.ledgers import plan, quoted, scalar
from kafka_assets_tests.refusals_contract import BAD, GOOD, RefusalsContract, constrain, land, run, target
from kafka_assets_tests.upserts import Put, standing
from kafka_assets_tests.values_contract import ValuesContract


@pytest.fixture(name="engine")
def unsynced(engine: Engine) -> Engine:
    """None of these tests takes the power away, and synced commits take most of their time."""

    def no_sync(connection: Any, record: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(engine, "connect", no_sync)
    return engine


class TestRefusalsOnSQLite(RefusalsContract):
    """The engine is the unit tests' own."""


class TestValuesOnSQLite(ValuesContract):
    """The engine is the unit tests' own."""


def test_a_deferred_constraint_that_breaks_at_commit_fails_the_slice_in_words(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 4)])
    target(engine, None)
    run(engine, "create table parents (id integer primary key)", f"insert into parents values ({GOOD})")
    rank = quoted(engine, "rank")
    constrain(engine, f"foreign key ({rank}) references parents (id) deferrable initially deferred")
    with pytest.raises(RowsRefused, match=r"broken at COMMIT.*NOT DEFERRABLE"):
        land(engine, key, Put(0, 0, at=GOOD), Put(1, 1, at=BAD), upsert=None)
    assert standing(engine) == {}
    assert scalar(engine, "select count(*) from kafka_publication where state = 'committed'") == 0
