"""A listener on a list: tried again, quarantined, skipped or ended, without a broker."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from kafka_assets import kafka_listener
from kafka_assets.broker.read import StoredRecord
from kafka_assets.errors import LedgerBusy, Permanent, UsageError
from kafka_assets.ledger.engine import make_engine
from kafka_assets.live.dead_letters import DeadLetters
from kafka_assets.live.handling import Again, Handling, Stopped
from kafka_assets.testing import Record, run_listener


class Failing:
    """Fails on one value, so many times."""

    def __init__(self, value: bytes, times: int, error: type[Exception] = ValueError) -> None:
        self.value, self.times, self.error = value, times, error
        self.done: list[bytes | None] = []

    def __call__(self, record: StoredRecord) -> None:
        if record.value == self.value and self.times:
            self.times -= 1
            raise self.error("not this one")
        self.done.append(record.value)


def test_the_function_can_be_called_as_it_is() -> None:
    @kafka_listener(topics="orders")
    def double(number: int) -> int:
        """Twice as much."""
        return number * 2

    assert double(2) == 4
    assert (double.group, double.topics, double.__doc__) == ("double", "orders", "Twice as much.")


def test_a_record_has_its_parts() -> None:
    seen: list[StoredRecord] = []
    listener = kafka_listener(topics=["orders", "more"], group="g")(seen.append)
    run_listener(listener, [{"id": 1}, Record("a", key="k", headers=(("h", b"v"),)), None])
    assert [(one.topic, one.partition, one.offset, one.key, one.value) for one in seen] == [
        ("orders", 0, 0, None, b'{"id": 1}'),
        ("orders", 0, 1, b"k", b"a"),
        ("orders", 0, 2, None, None),
    ]
    assert seen[1].headers == (("h", b"v"),)


def test_what_raises_is_tried_again_with_growing_pauses() -> None:
    function = Failing(b"b", 3)
    heard = run_listener(kafka_listener(topics="t", group="g", retries=3, backoff=0.5)(function), ["a", "b", "c"])
    assert function.done == [b"a", b"b", b"c"]
    assert heard.pauses == [0.5, 1.0, 2.0]
    assert heard.quarantined == []


def test_what_raises_too_often_ends_the_listener_with_the_functions_own_error() -> None:
    function = Failing(b"b", 4)
    with pytest.raises(ValueError, match="not this one"):
        run_listener(kafka_listener(topics="t", group="g", retries=3)(function), ["a", "b", "c"])
    assert function.done == [b"a"], "nothing after it was begun"


def test_a_permanent_error_is_not_tried_again() -> None:
    function = Failing(b"b", 1, Permanent)
    with pytest.raises(Permanent):
        run_listener(kafka_listener(topics="t", group="g")(function), ["a", "b"])


def test_quarantine_takes_the_record_and_the_others_go_on() -> None:
    function = Failing(b"b", 99)
    heard = run_listener(kafka_listener(topics="t", group="g", retries=1, quarantine="dead")(function), ["a", "b", "c"])
    assert function.done == [b"a", b"c"]
    [(record, error)] = heard.quarantined
    assert (record.value, record.offset, str(error)) == (b"b", 1, "not this one")


def test_skip_goes_on_and_a_handler_may_decide() -> None:
    function = Failing(b"b", 99)
    run_listener(kafka_listener(topics="t", group="g", retries=0, on_error="skip")(function), ["a", "b", "c"])
    assert function.done == [b"a", b"c"]
    met: list[Any] = []

    def decide(record: StoredRecord, error: Exception) -> None:
        met.append((record.offset, str(error)))
        if record.offset == 2:
            raise RuntimeError("enough")

    listener = kafka_listener(topics="t", group="g", retries=0, on_error=decide)(Failing(b"b", 99))
    with pytest.raises(RuntimeError, match="enough"):
        run_listener(listener, ["a", "b", "b", "c"])
    assert met == [(1, "not this one"), (2, "not this one")]


def test_of_a_batch_that_raises_each_record_is_tried_alone() -> None:
    calls: list[list[bytes | None]] = []

    def function(batch: list[StoredRecord]) -> None:
        calls.append([one.value for one in batch])
        if any(one.value == b"b" for one in batch):
            raise ValueError("b is in it")

    listener = kafka_listener(topics="t", group="g", batch=True, retries=1, max_records=3, quarantine="dead")(function)
    heard = run_listener(listener, ["a", "b", "c", "d"])
    assert [record.value for record, _ in heard.quarantined] == [b"b"]
    assert [b"a"] in calls
    assert [b"c"] in calls
    assert calls[-1] == [b"d"]


@pytest.fixture
def sql(tmp_path: Path) -> Iterator[Connection]:
    engine = make_engine(f"sqlite:///{tmp_path / 'own.db'}")
    with engine.connect() as connection, connection.begin():
        connection.execute(text("CREATE TABLE handled (value TEXT)"))
        yield connection
    engine.dispose()


def test_the_sql_of_a_try_that_failed_is_taken_back(sql: Connection) -> None:
    times = iter([True, False])

    @kafka_listener(topics="t", commit="ledger", quarantine="kafka_quarantine")
    def insert(record: StoredRecord, sql: Connection) -> None:
        sql.execute(text("INSERT INTO handled VALUES (:value)"), {"value": record.value})
        if record.value == b"b" and next(times):
            raise ValueError("the first time")

    run_listener(insert, ["a", "b", "c"], sql=sql)
    assert sql.scalars(text("SELECT value FROM handled")).all() == [b"a", b"b", b"c"]


def test_a_busy_database_is_not_the_records_fault(sql: Connection) -> None:
    @kafka_listener(topics="t", commit="ledger", quarantine="kafka_quarantine")
    def insert(record: StoredRecord) -> None:
        busy = sqlite3.OperationalError("database is locked")
        busy.sqlite_errorcode = 5
        raise OperationalError("INSERT", {}, busy)

    with pytest.raises(LedgerBusy):
        run_listener(insert, ["a"], sql=sql)


def test_in_a_transaction_each_try_begins_anew() -> None:
    """Nothing of a failed try may stay in the transaction: it is aborted, and its records come again."""
    sent: list[Any] = []
    calls: list[bytes | None] = []

    @kafka_listener(topics="t", commit="transaction", retries=1, backoff=0.5, quarantine="dead")
    def copy(record: StoredRecord, producer: Any) -> None:
        calls.append(record.value)
        producer.append(record.value)
        if record.value == b"b":
            raise ValueError("after it was sent")

    heard = run_listener(copy, ["a", "b", "c"], producer=sent)
    assert calls == [b"a", b"b", b"b", b"c"], "the last time it is quarantined without a call"
    assert heard.pauses == [0.5, 0.0]
    assert [record.value for record, _ in heard.quarantined] == [b"b"]


def test_of_several_bad_records_in_one_transaction_each_aborts_it_no_more_often_than_it_is_tried() -> None:
    values = [b"bad" if offset in {2, 5, 7} else b"good" for offset in range(9)]
    unit = [StoredRecord("t", 0, offset, None, value, 0, ()) for offset, value in enumerate(values)]
    quarantined: list[int] = []

    @kafka_listener(topics="t", commit="transaction", retries=2, backoff=0, quarantine="dead")
    def copy(record: StoredRecord) -> None:
        if record.value == b"bad":
            raise ValueError("bad")

    handling = Handling(copy, pause=print, quarantine=lambda record, *_: quarantined.append(record.offset))
    aborted = 0
    while True:
        quarantined.clear()
        try:
            for record in unit:
                handling([record])
            break
        except Again:
            aborted += 1
            assert aborted < 100
    assert aborted == 3 * 3
    assert quarantined == [2, 5, 7], "in the transaction that commits, too"
    assert handling.tries
    handling.committed(unit)
    assert handling.tries == {}


@pytest.mark.parametrize("batch", [True, False])
def test_who_is_stopped_between_two_tries_decides_nothing(batch: bool) -> None:
    function, quarantined = Failing(b"b", 99), list[Any]()
    one: Any = (lambda records: function(records[0])) if batch else function
    listener = kafka_listener(topics="t", group="g", batch=batch, retries=5, quarantine="dead")(one)
    handling = Handling(listener, pause=lambda _: True, quarantine=lambda *given: quarantined.append(given))
    with pytest.raises(Stopped):
        handling([StoredRecord("t", 0, 0, None, b"b", 0, ())])
    assert function.times == 98, "it was tried once"
    assert quarantined == []


def test_a_pause_is_never_too_long_to_be_counted() -> None:
    function = Failing(b"b", 3000)
    heard = run_listener(kafka_listener(topics="t", group="g", retries=3000, backoff=1e-9)(function), ["b"])
    assert heard.pauses[-1] == 60.0


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"commit": "soon"}, "no commit mode"),
        ({"retries": -1}, "begin at 0"),
        ({"on_expired": "record"}, "needs commit='ledger'"),
        ({"on_expired": "jump", "commit": "ledger"}, "no on_expired"),
        ({"quarantine": "kafka_quarantine"}, "needs commit='ledger'"),
        ({"commit": "transaction", "batch": True, "quarantine": "dead"}, "fails as a whole"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(given: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        kafka_listener(topics="t", group="g", **given)(print)


def test_what_a_function_takes_must_be_there() -> None:
    def inserts(record: StoredRecord, sql: Connection) -> None: ...

    def sends(record: StoredRecord, producer: object) -> None: ...

    with pytest.raises(UsageError, match="takes 'sql' needs commit='ledger'"):
        kafka_listener(topics="t")(inserts)
    with pytest.raises(UsageError, match="takes 'producer' needs commit='transaction'"):
        kafka_listener(topics="t")(sends)


def test_a_dead_letter_says_why_and_from_where() -> None:
    record = StoredRecord("orders", 3, 42, b"k", b"v", 1_700_000_000_000, (("trace", b"1"),))
    headers = DeadLetters(None, "dead", "billing").headers(record, ValueError("no"), 4)  # type: ignore[arg-type]
    assert headers == [
        ("trace", b"1"),
        ("kafka_assets.error", "ValueError"),
        ("kafka_assets.reason", "no"),
        ("kafka_assets.group", "billing"),
        ("kafka_assets.topic", "orders"),
        ("kafka_assets.partition", "3"),
        ("kafka_assets.offset", "42"),
        ("kafka_assets.timestamp", "1700000000000"),
        ("kafka_assets.tries", "4"),
    ]
