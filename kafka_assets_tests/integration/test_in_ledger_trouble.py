"""What fails while a consumer commits in the ledger, and a caller that goes on: each row is there once all the same."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, text

from kafka_assets import Consumer, InLedger
from kafka_assets.broker import Connection
from kafka_assets.errors import LedgerBusy
from kafka_assets.ledger.backends import backend_of
from kafka_assets.ledger.engine import read
from kafka_assets_tests.integration.consuming import QUICK, expected, new_topic
from kafka_assets_tests.integration.databases import kill_backend
from kafka_assets_tests.integration.handled import handle, in_order, own_table, rows


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker, QUICK)


def insert_on(consumer: Consumer, ledger: InLedger, engine: Engine, enough: int, *passing: type[Exception]) -> None:
    """Insert all that comes, whatever passes, until there are enough rows."""
    deadline = time.monotonic() + 40
    while len(rows(engine)) < enough:
        assert time.monotonic() < deadline, rows(engine)
        with suppress(LedgerBusy, *passing):
            for record in consumer.records(idle=1):
                handle(ledger.sql, record)


def holes(engine: Engine) -> int:
    with read(engine) as sql:
        found: Any = sql.scalar(text("SELECT sum(holes) FROM kafka_publication"))
    return int(found)


def test_what_a_body_left_undone_comes_again_though_its_transaction_cannot_be_rolled_back(
    engine: Engine, connection: Connection
) -> None:
    """The server ended it meanwhile, as it does with one that is idle for too long."""
    topic = new_topic(connection, partitions=1, records=20)
    own_table(engine)
    ledger = InLedger(engine)
    with Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        with pytest.raises(ValueError, match="at 6"):
            for record in consumer.records():
                handle(ledger.sql, record)
                if record.offset == 6:
                    kill_backend(engine, backend_of(ledger.sql))
                    raise ValueError("at 6")
        with pytest.raises(LedgerBusy):
            next(consumer.records())
        insert_on(consumer, ledger, engine, 20)
    assert rows(engine) == expected(20, partitions=1)
    assert holes(engine) == 0, "nothing was passed over"
    in_order(engine)
