"""What a server of MySQL's protocol can make this side do: send no file, and wait no longer than it lives."""

from __future__ import annotations

import ssl
import threading
import time
from pathlib import Path

import pymysql
import pytest
from sqlalchemy import text

from kafka_assets.errors import KafkaAssetsError, LedgerBusy, SettingsError
from kafka_assets.ledger import mysql_connection
from kafka_assets.ledger.engine import make_engine, read
from kafka_assets.ledger.mysql_connection import LOADED, MySQLConnection
from kafka_assets_tests.certificates import Authority
from kafka_assets_tests.rogue_mysql import Client, Rogue, rogue

CANARY = b"a private file"


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_assets.ledger.drivers.CONNECT_SECONDS", 3)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    path.write_bytes(CANARY)
    return path


def stolen(server: Rogue) -> bool:
    return any(CANARY in packet for packet in server.sent)


def asks_for(path: Path, *, at: bytes):
    def script(client: Client, statement: bytes) -> bool:
        if at in statement:
            client.take_file(str(path))
        return at in statement

    return script


def test_a_client_that_allows_files_gives_any_to_such_a_server(private: Path) -> None:
    """The server of these tests can steal: without this, the next ones would show nothing."""
    with rogue(asks_for(private, at=b"SELECT 1")) as server:
        with pymysql.connect(host="127.0.0.1", port=server.port, user="me", local_infile=True) as connection:
            connection.query("SELECT 1")
        assert stolen(server)


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(b"SET NAMES", marks=pytest.mark.slow),
        b"SET time_zone",
        b"SET SESSION",
        b"ROLLBACK",
        b"SELECT 1",
        b"COMMIT",
    ],
)
@pytest.mark.parametrize("more", ["", "?local_infile=1"])
def test_no_statement_sends_a_file(private: Path, at: bytes, more: str) -> None:
    with rogue(asks_for(private, at=at)) as server:
        with pytest.raises(KafkaAssetsError), read(make_engine(server.url + more)) as connection:
            connection.execute(text("SELECT 1"))
        assert not stolen(server)


def test_a_server_that_asks_for_a_file_is_named_as_what_it_is(private: Path) -> None:
    with (
        rogue(asks_for(private, at=b"SELECT 1")) as server,
        pytest.raises(SettingsError, match="asked for a file") as refused,
        read(make_engine(server.url)) as connection,
    ):
        connection.execute(text("SELECT 1"))
    assert "ssl_ca" in refused.value.cure


def load(server: Rogue, data: bytes) -> bytes:
    with read(make_engine(server.url)) as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, MySQLConnection)
        return raw.load(f"LOAD DATA LOCAL INFILE {LOADED} INTO TABLE t", memoryview(data))


def test_what_is_loaded_is_sent_whole() -> None:
    data = bytes(range(256)) * 1000
    taken: list[bytes] = []

    def script(client: Client, statement: bytes) -> bool:
        if b"LOAD" in statement:
            taken.append(client.take_file("kafka_assets"))
        return b"LOAD" in statement

    with rogue(script) as server:
        load(server, data)
    assert taken == [data]


def test_a_load_sends_nothing_where_another_file_is_asked_for(private: Path) -> None:
    with rogue(asks_for(private, at=b"LOAD")) as server:
        with pytest.raises(pymysql.err.OperationalError, match="nothing was sent"):
            load(server, b"rows")
        assert not stolen(server)
        assert b"rows" not in server.sent


@pytest.mark.slow
def test_a_server_that_says_nothing_is_not_waited_for_for_ever() -> None:
    with (
        rogue(lambda *_: False, greets=False) as server,
        pytest.raises(LedgerBusy, match="does not answer"),
        read(make_engine(server.url)),
    ):
        pass


@pytest.mark.slow
def test_a_statement_is_waited_for_as_long_as_its_server_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_connection, "SILENT_SECONDS", 0.2)
    asked = threading.Event()

    def script(client: Client, statement: bytes) -> bool:
        if b"SELECT 1" not in statement:
            return False
        deadline = time.monotonic() + 120
        while server.connections < 4 and time.monotonic() < deadline:  # this one, and three that ask
            time.sleep(0.01)
        asked.set()
        client.row("at last")
        return True

    with rogue(script) as server, read(make_engine(server.url)) as connection:
        assert connection.scalar(text("SELECT 1")) == "at last"
    assert asked.is_set()


@pytest.mark.slow
def test_a_statement_whose_server_fell_silent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_connection, "SILENT_SECONDS", 0.2)
    frozen, over = threading.Event(), threading.Event()

    def script(client: Client, statement: bytes) -> bool:
        if frozen.is_set() or b"SELECT 1" in statement:
            frozen.set()
            over.wait(30)
        return frozen.is_set()

    with rogue(script) as server, pytest.raises(LedgerBusy), read(make_engine(server.url)) as connection:
        try:
            connection.execute(text("SELECT 1"))
        finally:
            over.set()
    assert server.connections == 2


@pytest.mark.parametrize(("known", "host"), [("ca", "127.0.0.1"), ("other", "127.0.0.1"), ("ca", "127.0.0.2")])
def test_with_its_authority_named_no_other_server_is_told_anything(tmp_path: Path, known: str, host: str) -> None:
    authority = Authority(tmp_path)
    Authority(tmp_path, name="other")
    authority.issue("server", host=host)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server-key.pem")
    with rogue(lambda *_: False, tls=tls) as server:
        engine = make_engine(f"{server.url}?ssl_ca={tmp_path}/{known}.pem")
        if (known, host) == ("ca", "127.0.0.1"):
            with read(engine) as connection:
                assert connection.scalar(text("SELECT 1")) == "0"
        else:
            with pytest.raises(SettingsError, match="certificate"), read(engine):
                pass
            assert len(server.sent) == 1, "that it wants TLS, and nothing more"
