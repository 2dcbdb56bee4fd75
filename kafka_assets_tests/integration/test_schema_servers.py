"""The ledger on real servers: made once, equal to what sql/ says, and connected to as the protocol asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, insert, inspect, select, text, update
from sqlalchemy.exc import DBAPIError

from kafka_assets.errors import LedgerBusy, LedgerMissing, OutcomeUnknown, SettingsError
from kafka_assets.ledger import schema
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import make_engine, read, write
from kafka_assets.ledger.rendering import split
from kafka_assets.ledger.views import VIEWS

SERVERS = ("postgresql", "mariadb", "mysql")
SQL = Path(__file__).parents[2] / "sql"


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    """The URL of a new, empty database."""
    return request.getfixturevalue(f"{request.param}_database")


@pytest.fixture
def ledger(server: str) -> Iterator[Engine]:
    engine = make_engine(server)
    schema.ensure_schema(engine)
    with write(engine) as connection:
        for topic in ("a", "b"):
            connection.execute(
                insert(t.source).values(stream="s", topic=topic, topic_id=topic, incarnation=1, first_seen=now_ts())
            )
    yield engine
    engine.dispose()


def touch(connection: Connection, topic: str) -> int:
    return connection.execute(update(t.source).where(t.source.c.topic == topic).values(topic_id=topic)).rowcount


def described(engine: Engine) -> dict[str, Any]:
    """Everything that was made, in the database's own words."""
    with read(engine) as connection:
        names = [*t.metadata.tables, *(view.name for view in VIEWS)]
        if engine.dialect.name != "postgresql":
            return {name: connection.exec_driver_sql(f"SHOW CREATE TABLE {name}").one()[1] for name in sorted(names)}
        asked = {
            "columns": "SELECT table_name, ordinal_position, column_name, data_type, character_maximum_length,"
            " is_nullable, column_default, is_identity, generation_expression FROM information_schema.columns"
            " WHERE table_schema = 'public' ORDER BY 1, 2",
            "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2",
            "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
            "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1",
            "comments": "SELECT classoid::regclass::text, description FROM pg_description"
            " WHERE objoid >= 16384 ORDER BY 1, 2",
        }
        return {what: [tuple(row) for row in connection.exec_driver_sql(query)] for what, query in asked.items()}


@pytest.mark.parametrize("name", SERVERS)
def test_rendered_is_migrated(name: str, request: pytest.FixtureRequest, fresh_database: Callable[[str], str]) -> None:
    url = request.getfixturevalue(f"{name}_url")
    migrated, executed = make_engine(fresh_database(url)), make_engine(fresh_database(url))
    schema.ensure_schema(migrated)
    with write(executed) as connection:
        for statement in split((SQL / f"{name}.sql").read_text(encoding="utf-8")):
            connection.exec_driver_sql(statement)
    assert described(executed) == described(migrated)
    schema.require_schema(executed)
    assert schema.upgrade(executed) == schema.REVISION


def test_comments_are_on_every_table_and_column(ledger: Engine) -> None:
    inspector = inspect(ledger)
    for table in t.metadata.tables.values():
        assert inspector.get_table_comment(table.name)["text"] == table.comment
        found = {column["name"]: column["comment"] for column in inspector.get_columns(table.name)}
        assert found == {column.name: column.comment for column in table.columns}


def test_those_who_make_it_at_once_make_it_once(server: str) -> None:
    failures: list[BaseException] = []

    def initialise() -> None:
        try:
            schema.ensure_schema(make_engine(server))
        except BaseException as error:  # noqa: BLE001 - told by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=initialise) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert schema.current_revision(make_engine(server)) == schema.REVISION


