"""Rows that only a real server refuses, and values: the suites that all databases share; two publishers at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import DatabaseRefused
from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.tables import TABLES, ledger_version
from kafka_assets_tests import ledgers
from kafka_assets_tests.ledgers import plan, quoted, scalar
from kafka_assets_tests.refusals_contract import RefusalsContract, constrain, land, run, target
from kafka_assets_tests.upserts import Put, counts, standing
from kafka_assets_tests.values_contract import ValuesContract


class TestRefusalsOnServers(RefusalsContract):
    """The engine is of each server."""

    def test_of_two_publishers_who_meet_on_a_unique_key_one_lands_it(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 40), (40, 80)])
        target(engine, None)
        constrain(engine, f"constraint one_rank unique ({quoted(engine, 'rank')})")
        ready = threading.Barrier(2)

        def publish(number: int) -> None:
            ready.wait(20)
            # Each row's rank is the other's too: half of the 80 records are culprits, whoever comes first.
            records = [Put(at, at, at=at % 40) for at in range(40 * number, 40 * number + 40)]
            land(engine, keys[number], *records, upsert=None)

        with ThreadPoolExecutor(2) as pool:
            for one in [pool.submit(publish, number) for number in range(2)]:
                one.result()
        assert len(standing(engine)) == 40
        assert scalar(engine, "select count(*) from kafka_quarantine") == 40
        assert sum(row[1] for row in counts(engine)) == 40


@pytest.mark.usefixtures("whole_server")
def test_a_right_that_is_missing_is_named_with_its_table(engine: Engine) -> None:
    keys = plan(engine, slices=[(0, 5)])
    table = ledgers.target(engine)
    with _may_not_insert(engine) as limited:
        attempt = ledgers.Attempt(limited, keys).claim()
        with pytest.raises(DatabaseRefused, match=r"may not INSERT into.*orders.*GRANT"):
            attempt.publish(table=table)
    assert scalar(engine, "select count(*) from orders") == 0


@contextmanager
def _may_not_insert(engine: Engine) -> Iterator[Engine]:
    """As a user who may do anything to the ledger, and read and empty the target."""
    server = engine.dialect.name == "postgresql"
    user = "limited" if server else "limited@'%'"
    everything = [quoted(engine, table.name) for table in (*TABLES, ledger_version)]
    run(
        engine,
        f"create user {user} " + ("password 'limited'" if server else "identified by 'limited'"),
        *(f"grant all on {table} to {user}" for table in everything),
        f"grant select, delete on orders to {user}",
    )
    limited = make_engine(engine.url.set(username="limited", password="limited"), lock_seconds=2)
    try:
        yield limited
    finally:
        limited.dispose()
        run(engine, *([f"drop owned by {user}"] if server else []), f"drop user {user}")


class TestValuesOnServers(ValuesContract):
    """The engine is of each server."""
