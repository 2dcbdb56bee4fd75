"""A consumer whose own SQL and offsets commit together, on every database."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from kafka_assets import Consumer, InLedger
from kafka_assets.broker import Connection
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.errors import Fenced, LedgerBusy, OffsetsExpired, StreamError, TopicChanged, UsageError
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.last_committed import next_offsets
from kafka_assets.sinks.live import WindowPolicy
from kafka_assets_tests.integration.consuming import QUICK, delete_records, expected, fill, new_topic
from kafka_assets_tests.integration.consuming import read as take
from kafka_assets_tests.integration.handled import handle, in_order, own_table, rows


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker, QUICK)


def contract_rows_and_offsets_commit_together(engine: Engine, connection: Connection, each: Any) -> None:
    topic = new_topic(connection, records=30)
    own_table(engine)
    ledger = InLedger(engine)
    with Consumer(connection, topic, group=topic, commit=ledger, each=each) as consumer:
        for record in consumer.records():
            handle(ledger.sql, record)
            if len(rows_in(ledger)) == 60:
                consumer.stop()
    assert rows(engine) == expected(30)
    assert next_offsets(engine, group=topic) == {(topic, 0): 30, (topic, 1): 30}
    in_order(engine)
    fill(connection, topic, [30])
    with Consumer(connection, topic, group=topic, commit=InLedger(engine), each=each) as consumer:
        assert sorted((record.partition, record.offset) for record in take(consumer, 2)) == [(0, 30), (1, 30)]
    assert next_offsets(engine, group=topic) == {(topic, 0): 31, (topic, 1): 31}
    in_order(engine)


def rows_in(ledger: InLedger) -> list[Any]:
    return list(ledger.sql.execute(text("SELECT number FROM handled")).all())


@pytest.mark.parametrize("each", ["record", "batch", "partition"])
def test_rows_and_offsets_commit_together(sqlite: Engine, connection: Connection, each: Any) -> None:
    contract_rows_and_offsets_commit_together(sqlite, connection, each)


@pytest.mark.parametrize("each", ["record", "batch"])
def test_rows_and_offsets_commit_together_on_servers(engine: Engine, connection: Connection, each: Any) -> None:
    contract_rows_and_offsets_commit_together(engine, connection, each)


def contract_what_raised_is_rolled_back(engine: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    own_table(engine)
    ledger = InLedger(engine)
    with pytest.raises(ValueError, match="at 6"), Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        for record in consumer.records():
            handle(ledger.sql, record)
            if record.offset == 6:
                raise ValueError("at 6")
    assert rows(engine) == []
    ledger = InLedger(engine)
    with Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        for record in consumer.records():
            handle(ledger.sql, record)
            if record.offset == 9:
                consumer.stop()
    assert rows(engine) == expected(10, partitions=1)
    in_order(engine)


def test_what_raised_is_rolled_back_with_its_unit(sqlite: Engine, connection: Connection) -> None:
    contract_what_raised_is_rolled_back(sqlite, connection)


def test_what_raised_is_rolled_back_with_its_unit_on_servers(engine: Engine, connection: Connection) -> None:
    contract_what_raised_is_rolled_back(engine, connection)


def test_what_the_database_refuses_at_its_end_comes_again(engine: Engine, connection: Connection) -> None:
    """The caller's own error, in the caller's own SQL: the same consumer goes on with the same unit."""
    topic = new_topic(connection, partitions=1, records=10)
    own_table(engine, unique=True)
    ledger = InLedger(engine)
    with Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        with pytest.raises(IntegrityError):
            for record in consumer.records():
                handle(ledger.sql, record)
                if record.offset == 4:
                    handle(ledger.sql, record)
        for record in consumer.records():
            handle(ledger.sql, record)
            if record.offset == 9:
                consumer.stop()
    assert rows(engine) == expected(10, partitions=1)


def test_the_ledger_counts_what_was_handed_over(sqlite: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=25)
    ledger = InLedger(sqlite, window=WindowPolicy(max_records=10))
    with Consumer(connection, topic, group=topic, commit=ledger, max_records=5) as consumer:
        take(consumer, 25)
    with read(sqlite) as sql:
        counts = sql.execute(
            text(
                "SELECT start_offset, end_offset, records_read, landed, holes, asset FROM kafka_publication ORDER BY 1"
            )
        ).all()
        assert not sql.scalar(text("SELECT count(*) FROM kafka_slice WHERE is_open"))
    assert sum(one.records_read for one in counts) == 25
    assert {one.asset for one in counts} == {topic}
    assert len(counts) > 1, "a window is over when it is full"
    in_order(sqlite)


def test_a_transaction_that_was_ended_by_the_caller_is_refused(sqlite: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=3)
    own_table(sqlite)
    ledger = InLedger(sqlite)
    with Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        with pytest.raises(UsageError, match="no record is in hand"):
            _ = ledger.sql
        with pytest.raises(UsageError, match="was ended before"):
            for record in consumer.records():
                handle(ledger.sql, record)
                ledger.sql.commit()
    assert next_offsets(sqlite, group=topic) == {(topic, 0): 0}


def test_an_assets_name_is_no_consumers(engine: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=1)
    with write(engine) as sql:
        sql.execute(
            text(
                "INSERT INTO kafka_target (table_name, asset, mode, created_at)"
                " VALUES ('orders', 'orders', 'append', CURRENT_TIMESTAMP)"
            )
        )
    with pytest.raises(StreamError, match="is an asset of this ledger"):
        Consumer(connection, topic, group="orders", commit=InLedger(engine))


def test_without_a_group_it_needs_a_name(sqlite: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=2, records=5)
    with pytest.raises(UsageError, match="by a name"):
        Consumer(connection, topic, commit=InLedger(sqlite))
    for _ in range(2):
        with Consumer(connection, topic, partitions=[1], commit=InLedger(sqlite, name="mine")) as consumer:
            take(consumer, 5)
        fill(connection, topic, range(5, 10))
    assert next_offsets(sqlite, group="mine") == {(topic, 1): 10}


def test_a_partition_that_another_has_is_waited_for(engine: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=5)
    first = Consumer(connection, topic, commit=InLedger(engine, name="mine", lease_ms=3000))
    take(first, 5)
    with Consumer(connection, topic, commit=InLedger(engine, name="mine")) as second:
        fill(connection, topic, [5], partitions=1)
        threading.Timer(1.5, first.close).start()
        assert [record.offset for record in second.records(idle=0.3)] == [5], "what cannot be had has not ended"


def test_a_zombie_commits_nothing(engine: Engine, connection: Connection) -> None:
    """It stands still for longer than its lease, and another has taken its partition and gone on."""
    topic = new_topic(connection, partitions=1, records=5)
    own_table(engine)
    asleep = InLedger(engine, name="mine", lease_ms=1000)
    zombie = Consumer(connection, topic, commit=asleep)
    records = zombie.records()
    first = next(records)
    handle(asleep.sql, first)
    asleep._leases.__exit__(None, None, None)  # pyright: ignore[reportPrivateUsage]  nobody extends it any more
    ledger = InLedger(engine, name="mine")
    with Consumer(connection, topic, commit=ledger) as consumer:
        for record in consumer.records():
            handle(ledger.sql, record)
            if record.offset == 4:
                consumer.stop()
    # Its connection was ended; where that comes too late, the position is another one by now.
    with pytest.raises((Fenced, LedgerBusy, DBAPIError)):
        for record in records:
            handle(asleep.sql, record)
    assert rows(engine) == expected(5, partitions=1)
    # It goes on where the other has come to.
    fill(connection, topic, range(5, 8), partitions=1)
    deadline = time.monotonic() + 30
    while len(rows(engine)) < 8:
        assert time.monotonic() < deadline
        with suppress(Fenced, LedgerBusy):  # once more, by the lease that it believes to hold
            for record in zombie.records(idle=1):
                handle(asleep.sql, record)
    zombie.close()
    assert rows(engine) == expected(8, partitions=1)
    in_order(engine)


def test_a_lease_that_was_lost_is_asked_for_again(engine: Engine, connection: Connection) -> None:
    """While it was idle, with records fetched and not begun: they are dropped, and read where the other has come to."""
    topic = new_topic(connection, partitions=1, records=6)
    own_table(engine)
    first, second = InLedger(engine, name="mine", lease_ms=600), InLedger(engine, name="mine")
    with Consumer(connection, topic, commit=first, each="record") as consumer:
        for record in consumer.records():
            handle(first.sql, record)
            consumer.done()
            break
        with write(engine) as sql:  # as if it had stood still for so long
            sql.execute(text("UPDATE kafka_progress SET owner = 'another', owner_lease_until = 0"))
        with Consumer(connection, topic, commit=second, each="record") as other:
            for record in other.records():
                handle(second.sql, record)
                if record.offset == 3:
                    other.done()
                    break
        deadline = time.monotonic() + 30
        while len(rows(engine)) < 6:
            assert time.monotonic() < deadline
            with suppress(Fenced, LedgerBusy):  # whoever took the lease has ended its connection
                for record in consumer.records(idle=1):
                    handle(first.sql, record)
    assert rows(engine) == expected(6, partitions=1)
    in_order(engine)


def test_offsets_that_expired_are_an_error_or_recorded(sqlite: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    with Consumer(connection, topic, commit=InLedger(sqlite, name="mine")) as consumer:
        take(consumer, 10)
    fill(connection, topic, range(10, 20), partitions=1)
    delete_records(connection, topic, 15)
    with pytest.raises(OffsetsExpired, match="10 to 15"):
        Consumer(connection, topic, commit=InLedger(sqlite, name="mine"))
    with Consumer(connection, topic, commit=InLedger(sqlite, name="mine", on_expired="record")) as consumer:
        assert [record.offset for record in take(consumer, 5)] == list(range(15, 20))
    in_order(sqlite)
    with read(sqlite) as sql:
        [lost] = sql.execute(text("SELECT start_offset, end_offset FROM kafka_slice WHERE kind = 'lost'")).all()
    assert tuple(lost) == (10, 15)


def test_a_topic_that_was_created_again_begins_at_its_beginning(sqlite: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    own_table(sqlite)
    ledger = InLedger(sqlite, name="mine")
    with Consumer(connection, topic, commit=ledger) as consumer:
        for record in consumer.records():
            handle(ledger.sql, record)
            if record.offset == 4:
                consumer.done()
                break
        delete_topic(connection, topic)
        create_topic(connection, topic, partitions=1)
        with pytest.raises(TopicChanged):
            for record in consumer.records(idle=20):
                handle(ledger.sql, record)
        assert rows(sqlite) == []
        fill(connection, topic, range(10, 13), partitions=1)
        assert [record.offset for record in take(consumer, 3)] == [0, 1, 2]
        assert next_offsets(sqlite, group="mine") == {(topic, 0): 3}
    in_order(sqlite)


def test_members_come_and_go_and_each_row_is_there_once(engine: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=4, records=100)
    own_table(engine)
    stop = threading.Event()
    again: list[BaseException] = []

    def consume() -> None:
        ledger = InLedger(engine)
        with Consumer(connection, topic, group=topic, commit=ledger, stop=stop, max_records=40) as consumer:
            while not stop.is_set():
                try:
                    for record in consumer.records():
                        handle(ledger.sql, record)
                        time.sleep(0.01)
                except LedgerBusy as error:
                    again.append(error)

    threads = [threading.Thread(target=consume) for _ in range(3)]
    deadline = time.monotonic() + 50
    for thread in threads:
        thread.start()
        time.sleep(1)
    while len(rows(engine)) < 400:
        time.sleep(0.1)
        assert time.monotonic() < deadline, again
    stop.set()
    for thread in threads:
        thread.join()
    assert rows(engine) == expected(100, partitions=4)
    assert next_offsets(engine, group=topic) == {(topic, part): 100 for part in range(4)}
    in_order(engine)
