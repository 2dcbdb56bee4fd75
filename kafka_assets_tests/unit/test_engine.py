"""Connections on SQLite, URLs, and what a driver's error becomes."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from kafka_assets.errors import DatabaseRefused, LedgerBusy, OutcomeUnknown, SettingsError
from kafka_assets.ledger import engine as engine_module
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import Kept, make_engine, parse_url, read, shared_reads, write
from kafka_assets.ledger.schema import current_revision, ensure_schema
from kafka_assets.ledger.trouble import refused_connection, translate


def add(connection: Any, topic: str) -> None:
    connection.execute(
        insert(t.source).values(stream="s", topic=topic, topic_id=topic, incarnation=1, first_seen=now_ts())
    )


def topics(engine: Engine) -> list[str]:
    with read(engine) as connection:
        return sorted(connection.scalars(select(t.source.c.topic)))


def test_a_write_is_seen_after_its_end_and_not_before(engine: Engine) -> None:
    with write(engine) as connection:
        add(connection, "a")
        assert topics(engine) == []
    assert topics(engine) == ["a"]


def test_an_exception_undoes_the_whole_write(engine: Engine) -> None:
    with pytest.raises(KeyError), write(engine) as connection:
        add(connection, "a")
        raise KeyError
    assert topics(engine) == []


def test_a_write_that_the_caller_rolled_back_stays_undone(engine: Engine) -> None:
    with write(engine) as connection:
        add(connection, "a")
        connection.rollback()
    assert topics(engine) == []


def test_an_error_that_is_nobody_s_trouble_stays_what_it_is(engine: Engine) -> None:
    with pytest.raises(IntegrityError), write(engine) as connection:
        add(connection, "a")
        add(connection, "a")
    assert topics(engine) == []


def test_the_second_writer_waits_and_is_then_told_that_the_database_is_busy(engine: Engine) -> None:
    impatient = make_engine(engine.url, lock_seconds=0)
    with write(engine), pytest.raises(LedgerBusy), write(impatient):
        pass
    with write(impatient) as connection:
        add(connection, "a")


def test_a_write_holds_the_lock_from_its_begin_on_so_that_it_never_fails_in_the_middle(engine: Engine) -> None:
    impatient = make_engine(engine.url, lock_seconds=0)
    with write(engine) as connection:
        assert connection.scalars(select(t.source.c.id)).all() == []
        with pytest.raises(LedgerBusy), write(impatient):
            pass
        add(connection, "a")


def test_threads_write_one_after_the_other(engine: Engine) -> None:
    def work(number: int) -> None:
        with write(engine) as connection:
            add(connection, f"t{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(topics(engine)) == 8


@pytest.mark.usefixtures("synced")
@pytest.mark.parametrize(
    ("pragma", "value"), [("foreign_keys", 1), ("journal_mode", "wal"), ("synchronous", 2), ("busy_timeout", 10_000)]
)
def test_a_connection_is_prepared(engine: Engine, pragma: str, value: object) -> None:
    with read(engine) as connection:
        assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value


def test_the_folder_of_a_projects_own_file_is_made_by_who_makes_the_ledger(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/.kafka_assets/ledger.db")
    assert current_revision(engine) is None and not (tmp_path / ".kafka_assets").exists()
    ensure_schema(engine)
    assert (tmp_path / ".kafka_assets" / "ledger.db").exists()
    assert stat.S_IMODE((tmp_path / ".kafka_assets").stat().st_mode) == 0o700


@pytest.mark.parametrize("look", [ensure_schema, current_revision])
@pytest.mark.parametrize("folder", ["shpo", "shpo/.kafka_assets", "file/b"])
def test_a_folder_that_is_mistyped_is_refused_and_never_made(
    tmp_path: Path, folder: str, look: Callable[[Engine], object]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=rf"{folder} .*is not there.*KAFKA_ASSETS_DATABASE_URL.*mkdir -p"):
        look(make_engine(f"sqlite:///{tmp_path}/{folder}/ledger.db"))
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_tilde_is_expanded_by_nobody_who_opens_the_file_and_so_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="the folder ~ for the database is not there"):
        ensure_schema(make_engine("sqlite:///~/ledger.db"))


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / ".kafka_assets").write_text("")
    with pytest.raises(SettingsError, match="cannot be made"):
        ensure_schema(make_engine(f"sqlite:///{tmp_path}/.kafka_assets/ledger.db"))


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("not a database, but long enough to be looked at as one" * 100)
    with (
        pytest.raises(SettingsError, match="no SQLite database"),
        write(make_engine(f"sqlite:///{tmp_path}/ledger.db")),
    ):
        pass


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be opened"), read(make_engine(f"sqlite:///{tmp_path}")):
        pass


def test_a_file_that_was_taken_away_while_it_was_worked_with_is_not_made_anew(engine: Engine) -> None:
    assert topics(engine) == []
    path = Path(engine.url.database or "")
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(SettingsError, match="is not there any more"), write(engine) as connection:
        add(connection, "a")
    assert not path.exists()


def test_a_database_in_whose_place_another_one_stands_is_said(engine: Engine) -> None:
    path = Path(engine.url.database or "")
    path.unlink()
    path.touch()
    with pytest.raises(SettingsError, match="has not the ledger's tables"):
        topics(engine)


def test_a_database_that_cannot_be_written_is_said(engine: Engine) -> None:
    def forbid(connection: sqlite3.Connection, record: object) -> None:
        connection.execute("PRAGMA query_only = ON")  # what the file's permissions do to anybody but root

    event.listen(engine, "connect", forbid)
    with pytest.raises(SettingsError, match="cannot be written"), write(engine) as connection:
        add(connection, "a")


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///x.db", "sqlite+pysqlite"),
        ("postgresql://me@host/db", "postgresql+psycopg"),
        ("postgres://me@host/db", "postgresql+psycopg"),
        ("postgresql+psycopg://me@host/db", "postgresql+psycopg"),
        ("mysql://me@host/db", "mysql+pymysql"),
        ("mariadb://me@host/db", "mariadb+pymysql"),
    ],
)
def test_a_url_gets_the_driver_that_the_package_works_with(url: str, driver: str) -> None:
    assert parse_url(url).drivername == driver


@pytest.mark.parametrize("url", ["postgresql://me:p@ssw0rd@host/db", "mysql://me:p@ssw0rd@host:3306/db"])
def test_half_a_password_is_taken_for_no_host_and_never_shown(url: str) -> None:
    with pytest.raises(SettingsError, match="%40") as refused:
        parse_url(url)
    assert "w0rd" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "oracle://me@host/db", "postgresql+psycopg2://me@host/db", "mysql+mysqldb://me@host/db", "no url at all", "",
        "sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true",
    ],
)  # fmt: skip
def test_a_url_without_a_road_is_refused_with_a_cure(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_url(url)
    assert caught.value.why
    assert caught.value.cure


def test_a_password_is_never_printed() -> None:
    with pytest.raises(LedgerBusy) as caught, read(make_engine("postgresql://me:secret@127.0.0.1:1/db")):
        pass
    assert "secret" not in str(caught.value)
    assert "127.0.0.1:1" in caught.value.what


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:1/db?user=me&password=secret",
        "postgresql://127.0.0.1:1/db?sslpassword=secret",
        "mysql://me@127.0.0.1:1/db?password=secret",
    ],
)
def test_neither_is_one_that_stands_among_the_options(url: str) -> None:
    with pytest.raises(LedgerBusy) as caught, read(make_engine(url)):
        pass
    assert "secret" not in str(caught.value)
    assert "127.0.0.1:1" in caught.value.what


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me@127.0.0.1:1/db?nosuchoption=1",
        "mysql://me@127.0.0.1:1/db?ssl_ca=/no/such/file",
        "postgresql://me@127.0.0.1:1/db?nosuchoption=1",
        "postgresql://me@127.0.0.1:1/db?sslmode=maybe",
        "postgresql://me@127.0.0.1:1/db?connect_timeout=soon",
        "postgresql://me@127.0.0.1:1/db?target_session_attrs=best",
    ],
)
def test_a_url_that_no_server_would_make_work_is_not_tried_again(url: str) -> None:
    with pytest.raises(SettingsError) as caught, read(make_engine(url)):
        pass
    assert "correct" in caught.value.cure


@pytest.mark.parametrize("said", ['FATAL:  too many connections for role "loader"', "FATAL:  sorry, too many clients"])
def test_a_server_that_takes_no_more_connections_is_not_told_to_be_started(said: str) -> None:
    refused = refused_connection(make_engine("postgresql://me@nowhere/x"), OperationalError("", {}, Exception(said)))
    assert isinstance(refused, LedgerBusy)
    assert "takes no more connections" in str(refused)


@pytest.mark.parametrize("url", ["postgresql://me@127.0.0.1:1/db", "mysql://me@127.0.0.1:1/db"])
def test_a_server_that_does_not_answer_may_come_back(url: str) -> None:
    with pytest.raises(LedgerBusy, match="does not answer"), read(make_engine(url)):
        pass


class FromServer(Exception):
    """What psycopg and pymysql raise: a SQLSTATE; with pymysql one that says little, beside a number."""

    def __init__(self, code: str | int, words: str = "words") -> None:
        super().__init__(*([code, words] if isinstance(code, int) else [words]))
        self.sqlstate = code if isinstance(code, str) else "HY000"


def raised(code: str | int, words: str = "words", *, invalidated: bool = False) -> DBAPIError:
    return DBAPIError("SELECT 1", {}, FromServer(code, words), connection_invalidated=invalidated)


@pytest.mark.parametrize(
    "code",
    ["40P01", "40001", "55P03", "57014", "57P01", "57P03", "08006", "25P03", 1205, 1213, 2006, 2013, 3024, 3572, 1927],
)
def test_deadlocks_timeouts_and_restarts_are_worth_another_try(code: str | int) -> None:
    assert isinstance(translate(raised(code)), LedgerBusy)


@pytest.mark.parametrize("code", ["53100", "53200", "58030", 3, 1021, 1026, 1041, 1114])
def test_a_full_disk_is_said_and_worth_another_try(code: str | int) -> None:
    full = translate(raised(code))
    assert isinstance(full, LedgerBusy)
    assert "make room" in full.cure


def test_of_a_storage_engines_errors_one_is_the_full_disk() -> None:
    assert isinstance(translate(raised(1030, 'Got error 28 "No space left on device" from storage engine')), LedgerBusy)
    assert translate(raised(1030, "Got error 168 from storage engine")) is None


def test_a_sqlite_file_that_cannot_grow_is_said_and_worth_another_try(engine: Engine) -> None:
    def limit(connection: sqlite3.Connection, record: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # what a full disk does, to the same result code

    event.listen(engine, "connect", limit)
    with pytest.raises(LedgerBusy, match="no room"), write(engine) as connection:
        for number in range(1000):
            add(connection, f"{number}" * 100)


def test_an_error_shows_no_value_of_a_record(engine: Engine) -> None:
    with pytest.raises(DBAPIError) as caught, write(engine) as connection:
        connection.execute(text("INSERT INTO nowhere VALUES (:value)"), {"value": "CANARY"})
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("code", ["23505", "22001", "42P01", 1062, 1406, 1146, 3819])
def test_what_fails_the_same_way_again_is_left_as_it_is(code: str | int) -> None:
    assert translate(raised(code)) is None


@pytest.mark.parametrize("code", ["42501", 1142, 1143])
def test_a_right_that_is_missing_is_named_with_its_table(code: str | int) -> None:
    refused = translate(DBAPIError('COPY "t" FROM STDIN', {}, FromServer(code, "permission denied for table t")))
    assert isinstance(refused, DatabaseRefused)
    assert "may not INSERT" in refused.what
    assert "table t" in refused.why
    # The same SQLSTATE is a policy's that takes some rows, and others not.
    assert translate(raised("42501", 'new row violates row-level security policy for table "t"')) is None


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT state FROM t FOR UPDATE", "may not SELECT … FOR UPDATE what is named here: it lacks one of the rights "
         "SELECT, UPDATE"),
        ("SELECT 1 FROM t FOR KEY SHARE", "… FOR KEY SHARE what is named here: it lacks one of"),
        ("SELECT 1 FROM t", "may not SELECT what is named here: it lacks the right SELECT"),
        ("INSERT INTO t VALUES (1)", "may not INSERT into what is named here: it lacks the right INSERT"),
        ("INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET n = 1", "one of the rights SELECT, INSERT, UPDATE"),
        ('INSERT INTO "delete" (n) VALUES (\'update\')', "it lacks the right INSERT"),
        ("UPDATE t SET n = 1 WHERE id = 1", "may not UPDATE what is named here: it lacks one of the rights SELECT, "
         "UPDATE"),
        ("DELETE FROM t", "may not DELETE from what is named here: it lacks the right DELETE"),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "it lacks one of the rights SELECT, INSERT"),
    ],
)  # fmt: skip
def test_where_the_server_names_no_right_those_that_the_statement_wants_are_named(statement: str, words: str) -> None:
    refused = translate(DBAPIError(statement, {}, FromServer("42501", "permission denied for table t")))
    assert isinstance(refused, DatabaseRefused)
    assert words in refused.what
    assert "GRANT" in refused.cure


@pytest.mark.parametrize(
    ("code", "said", "right"),
    [
        (1142, "UPDATE command denied to user 'a'@'%' for table 'kafka_claim'", "it lacks the right UPDATE"),
        (1142, "SELECT, INSERT command denied to user 'a'@'%' for table 'kafka_claim'", "the right SELECT, INSERT"),
        (1143, "SELECT command denied to user 'a'@'%' for column 'n' in table 't'", "it lacks the right SELECT"),
        (1227, "Access denied; you need (at least one of) the SUPER privilege(s) for this operation", "right SUPER"),
    ],
)
def test_the_right_that_the_server_names_is_the_one_that_is_told(code: int, said: str, right: str) -> None:
    refused = translate(DBAPIError("SELECT 1 FROM t FOR UPDATE", {}, FromServer(code, said)))
    assert refused is not None
    assert refused.what.endswith(right)


@pytest.mark.parametrize(
    ("code", "said"),
    [("42501", "permission denied for schema shop"), ("42501", "must be owner of table t"), (1044, "Access denied")],
)
def test_a_right_on_what_is_no_table_is_not_guessed(code: str | int, said: str) -> None:
    refused = translate(DBAPIError("SELECT 1 FROM shop.t", {}, FromServer(code, said)))
    assert refused is not None
    assert refused.what.endswith("may not SELECT what is named here")


@pytest.mark.parametrize(
    ("code", "said", "name", "cure"),
    [
        ("57014", "canceling statement due to statement timeout", "statement_timeout", "ALTER ROLE"),
        ("25P04", "terminating connection due to transaction timeout", "transaction_timeout", "ALTER ROLE"),
        (3024, "maximum statement execution time exceeded", "max_execution_time", "SET GLOBAL max_execution_time"),
        (1969, "Query execution was interrupted (max_statement_time exceeded)", "max_statement_time", "ALTER USER"),
    ],
)
def test_a_limit_on_time_that_a_statement_met_is_named_with_its_cure(
    code: str | int, said: str, name: str, cure: str
) -> None:
    for late in (translate(raised(code, said)), refused_connection(make_engine("mysql://a@b/c"), raised(code, said))):
        assert isinstance(late, LedgerBusy)
        assert name in late.what
        assert said in late.why
        assert f"raise {name}" in late.cure and cure in late.cure


def test_a_statement_that_somebody_canceled_met_no_limit_on_time() -> None:
    busy = translate(raised("57014", "canceling statement due to user request"))
    assert isinstance(busy, LedgerBusy)
    assert "timeout" not in str(busy)


@pytest.mark.parametrize("code", ["25006", 1290, 1792, 1836])
def test_a_standby_is_worth_another_try(code: str | int) -> None:
    busy = translate(raised(code, "running with the --read-only option"))
    assert isinstance(busy, LedgerBusy)
    assert "lead to the primary" in busy.cure
    # The same number says this, too, and it stays so.
    assert translate(raised(1290, "running with the --secure-file-priv option")) is None


def test_a_connection_that_was_lost_is_worth_another_try() -> None:
    assert isinstance(translate(raised(0, invalidated=True)), LedgerBusy)


def test_a_connection_lost_during_commit_is_an_unknown_outcome(engine: Engine) -> None:
    def lose(connection: object) -> None:
        raise raised(2013)

    with pytest.raises(OutcomeUnknown), write(engine) as connection:
        event.listen(connection, "commit", lose)
        connection.execute(text("SELECT 1"))


def test_a_kept_connection_serves_one_transaction_after_the_other(engine: Engine) -> None:
    opened: list[Any] = []
    kept = Kept(engine, opened=opened.append)
    for topic in ("a", "b"):
        with kept.write() as connection:
            add(connection, topic)
    assert topics(engine) == ["a", "b"]
    assert len(opened) == 1
    kept.close()


def invalidated(connection: Connection) -> None:
    """What SQLAlchemy does where the server has ended it in the middle of a statement."""
    connection.invalidate()
    connection.rollback()


def connected_again(connection: Connection) -> None:
    """And where its caller goes on with it."""
    invalidated(connection)
    connection.execute(text("SELECT 1"))
    connection.rollback()


@pytest.mark.parametrize("meanwhile", [invalidated, connected_again, Connection.close])
def test_a_connection_that_is_another_one_by_now_is_not_kept(
    engine: Engine, meanwhile: Callable[[Connection], None]
) -> None:
    """Its backend would be one that `opened` never heard of."""
    opened: list[Any] = []
    kept = Kept(engine, opened=opened.append)
    with kept.write() as connection:
        meanwhile(connection)
    with kept.write() as connection:
        add(connection, "a")
    assert len(opened) == 2
    assert topics(engine) == ["a"]
    kept.close()


@pytest.fixture
def connections(engine: Engine) -> list[object]:
    """What the engine connects to from here on."""
    made: list[object] = []
    event.listen(engine, "connect", lambda connection, _: made.append(connection))
    return made


def test_reads_that_share_a_connection_see_what_was_written_between_them(
    engine: Engine, connections: list[object]
) -> None:
    with shared_reads(engine):
        assert topics(engine) == []
        with write(engine) as connection:
            add(connection, "a")
        assert topics(engine) == ["a"]
        with shared_reads(engine):
            assert topics(engine) == ["a"]
    assert len(connections) == 2, "one of the reads, one of the write"
    topics(engine)
    assert len(connections) == 3, "and it ended with the block"


def test_a_read_within_another_has_a_connection_of_its_own(engine: Engine, connections: list[object]) -> None:
    with shared_reads(engine):
        with read(engine) as outer:
            assert topics(engine) == []
            assert outer.scalars(select(t.source.c.topic)).all() == []
        topics(engine)
    assert len(connections) == 2


def test_a_thread_shares_with_no_other(engine: Engine, connections: list[object]) -> None:
    with shared_reads(engine):
        topics(engine)
        other = threading.Thread(target=topics, args=(engine,))
        other.start()
        other.join()
    assert len(connections) == 2


@pytest.mark.parametrize("meanwhile", [invalidated, connected_again, Connection.close])
def test_a_read_that_lost_its_connection_leaves_it_to_no_other(
    engine: Engine, connections: list[object], meanwhile: Callable[[Connection], None]
) -> None:
    with shared_reads(engine):
        with read(engine) as connection:
            meanwhile(connection)
        met = len(connections)
        assert topics(engine) == []
        assert len(connections) == met + (meanwhile is not connected_again)


def test_a_read_that_failed_leaves_its_connection_to_no_other(engine: Engine, connections: list[object]) -> None:
    with shared_reads(engine):
        with pytest.raises(OperationalError), read(engine) as connection:
            connection.execute(text("SELECT nothing"))
        topics(engine)
    assert len(connections) == 2


def test_after_a_rest_a_read_connects_anew(
    engine: Engine, connections: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "REST_SECONDS", -1)
    with shared_reads(engine):
        topics(engine)
        topics(engine)
    assert len(connections) == 2


@pytest.mark.slow
def test_who_meets_a_new_file_while_another_writes_in_it_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    first = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    first.execute("CREATE TABLE made (n INTEGER)")
    first.execute("BEGIN IMMEDIATE")
    first.execute("INSERT INTO made VALUES (1)")
    engine = make_engine(f"sqlite:///{path}", lock_seconds=20)
    threading.Timer(0.3, lambda: first.execute("COMMIT")).start()
    with read(engine) as connection:
        assert connection.scalar(text("SELECT n FROM made")) == 1
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
    first.close()
    engine.dispose()


@pytest.mark.slow
def test_a_new_file_that_stays_locked_is_busy_after_as_long_as_any_lock(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("CREATE TABLE made (n INTEGER)")
    first.execute("BEGIN IMMEDIATE")
    engine = make_engine(f"sqlite:///{path}", lock_seconds=1)
    with pytest.raises(LedgerBusy, match="locked"), read(engine):
        pass
    first.close()
    engine.dispose()
