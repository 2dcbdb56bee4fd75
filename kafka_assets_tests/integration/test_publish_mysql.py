"""What is MySQL's and MariaDB's own: LOAD DATA LOCAL, which must be asked what it left out."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, create_engine, text

from kafka_assets.ledger.engine import read, write
from kafka_assets.sinks import mysql
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.lines import lines
from kafka_assets.sinks.mysql import MySQLRoad
from kafka_assets_tests.ledgers import Attempt, chunk_of, plan, rows, rows_of, scalar, target
from kafka_assets_tests.lives import Live, meet


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, ledger_on: Callable[[str], Engine]) -> Engine:
    return ledger_on(request.getfixturevalue(f"{request.param}_url"))


def test_a_host_that_is_gone_is_noticed_within_half_a_minute(engine: Engine) -> None:
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        assert driver._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [driver._sock.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10, 5, 3]


@pytest.mark.parametrize(
    ("constraint", "landed"),
    [
        ("modify note varchar(3)", 0),
        ("add constraint few check (id < 2)", 2),
        ("add unique (note(10))", 1),
        ("modify id tinyint unsigned", 256),
    ],
)
@pytest.mark.parametrize("loads", [True, False])
def test_what_load_data_leaves_out_or_changes_is_looked_for_row_by_row(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, constraint: str, landed: int, loads: bool
) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 500)])
    table = target(engine)
    with write(engine) as connection:
        connection.execute(text(f"alter table orders {constraint}"))
    monkeypatch.setattr(MySQLRoad, "loads", loads)
    monkeypatch.setattr("kafka_assets_tests.ledgers.target", lambda _: table)
    policy = BadPolicy("quarantine", 1.0)
    Attempt(engine, keys).claim().publish(*(chunk_of(key, note="four") for key in keys), policy=policy)
    assert [offset for _, offset, _ in rows_of(engine)] == list(range(landed))
    assert {note for _, _, note in rows_of(engine)} <= {"four"}
    assert scalar(engine, "select count(*) from kafka_quarantine") == 500 - landed
    assert scalar(engine, "select count(*) from kafka_quarantine where reason like '(%'") == 500 - landed


def test_rows_that_got_lost_on_their_way_to_the_server_are_sent_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the count of records tells, as it did of rows that broke a CHECK in older servers. At last each
    row goes alone, by INSERT.
    """
    keys = plan(engine, slices=[(0, 5)])

    def cut(*given: Any, **more: Any) -> Iterator[tuple[bytes, int]]:
        for part, count in lines(*given, **more):
            yield b"".join(bytes(part).splitlines(keepends=True)[:-1]), count

    monkeypatch.setattr(mysql, "lines", cut)
    monkeypatch.setattr(MySQLRoad, "loads", True)
    Attempt(engine, keys).claim().publish()
    assert [offset for _, offset, _ in rows_of(engine)] == list(range(5))


def test_where_the_server_forbids_files_rows_are_inserted_and_it_is_said_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 9)])
    monkeypatch.setattr(MySQLRoad, "loads", True)
    admin = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection, caplog.at_level(logging.WARNING):
        connection.execute(text("set global local_infile = 0"))
        try:
            for key in keys:
                Attempt(engine, [key]).claim().publish()
        finally:
            connection.execute(text("set global local_infile = 1"))
    admin.dispose()
    assert len(rows_of(engine)) == 9
    assert len([one for one in caplog.records if "LOAD DATA LOCAL is forbidden" in one.getMessage()]) == 1


MEBIBYTE = 1 << 20


@pytest.fixture
def narrow(engine: Engine) -> Iterator[Engine]:
    """A server that takes 2 MiB in a statement; no other test here sends half as much in one."""
    admin = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        before = connection.scalar(text("select @@global.max_allowed_packet"))
        connection.execute(text(f"set global max_allowed_packet = {2 * MEBIBYTE}"))
        try:
            yield engine
        finally:
            connection.execute(text(f"set global max_allowed_packet = {before}"))
    admin.dispose()


@pytest.mark.parametrize("loads", [True, False])
# Of the second only the server can say that it is too large: as it is written down it has twice its bytes.
@pytest.mark.parametrize("note", ["x" * 3 * MEBIBYTE, "\\" * (3 * MEBIBYTE // 2)], ids=["large", "escaped"])
@pytest.mark.parametrize("others", [0, 4])
def test_a_record_beyond_what_a_statement_may_have_lands_or_is_quarantined(
    narrow: Engine, monkeypatch: pytest.MonkeyPatch, loads: bool, note: str, others: int
) -> None:
    [key] = plan(narrow, slices=[(0, others + 1)])
    monkeypatch.setattr(MySQLRoad, "loads", loads)
    small, large = chunk_of(key, offsets=range(others), read_count=others), chunk_of(key, offsets=[others], note=note)
    chunk = replace(
        small, rows=pa.concat_tables([small.rows, large.rows]), seen={key: replace(small.seen[key], read=others + 1)}
    )
    Attempt(narrow, [key]).claim().publish(chunk)
    landed = [offset for _, offset, _ in rows_of(narrow)]
    assert landed == list(range(others + loads))
    refused = rows(narrow, "select kafka_offset, reason from kafka_quarantine")
    assert [offset for offset, _ in refused] == ([] if loads else [others])
    assert all("max_allowed_packet" in reason for _, reason in refused)


def test_a_bad_record_of_any_size_is_quarantined(narrow: Engine) -> None:
    [key] = plan(narrow, slices=[(0, 3)])
    chunk = chunk_of(key, bad=[1])
    large = replace(chunk.bad[0], value=b"\xff" * 5 * MEBIBYTE, key=b"\0" * MEBIBYTE)
    Attempt(narrow, [key]).claim().publish(replace(chunk, bad=(large,)))
    assert len(rows_of(narrow)) == 2
    found = rows(narrow, "select length(value), value_bytes, length(`key`), key_bytes from kafka_quarantine")
    assert found == [(65_536, 5 * MEBIBYTE, 65_536, MEBIBYTE)]


def test_a_percent_sign_in_a_tables_name_is_one_in_every_statement(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 4)])
    table = replace(target(engine), name="100%s 5%%")
    with write(engine) as connection:
        connection.execute(text(r"create table `100%s 5%%` like orders"))
    for note in ("first", "again"):
        Attempt(engine, [key], replaces=True).claim(force=True).publish(chunk_of(key, note=note), table=table)
    with read(engine) as connection:
        found = connection.execute(text("select note, count(*) from `100%s 5%%` group by note")).all()
    assert [tuple(row) for row in found] == [("again", 4)]


@pytest.mark.parametrize("loads", [True, False])
def test_a_live_consumer_goes_on_after_a_record_beyond_what_a_statement_may_have(
    narrow: Engine, monkeypatch: pytest.MonkeyPatch, loads: bool
) -> None:
    """Its connection goes with such a statement."""
    monkeypatch.setattr(MySQLRoad, "loads", loads)
    live = Live(narrow, meet(narrow)).take()
    live.land(0, 1, note="\\" * (3 * MEBIBYTE // 2))
    live.land(1, 3)
    assert [offset for _, offset, _ in rows_of(narrow)] == ([0, 1, 2] if loads else [1, 2])
    assert scalar(narrow, "select count(*) from kafka_quarantine where code = 'too_large'") == (not loads)
