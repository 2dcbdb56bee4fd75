"""What fails while a consumer commits in the ledger, and a caller that goes on: each row is there once all the same."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, text

from kafka_assets import Consumer, InLedger
from kafka_assets.broker import Connection, starts
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.offsets import TopicOffsets
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.errors import CommitFailed, Fenced, LedgerBusy, OffsetsExpired, TopicChanged, TopicMissing
from kafka_assets.ledger.backends import backend_of
from kafka_assets.ledger.engine import Kept, read
from kafka_assets.ledger.last_committed import next_offsets
from kafka_assets.live import claiming
from kafka_assets_tests.integration.consuming import (
    QUICK,
    STEP_BY_STEP,
    delete_records,
    expected,
    fill,
    new_topic,
    number,
)
from kafka_assets_tests.integration.consuming import read as take
from kafka_assets_tests.integration.databases import kill_backend
from kafka_assets_tests.integration.handled import handle, in_order, own_table, rows

ENCRYPTED = True
"""As users of MySQL speak to it: what a broken connection says is another error there."""


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


def test_a_commit_that_fails_in_a_revocation_leaves_the_partition_to_the_next_member(
    engine: Engine, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection, partitions=2, records=200)
    own_table(engine)
    first, failed = InLedger(engine), list[int]()
    done = first.done

    def fails_the_first_time(unit: Any) -> None:
        """A unit takes 20 s: long before its end the second member is there, and a partition goes."""
        if not failed:
            failed.append(len(unit.done))
            first.undo(unit)
            raise LedgerBusy("not now")
        done(unit)

    monkeypatch.setattr(first, "done", fails_the_first_time)
    stop, joined = threading.Event(), threading.Event()

    def consume() -> None:
        ledger = InLedger(engine)
        with Consumer(connection, topic, group=topic, commit=ledger, stop=stop) as consumer:
            while not stop.is_set():
                with suppress(LedgerBusy):
                    for record in consumer.records():
                        handle(ledger.sql, record)
                        joined.set()

    second = threading.Thread(target=consume)
    deadline = time.monotonic() + 25  # less than a lease
    with Consumer(connection, topic, group=topic, commit=first) as consumer:
        while not joined.is_set():
            assert time.monotonic() < deadline, failed
            with suppress(LedgerBusy):
                for record in consumer.records(idle=0.5):
                    handle(first.sql, record)
                    time.sleep(0.05)
                    if not second.ident:
                        second.start()
        insert_on(consumer, first, engine, 400)
        stop.set()
        second.join()
    assert failed[0] < 400
    assert rows(engine) == expected(200)
    in_order(engine)


def test_who_is_stuck_for_longer_than_the_group_waits_is_followed_by_another(
    engine: Engine, connection: Connection
) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    own_table(engine)
    stuck, ledger = InLedger(engine, lease_ms=2000), InLedger(engine, lease_ms=2000)
    member = Membership(topic, max_poll_interval=6)
    zombie = Consumer(connection, topic, group=member, commit=stuck)
    batches = zombie.batches()
    for record in next(batches):
        handle(stuck.sql, record)
    begun = time.monotonic()
    with Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        insert_on(consumer, ledger, engine, 10)
        assert time.monotonic() - begun > 5, "before that it is only slow"
        with pytest.raises((Fenced, LedgerBusy)):
            next(batches)
        with suppress(LedgerBusy, CommitFailed):
            zombie.close()
    assert rows(engine) == expected(10, partitions=1)
    in_order(engine)


def test_no_transaction_begins_on_a_connection_that_no_lease_names(engine: Engine, connection: Connection) -> None:
    """It was made anew between the lease's registration and the BEGIN: whoever came after it could not end it."""
    topic = new_topic(connection, partitions=1, records=3)
    own_table(engine)
    ledger = InLedger(engine)
    with Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        live = ledger._connection  # pyright: ignore[reportPrivateUsage]
        kept = Kept(engine, opened=live._name, pause_seconds=-1)  # pyright: ignore[reportPrivateUsage]
        live._kept, before = kept, live._kept  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(LedgerBusy, match="another one when its transaction began"):
            next(consumer.records())
        live._kept = before  # pyright: ignore[reportPrivateUsage]
        insert_on(consumer, ledger, engine, 3)
    assert rows(engine) == expected(3, partitions=1)


def hide_at_first(monkeypatch: pytest.MonkeyPatch, module: Any, partition: int) -> list[int]:
    """The broker that is asked has not heard of this partition yet, the first time."""
    ask, asked = module.topic_offsets, list[int]()

    def topic_offsets(*given: Any, **more: Any) -> TopicOffsets:
        found = ask(*given, **more)
        asked.append(1)
        if len(asked) > 1:
            return found
        return replace(found, partitions={one: at for one, at in found.partitions.items() if one != partition})

    monkeypatch.setattr(module, "topic_offsets", topic_offsets)
    return asked


