"""Rows that only a real server refuses, and values: the suites that all databases share; two publishers at once."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import DatabaseRefused, LedgerBusy
from kafka_assets.ledger.engine import make_engine, read
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


@pytest.mark.usefixtures("whole_server")
def test_of_a_ledgers_table_that_may_only_be_read_the_right_that_misses_is_named(engine: Engine) -> None:
    keys = plan(engine, slices=[(0, 5)])
    table = ledgers.target(engine)
    for unchanged in ("kafka_claim", "kafka_publication"):
        with (
            _limited(engine, {unchanged: "select, insert, delete", "orders": "all"}) as limited,
            pytest.raises(DatabaseRefused, match=rf"lacks [\w ]*rights? [\w, ]*UPDATE.*{unchanged}.*GRANT"),
        ):
            ledgers.Attempt(limited, keys).claim().publish(table=table)
    assert scalar(engine, "select count(*) from orders") == 0


def test_a_limit_on_a_statements_time_is_named_with_its_cure(engine: Engine) -> None:
    maria = bool(getattr(engine.dialect, "is_mariadb", False))
    limit, name, statement = {
        "postgresql": ("set local statement_timeout = 50", "statement_timeout", "select pg_sleep(20)"),
        "mariadb": ("set session max_statement_time = 0.05", "max_statement_time", "select sleep(20)"),
        "mysql": (
            "set session max_execution_time = 50",
            "max_execution_time",
            "select count(*) from information_schema.collations a, information_schema.collations b,"
            " information_schema.collations c, information_schema.collations d where a.id + b.id + c.id = d.id + 1",
        ),
    }["mariadb" if maria else engine.dialect.name]
    with pytest.raises(LedgerBusy, match=rf"less time than was needed: {name}.*raise {name}"), read(engine) as asked:
        asked.exec_driver_sql(limit)
        asked.exec_driver_sql(statement)


def _may_not_insert(engine: Engine) -> AbstractContextManager[Engine]:
    """As a user who may do anything to the ledger, and read and empty the target."""
    return _limited(engine, {"orders": "select, delete"})


@contextmanager
def _limited(engine: Engine, rights: Mapping[str, str]) -> Generator[Engine]:
    """As a user who has these rights on these tables, and all on the ledger's others."""
    server = engine.dialect.name == "postgresql"
    user = "limited" if server else "limited@'%'"
    given = {**{table.name: "all" for table in (*TABLES, ledger_version)}, **rights}
    run(
        engine,
        f"create user {user} " + ("password 'limited'" if server else "identified by 'limited'"),
        *(f"grant {some} on {quoted(engine, name)} to {user}" for name, some in given.items()),
    )
    limited = make_engine(engine.url.set(username="limited", password="limited"), lock_seconds=2)
    try:
        yield limited
    finally:
        limited.dispose()
        run(engine, *([f"drop owned by {user}"] if server else []), f"drop user {user}")


class TestValuesOnServers(ValuesContract):
    """The engine is of each server."""
