"""The one transaction on real servers, when they break a deadlock or take no writes for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, make_url, text

from kafka_assets.errors import LedgerBusy, SliceRefused
from kafka_assets.ledger import publishing as frame
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets_tests.integration.faults import counted_tries
from kafka_assets_tests.ledgers import Attempt, chunk_of, plan, rows_of, scalar, target


def test_the_victim_of_a_deadlock_begins_the_whole_transaction_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = plan(engine, slices=[(0, 5)])
    target(engine)
    tries = counted_tries(monkeypatch)
    attempt = Attempt(engine, keys).claim()
    other = make_engine(engine.url, lock_seconds=20)
    # The claim is locked by somebody else already when the transaction begins.
    monkeypatch.setattr(frame, "register_backend", lambda *given: None)
    with other.connect() as connection, connection.begin():
        _weighty(connection)
        connection.execute(text("select publication_id from kafka_claim for update"))

        def lock_both() -> None:
            connection.execute(text("select id from kafka_publication for update"))
            connection.rollback()

        waiting = threading.Thread(target=lock_both)

        def meet() -> None:
            if len(tries) == 1:
                waiting.start()
                time.sleep(1.5)  # it looks for a deadlock before there is one: this transaction then finds it

        attempt.publish(between=meet)
        waiting.join(30)
    assert len(tries) == 2
    assert len(rows_of(engine)) == 5
    assert scalar(engine, "select committed_attempt from kafka_publication") == 1


@pytest.mark.usefixtures("whole_server")
def test_a_database_that_takes_no_writes_for_a_while_is_tried_again(
    server: Engine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = plan(engine, slices=[(0, 5)])
    target(engine)
    tries = counted_tries(monkeypatch)
    with _ordinary(engine) as (ordinary, read_only):
        attempt = Attempt(ordinary, keys).claim()
        table = target(ordinary)

        def fail_over() -> None:
            if len(tries) == 1:
                read_only(True)
                threading.Timer(0.5, read_only, [False]).start()
                raise LedgerBusy("the old primary went away")

        attempt.publish(between=fail_over, table=table)
        assert len(tries) >= 2
        read_only(True)
        with pytest.raises(LedgerBusy, match="takes no writes"), write(ordinary) as connection:
            connection.execute(text("update kafka_claim set failures_alone = 1"))
        read_only(False)
    assert len(rows_of(engine)) == 5


def test_what_is_permanent_is_tried_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = plan(engine, slices=[(0, 5)])
    Attempt(engine, keys).claim().publish()
    tries = counted_tries(monkeypatch)
    with pytest.raises(SliceRefused):
        Attempt(engine, keys, replaces=True).claim(force=True).publish(chunk_of(keys[0], offsets=[0]))
    assert len(tries) == 1


def _weighty(connection: Connection) -> None:
    """Work to lose: InnoDB ends the transaction that changed least."""
    connection.execute(text("create table weight (id integer)"))
    if connection.dialect.name != "postgresql":
        connection.execute(text("insert into weight values (1)"))
        for _ in range(8):
            connection.execute(text("insert into weight select id from weight"))


@contextmanager
def _ordinary(engine: Engine) -> Iterator[tuple[Engine, Callable[[bool], None]]]:
    """An engine of a user without privileges over the server, and the switch that makes it read-only."""
    admin = create_engine(engine.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)

    def said(*statements: str) -> None:
        with admin.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))

    database = engine.url.database
    if engine.dialect.name == "postgresql":

        def standby(on: bool) -> None:
            # Of this very connection it holds already.
            said(
                "set default_transaction_read_only = off",
                f"alter database {database} set default_transaction_read_only = {'on' if on else 'off'}",
            )

        url = engine.url
    else:
        said("create user landing@'%' identified by 'landing'", f"grant all on {database}.* to landing@'%'")

        def standby(on: bool) -> None:
            said(f"set global read_only = {int(on)}")

        url = make_url(engine.url).set(username="landing", password="landing")
    try:
        yield make_engine(url, lock_seconds=2), standby
    finally:
        standby(False)
        if engine.dialect.name != "postgresql":
            said("drop user landing@'%'")
        admin.dispose()