def test_an_initialisation_that_was_interrupted_is_finished(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(server)
    with monkeypatch.context() as patched:
        patched.setattr("kafka_assets.ledger.rendering.split", lambda sql: [*split(sql)[:7], "CREATE NONSENSE"])
        with pytest.raises(DBAPIError):
            schema.upgrade(engine)
    assert schema.current_revision(engine) is None
    schema.ensure_schema(engine)
    assert set(inspect(engine).get_table_names()) == set(t.metadata.tables)
    assert {view.name for view in VIEWS} <= set(inspect(engine).get_view_names())


def test_a_stranger_s_table_is_never_taken_for_the_ledger_s(server: str) -> None:
    engine = make_engine(server)
    with write(engine) as connection:
        connection.execute(text("CREATE TABLE kafka_source (mine INTEGER)"))
    with pytest.raises(LedgerMissing, match="kafka_source"):
        schema.ensure_schema(engine)


def test_a_statement_sees_what_others_committed_before_it(ledger: Engine) -> None:
    with read(ledger) as reader:
        assert reader.scalar(select(t.source.c.topic_id).where(t.source.c.topic == "a")) == "a"
        with write(ledger) as writer:
            writer.execute(update(t.source).where(t.source.c.topic == "a").values(topic_id="new"))
            assert reader.scalar(select(t.source.c.topic_id).where(t.source.c.topic == "a")) == "a"
        assert reader.scalar(select(t.source.c.topic_id).where(t.source.c.topic == "a")) == "new"


def test_an_update_counts_the_row_that_it_found_unchanged(ledger: Engine) -> None:
    with write(ledger) as connection:
        assert touch(connection, "a") == 1


def test_whoever_waits_for_a_lock_is_told_that_the_database_is_busy(ledger: Engine) -> None:
    impatient = make_engine(ledger.url, lock_seconds=1)
    with write(ledger) as connection:
        touch(connection, "a")
        with pytest.raises(LedgerBusy), write(impatient) as other:
            touch(other, "a")


def test_a_deadlock_is_worth_another_try(ledger: Engine) -> None:
    met, outcomes = threading.Barrier(2), list[str]()

    def cross(first: str, second: str) -> None:
        try:
            with write(ledger) as connection:
                touch(connection, first)
                met.wait(10)
                touch(connection, second)
            outcomes.append("committed")
        except LedgerBusy:
            outcomes.append("busy")

    threads = [threading.Thread(target=cross, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["busy", "committed"]


def test_an_idle_transaction_is_ended_and_its_locks_with_it(ledger: Engine) -> None:
    frozen = make_engine(ledger.url, idle_seconds=1)
    with pytest.raises((LedgerBusy, OutcomeUnknown)), write(frozen) as connection:
        touch(connection, "a")
        time.sleep(2.5)
        with write(make_engine(ledger.url, lock_seconds=1)) as other:
            touch(other, "a")
        connection.execute(text("SELECT 1"))


def ended(engine: Engine, connection: Connection) -> None:
    """End the backend of a connection from another one."""
    if engine.dialect.name == "postgresql":
        number = connection.scalar(text("SELECT pg_backend_pid()"))
        with read(engine) as other:
            other.execute(text(f"SELECT pg_terminate_backend({number}, 5000)"))
    else:
        number = connection.scalar(text("SELECT connection_id()"))
        with read(engine) as other:
            other.execute(text(f"KILL {number}"))
    time.sleep(0.3)


def test_a_backend_that_was_ended_is_worth_another_try(ledger: Engine) -> None:
    with pytest.raises(LedgerBusy), write(ledger) as connection:
        touch(connection, "a")
        ended(ledger, connection)
        touch(connection, "b")


def test_a_connection_lost_during_commit_is_an_unknown_outcome(ledger: Engine) -> None:
    with pytest.raises(OutcomeUnknown), write(ledger) as connection:
        touch(connection, "a")
        ended(ledger, connection)


def test_a_session_speaks_utc_and_is_strict(ledger: Engine) -> None:
    with read(ledger) as connection:
        if ledger.dialect.name == "postgresql":
            assert connection.exec_driver_sql("SHOW timezone").scalar() == "UTC"
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
            assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "10s"
            assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar() == "30s"
        else:
            zone, mode, wait, charset = connection.exec_driver_sql(
                "SELECT @@session.time_zone, @@session.sql_mode, @@session.innodb_lock_wait_timeout,"
                " @@session.character_set_connection"
            ).one()
            assert (zone, wait, charset) == ("+00:00", 10, "utf8mb4")
            assert "STRICT_ALL_TABLES" in mode
            assert connection.get_isolation_level() == "READ COMMITTED"


def test_a_database_that_is_not_there_is_a_wrong_setting(ledger: Engine) -> None:
    with pytest.raises(SettingsError, match="refused"), read(make_engine(ledger.url.set(database="nowhere"))):
        pass


def test_a_url_that_names_the_wrong_database_is_told(mysql_url: str) -> None:
    with pytest.raises(SettingsError, match="not what its URL says"):
        schema.current_revision(make_engine(mysql_url.replace("mysql", "mariadb", 1)))
