"""Target tables on real servers: the suite that all databases share, and what others notice of it."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, event, text

from kafka_assets.errors import LedgerBusy, TableIncompatible
from kafka_assets.ledger.engine import make_engine
from kafka_assets.sinks import tables
from kafka_assets_tests.integration.databases import held
from kafka_assets_tests.ledgers import target
from kafka_assets_tests.tables_contract import BY_HAND, LINEAGE, TablesContract, change, columns, corrected, widened


class TestTablesOnServers(TablesContract):
    """The engine is of each server."""

    def test_a_reader_s_long_transaction_makes_nobody_queue_behind_the_new_column(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target(engine)
        altering = _alters(engine)
        monkeypatch.setattr(tables, "_LOCK_SECONDS", 1)
        patient = make_engine(engine.url, lock_seconds=30)
        with held(engine, "select count(*) from orders") as long:
            widen = threading.Thread(target=lambda: widened(engine, more=pa.int64()))
            widen.start()
            assert altering.wait(10)
            # Queued behind the ALTER, until that gives up: the long transaction goes on all the while.
            with patient.connect() as reader:
                assert reader.scalar(text("select count(*) from orders")) == 0
            assert "more" not in columns(engine)
            long.rollback()
            widen.join(30)
        assert columns(engine)["more"]

    def test_a_transaction_that_never_ends_is_named_as_the_reason(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target(engine)
        monkeypatch.setattr(tables, "_LOCK_SECONDS", 1)
        monkeypatch.setattr(tables, "retried", lambda transaction: transaction())
        with (
            held(engine, "select count(*) from orders"),
            pytest.raises(LedgerBusy, match="end the long transaction that uses the table"),
        ):
            widened(engine, more=pa.int64())
        assert "more" not in columns(engine)

    def test_a_blank_table_that_another_one_refers_to_stays_and_the_cure_is_named(self, engine: Engine) -> None:
        target(engine)
        key = "kafka_source, kafka_partition, kafka_offset"
        change(engine, f"create table child ({LINEAGE}, foreign key ({key}) references orders ({key}))")
        with pytest.raises(TableIncompatible, match=r"something depends on it.*DROP TABLE .orders."):
            corrected(engine)
        assert "note" in columns(engine)
        change(engine, "drop table child")
        corrected(engine)

    def test_what_somebody_gave_to_a_blank_table_is_never_lost(self, engine: Engine) -> None:
        target(engine)
        if engine.dialect.name == "postgresql":
            change(engine, "grant select on orders to public")
            taken = "revoke all on orders from public"
        else:
            change(engine, "create trigger own before insert on orders for each row set new.note = 'own'")
            taken = "drop trigger own"
        with pytest.raises(TableIncompatible, match=r"a trigger, a right.*DROP TABLE .orders."):
            corrected(engine)
        change(engine, taken)
        if engine.dialect.name != "postgresql":  # where a right was given once, the owner's own are written down
            corrected(engine)

    def test_a_writer_in_a_long_transaction_is_waited_for_before_a_blank_table_is_dropped(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target(engine)
        monkeypatch.setattr(tables, "_LOCK_SECONDS", 1)
        monkeypatch.setattr(tables, "retried", lambda transaction: transaction())
        with held(engine, BY_HAND) as long:
            with pytest.raises(LedgerBusy, match="end the long transaction that uses the table"):
                corrected(engine)
            long.commit()
        with pytest.raises(TableIncompatible, match=r"column 'id' is \w+"):
            corrected(engine)


def _alters(engine: Engine) -> threading.Event:
    """Set when an ALTER TABLE is sent."""
    sent = threading.Event()

    def look(connection: Any, cursor: Any, statement: str, *given: Any) -> None:
        if statement.startswith("ALTER TABLE"):
            sent.set()

    event.listen(engine, "before_cursor_execute", look)
    return sent
