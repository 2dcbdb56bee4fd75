"""Transactions that are over before their unit is: what was in them is done again, all of it, and nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection as Sql
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from kafka_assets import Consumer, InLedger, kafka_listener, run_listeners
from kafka_assets.broker import Connection
from kafka_assets.broker.read import StoredRecord
from kafka_assets.errors import LedgerBusy, UsageError
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.last_committed import next_offsets
from kafka_assets_tests.integration.consuming import QUICK, expected, new_topic
from kafka_assets_tests.integration.databases import held
from kafka_assets_tests.integration.handled import handle, in_order, own_table, rows

End = Callable[[Engine, Sql], None]
ON_MYSQL = pytest.mark.parametrize("server", ["mariadb", "mysql"], indirect=True)


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker, QUICK)


def deadlock(engine: Engine, sql: Sql) -> None:
    """Of two that wait for each other, the one that has changed less is rolled back: ours."""
    with write(engine) as other:
        other.execute(text("CREATE TABLE IF NOT EXISTS pairs (id INT PRIMARY KEY, number INT)"))
        other.execute(text("DELETE FROM pairs"))
        other.execute(text("INSERT INTO pairs VALUES (:id, 0)"), [{"id": number} for number in range(300)])
    sql.execute(text("UPDATE pairs SET number = number + 1 WHERE id = 0"))
    with held(engine, "UPDATE pairs SET number = number + 1 WHERE id > 0") as other:
        waits = threading.Thread(target=other.execute, args=[text("UPDATE pairs SET number = 7 WHERE id = 0")])
        waits.start()
        try:
            sql.execute(text("UPDATE pairs SET number = 8 WHERE id = 1"))
        finally:
            waits.join()


def full_disk(engine: Engine, sql: Sql) -> None:
    """SQLite has no more pages to write into, which ends its transaction."""
    sql.exec_driver_sql(f"PRAGMA max_page_count = {sql.exec_driver_sql('PRAGMA page_count').scalar()}")
    try:
        sql.execute(text("INSERT INTO handled SELECT 9, 9, number FROM handled, json_each(:many)"), MANY)
    finally:
        raw: Any = sql.connection.dbapi_connection
        raw.execute("PRAGMA max_page_count = 1000000")


MANY = {"many": str(list(range(20_000)))}


def by_a_listener(engine: Engine, connection: Connection, end: End) -> list[int]:
    topic = new_topic(connection, partitions=1, records=5)
    own_table(engine)
    calls, stop = list[int](), threading.Event()

    @kafka_listener(topics=topic, group=topic, commit="ledger", retries=2, backoff=0.01, quarantine="kafka_quarantine")
    def insert(record: StoredRecord, sql: Sql) -> None:
        calls.append(record.offset)
        handle(sql, record)
        if record.offset == 2 and calls.count(2) == 1:
            end(engine, sql)
        if record.offset == 4:
            stop.set()

    run_listeners(insert, connection=connection, engine=engine, stop=stop, idle=20)
    assert next_offsets(engine, group=topic) == {(topic, 0): 5}
    with read(engine) as sql:
        assert sql.execute(text("SELECT * FROM kafka_quarantine")).all() == []
    return calls


@ON_MYSQL
def test_a_deadlock_in_a_listener_is_no_fault_of_its_record(engine: Engine, connection: Connection) -> None:
    calls = by_a_listener(engine, connection, deadlock)
    assert rows(engine) == expected(5, partitions=1)
    assert calls == [0, 1, 2, 0, 1, 2, 3, 4], "it is not called in another transaction than the one before"
    in_order(engine)


def test_a_full_disk_in_a_listener_is_no_fault_of_its_record(sqlite: Engine, connection: Connection) -> None:
    calls = by_a_listener(sqlite, connection, full_disk)
    assert rows(sqlite) == expected(5, partitions=1)
    assert calls == [0, 1, 2, 0, 1, 2, 3, 4]
    in_order(sqlite)


def by_a_loop(engine: Engine, connection: Connection, end: End) -> None:
    """It catches what the database says, and goes on: with savepoints, as one does."""
    topic = new_topic(connection, partitions=1, records=5)
    own_table(engine)
    ledger, ended = InLedger(engine), False
    with Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        with pytest.raises(LedgerBusy):
            for record in consumer.records(idle=10):
                with suppress(DBAPIError, LedgerBusy), ledger.sql.begin_nested():
                    handle(ledger.sql, record)
                    if record.offset == 2 and not ended:
                        ended = True
                        end(engine, ledger.sql)
        assert rows(engine) == []
        for record in consumer.records():
            handle(ledger.sql, record)
            if record.offset == 4:
                consumer.stop()
    assert rows(engine) == expected(5, partitions=1)
    assert next_offsets(engine, group=topic) == {(topic, 0): 5}
    in_order(engine)


@ON_MYSQL
def test_a_loop_that_passes_over_a_deadlock_does_its_unit_again(engine: Engine, connection: Connection) -> None:
    by_a_loop(engine, connection, deadlock)


def test_a_loop_that_passes_over_a_full_disk_does_its_unit_again(sqlite: Engine, connection: Connection) -> None:
    by_a_loop(sqlite, connection, full_disk)


@ON_MYSQL
def test_a_statement_that_commits_by_itself_is_told_and_not_done_again_and_again(
    engine: Engine, connection: Connection
) -> None:
    topic = new_topic(connection, partitions=1, records=5)
    own_table(engine)

    @kafka_listener(topics=topic, group=topic, commit="ledger", retries=2, backoff=0.01)
    def insert(record: StoredRecord, sql: Sql) -> None:
        handle(sql, record)
        if record.offset == 2:
            sql.execute(text("CREATE TABLE more (id INT)"))

    with pytest.raises(UsageError, match=r"ended before its unit was done .* commits by"):
        run_listeners(insert, connection=connection, engine=engine, stop=threading.Event(), idle=20)
    assert next_offsets(engine, group=topic) == {(topic, 0): 0}
    assert rows(engine) == expected(3, partitions=1), "what it committed is there, and nothing of what came after"


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_statement_that_failed_outside_of_a_savepoint_is_told(engine: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=5)
    own_table(engine)
    ledger = InLedger(engine)
    with Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        with pytest.raises(UsageError, match=r"takes nothing more .*begin_nested"):
            for _ in consumer.records(idle=10):
                with suppress(DBAPIError):
                    ledger.sql.execute(text("SELECT 1 / 0"))
        for record in consumer.records():
            handle(ledger.sql, record)
            if record.offset == 4:
                consumer.stop()
    assert rows(engine) == expected(5, partitions=1)
