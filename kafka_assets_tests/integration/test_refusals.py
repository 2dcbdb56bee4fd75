"""Rows that only a real server refuses, and values: the suites that all databases share; two publishers at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine

from kafka_assets_tests.ledgers import plan, quoted, scalar
from kafka_assets_tests.refusals_contract import RefusalsContract, constrain, land, target
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


class TestValuesOnServers(ValuesContract):
    """The engine is of each server."""
