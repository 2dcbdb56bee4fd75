"""The one transaction on SQLite: the suite that all databases share."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from kafka_assets.ledger import retries
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets_tests.ledgers import Attempt, plan, rows_of, target
from kafka_assets_tests.publish_contract import PublishContract

pytestmark = pytest.mark.usefixtures("unsynced")


class TestPublishOnSQLite(PublishContract):
    """The engine is the unit tests' own."""


def test_a_busy_file_is_tried_again_with_the_whole_transaction(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = plan(engine, slices=[(0, 5)])
    table = target(engine)
    impatient = make_engine(engine.url, lock_seconds=0)
    attempt = Attempt(impatient, keys).claim()
    tries: list[object] = []

    def slept(seconds: float) -> None:
        tries.append(seconds)
        other.rollback()

    monkeypatch.setattr(retries.time, "sleep", slept)
    with write(engine) as other:
        attempt.publish(table=table)
    assert len(tries) == 1
    assert len(rows_of(engine)) == 5