def test_a_partition_that_the_broker_does_not_show_yet_is_waited_for(
    sqlite: Engine, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection, partitions=2, records=5)
    own_table(sqlite)
    asked = hide_at_first(monkeypatch, claiming, 1)
    ledger = InLedger(sqlite)
    with Consumer(connection, topic, group=topic, commit=ledger) as consumer:
        insert_on(consumer, ledger, sqlite, 10)
    assert len(asked) > 1
    assert rows(sqlite) == expected(5)
    in_order(sqlite)


def test_a_groups_partition_that_the_broker_does_not_show_yet_is_waited_for(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection, partitions=2, records=5)
    asked = hide_at_first(monkeypatch, starts, 1)
    with Consumer(connection, topic, group=topic) as consumer:
        assert sorted(map(number, take(consumer, 10))) == expected(5)
    assert len(asked) > 1


# ---- what the topic loses while it is read --------------------------------------------------------------


def one_by_one(broker: str, *, records: int) -> tuple[Connection, str]:
    connection = Connection(broker, STEP_BY_STEP)
    topic = new_topic(connection, partitions=1)
    for count in range(records):
        fill(connection, topic, [count], partitions=1)
    return connection, topic


def lost(engine: Engine) -> list[tuple[int, int]]:
    with read(engine) as sql:
        found = sql.execute(text("SELECT start_offset, end_offset FROM kafka_slice WHERE kind = 'lost'")).all()
    return [(one[0], one[1]) for one in found]


@pytest.mark.parametrize("grouped", [True, False])
def test_what_expires_while_it_is_read_is_recorded_as_lost(sqlite: Engine, broker: str, grouped: bool) -> None:
    connection, topic = one_by_one(broker, records=20)
    own_table(sqlite)
    ledger = InLedger(sqlite, name="mine", on_expired="record")
    given: Any = {"group": topic} if grouped else {}
    with Consumer(connection, topic, commit=ledger, each="record", max_records=1, **given) as consumer:
        for record in consumer.records(idle=20):
            handle(ledger.sql, record)
            if record.offset == 2:
                delete_records(connection, topic, 15)
            if record.offset == 19:
                consumer.stop()
    seen = [count for _, count in rows(sqlite)]
    assert seen == [*range(len(seen) - 5), *range(15, 20)]
    assert lost(sqlite) == [(len(seen) - 5, 15)]
    assert holes(sqlite) == 0
    in_order(sqlite)


@pytest.mark.parametrize("grouped", [True, False])
def test_what_expires_while_it_is_read_is_an_error_for_as_long_as_it_is_one(
    sqlite: Engine, broker: str, grouped: bool
) -> None:
    connection, topic = one_by_one(broker, records=20)
    own_table(sqlite)
    ledger = InLedger(sqlite, name="mine")
    given: Any = {"group": topic} if grouped else {}
    with Consumer(connection, topic, commit=ledger, each="record", max_records=1, **given) as consumer:
        for _ in range(2):
            with pytest.raises(OffsetsExpired, match="to 15 expired"):
                for record in consumer.records(idle=20):
                    handle(ledger.sql, record)
                    if record.offset == 2:
                        delete_records(connection, topic, 15)
    seen = [count for _, count in rows(sqlite)]
    assert seen == list(range(len(seen)))
    assert next_offsets(sqlite, group="mine") == {(topic, 0): len(seen)}
    assert lost(sqlite) == []


@pytest.mark.parametrize("grouped", [True, False])
def test_a_shorter_topic_that_was_created_again_while_it_is_read_goes_on_at_0(
    sqlite: Engine, connection: Connection, grouped: bool
) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    own_table(sqlite)
    ledger = InLedger(sqlite, name="mine")
    given: Any = {"group": topic} if grouped else {}
    with Consumer(connection, topic, commit=ledger, **given) as consumer:
        insert_on(consumer, ledger, sqlite, 10)
        delete_topic(connection, topic)
        create_topic(connection, topic, partitions=1)
        fill(connection, topic, range(100, 103), partitions=1)
        insert_on(consumer, ledger, sqlite, 13, TopicMissing, TopicChanged)
    assert [count for _, count in rows(sqlite)] == [*range(10), 100, 101, 102]
    assert next_offsets(sqlite, group="mine") == {(topic, 0): 3}
    in_order(sqlite)
