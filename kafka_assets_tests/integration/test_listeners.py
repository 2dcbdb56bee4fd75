"""Listeners on a real broker: run, quarantined, ended, and by the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection as Sql
from sqlalchemy import Engine, text

from kafka_assets import kafka_listener, run_listeners
from kafka_assets.broker import Connection
from kafka_assets.broker.read import StoredRecord
from kafka_assets.errors import UsageError
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.last_committed import next_offsets
from kafka_assets_tests.integration.consuming import QUICK, committed, expected, fill, new_topic, number, stored

INSERT = text("INSERT INTO handled (kafka_partition, kafka_offset, number) VALUES (:partition, :offset, :number)")


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker, QUICK)


def test_a_record_that_cannot_be_done_is_a_dead_letter_and_the_others_go_on(connection: Connection) -> None:
    topic, dead = new_topic(connection, records=10), new_topic(connection, partitions=1)
    stop, seen = threading.Event(), list[tuple[int, int]]()

    @kafka_listener(topics=topic, group=topic, retries=1, backoff=0.01, quarantine=dead)
    def handle(record: StoredRecord) -> None:
        if number(record) == (1, 4):
            raise ValueError("not this one")
        seen.append(number(record))
        if len(seen) == 19:
            stop.set()

    run_listeners(handle, connection=connection, stop=stop)
    assert sorted(seen) == [one for one in expected(10) if one != (1, 4)]
    [letter] = list(stored(connection, dead))
    said = {name: (value or b"").decode() for name, value in letter.headers}
    assert letter.value == b"4"
    assert (said["kafka_assets.topic"], said["kafka_assets.partition"], said["kafka_assets.offset"]) == (
        topic,
        "1",
        "4",
    )
    assert (said["kafka_assets.reason"], said["kafka_assets.error"], said["kafka_assets.tries"]) == (
        *("not this one", "ValueError"),
        "2",
    )
    if len(seen) == 19:
        # The record that set `stop` was done; what came after it in its unit, perhaps not.
        assert sum(committed(connection, topic, topic).values()) == 20


def test_what_nothing_handles_ends_all_listeners_and_is_not_done(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    other = new_topic(connection, partitions=1, records=1)

    @kafka_listener(topics=topic, group=topic, retries=0, each="record")
    def handle(record: StoredRecord) -> None:
        if record.offset == 5:
            raise ValueError("at 5")

    @kafka_listener(topics=other, group=other)
    def quiet(record: StoredRecord) -> None:
        return

    with pytest.raises(ValueError, match="at 5"):
        run_listeners(handle, quiet, connection=connection, stop=threading.Event())
    assert committed(connection, topic, topic) == {0: 5}


def contract_sql_offsets_and_quarantine_commit_together(engine: Engine, connection: Connection) -> None:
    topic = new_topic(connection, partitions=2, records=10)
    with write(engine) as sql:
        sql.execute(text("CREATE TABLE handled (kafka_partition INT, kafka_offset BIGINT, number BIGINT)"))

    @kafka_listener(topics=topic, group=topic, commit="ledger", retries=1, backoff=0.01, quarantine="kafka_quarantine")
    def handle(record: StoredRecord, sql: Sql) -> None:
        row = {"partition": record.partition, "offset": record.offset, "number": int(record.value or b"")}
        sql.execute(INSERT, row)
        if number(record) == (0, 7):
            raise ValueError("not this one")

    run_listeners(handle, connection=connection, engine=engine, stop=threading.Event(), idle=3)
    with read(engine) as sql:
        rows = sql.execute(text("SELECT kafka_partition, number FROM handled ORDER BY 1, 2")).all()
        bad = sql.execute(text("SELECT kafka_partition, kafka_offset, reason, asset FROM kafka_quarantine")).all()
        counted = sql.execute(text("SELECT sum(records_read), sum(landed), sum(quarantined) FROM kafka_publication"))
        assert [int(one) for one in counted.one()] == [20, 19, 1]
        assert sql.execute(text("SELECT * FROM kafka_gap")).all() == []
    assert [tuple(row) for row in rows] == [one for one in expected(10) if one != (0, 7)]
    assert [tuple(row) for row in bad] == [(0, 7, "ValueError after 2 tries: not this one", topic)]
    assert next_offsets(engine, group=topic) == {(topic, 0): 10, (topic, 1): 10}


def test_sql_offsets_and_quarantine_commit_together(sqlite: Engine, connection: Connection) -> None:
    contract_sql_offsets_and_quarantine_commit_together(sqlite, connection)


def test_sql_offsets_and_quarantine_commit_together_on_servers(engine: Engine, connection: Connection) -> None:
    contract_sql_offsets_and_quarantine_commit_together(engine, connection)


def test_in_a_transaction_outputs_dead_letters_and_offsets_commit_together(connection: Connection) -> None:
    topic, out = new_topic(connection, partitions=1, records=10), new_topic(connection, partitions=1)
    dead = new_topic(connection, partitions=1)

    @kafka_listener(topics=topic, group=topic, commit="transaction", retries=1, backoff=0.01, quarantine=dead)
    def copy(record: StoredRecord, producer: Any) -> None:
        producer.send(out, record.value, partition=0)
        if record.offset == 3:
            raise ValueError("after it was sent")

    run_listeners(copy, connection=connection, stop=threading.Event(), idle=3)
    copied = [int(record.value or b"") for record in stored(connection, out)]
    assert copied == [0, 1, 2, 4, 5, 6, 7, 8, 9], "nothing of a failed try is seen"
    assert [record.value for record in stored(connection, dead)] == [b"3"]
    assert committed(connection, topic, topic) == {0: 10}


def test_several_bad_records_of_one_transaction_are_dead_letters_once(connection: Connection) -> None:
    topic, out = new_topic(connection, partitions=1, records=20), new_topic(connection, partitions=1)
    dead = new_topic(connection, partitions=1)
    bad = {1, 4, 9, 16}

    @kafka_listener(topics=topic, group=topic, commit="transaction", retries=2, backoff=0.01, quarantine=dead)
    def copy(record: StoredRecord, producer: Any) -> None:
        producer.send(out, record.value, partition=0)
        if record.offset in bad:
            raise ValueError("after it was sent")

    run_listeners(copy, connection=connection, stop=threading.Event(), idle=3)
    assert [int(record.value or b"") for record in stored(connection, out)] == sorted(set(range(20)) - bad)
    assert [int(record.value or b"") for record in stored(connection, dead)] == sorted(bad)
    assert committed(connection, topic, topic) == {0: 20}


def test_batches_in_threads(connection: Connection) -> None:
    topic = new_topic(connection, partitions=4, records=30)
    stop, seen = threading.Event(), list[tuple[int, int]]()

    @kafka_listener(topics=topic, group=topic, batch=True, threads=2, max_records=10)
    def handle(records: list[StoredRecord]) -> None:
        seen.extend(map(number, records))
        if len(seen) >= 120:
            stop.set()

    run_listeners(handle, connection=connection, stop=stop)
    assert sorted(seen) == expected(30, partitions=4)
    assert committed(connection, topic, topic) == dict.fromkeys(range(4), 30)


@pytest.mark.parametrize("commit", ["sync", "transaction"])
def test_who_is_stopped_while_a_record_fails_leaves_it_undone(connection: Connection, commit: Any) -> None:
    topic, dead = new_topic(connection, partitions=1, records=10), new_topic(connection, partitions=1)
    stop, tries = threading.Event(), list[int]()

    @kafka_listener(topics=topic, group=topic, each="record", commit=commit, retries=50, backoff=0.01, quarantine=dead)
    def handle(record: StoredRecord) -> None:
        if record.offset == 4:
            tries.append(record.offset)
            stop.set()
            raise ValueError("for a reason that passes")

    run_listeners(handle, connection=connection, stop=stop)
    assert tries == [4]
    assert list(stored(connection, dead)) == []
    assert committed(connection, topic, topic) == {0: 4}


def test_nothing_to_run_is_said() -> None:
    with pytest.raises(UsageError, match="no listener"):
        run_listeners()


MODULE = """
from kafka_assets import kafka_listener

@kafka_listener(topics={topic!r}, each="record")
def printed(record):
    print(record.offset, flush=True)
"""


def listen(folder: Path, broker: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KAFKA_ASSETS_BOOTSTRAP_SERVERS": broker, "KAFKA_ASSETS_HOME": str(folder)}
    command = [str(Path(sys.executable).with_name("kafka-assets")), "listen", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_the_command_runs_a_modules_listeners_until_sigterm(
    connection: Connection, broker: str, tmp_path: Path
) -> None:
    topic = new_topic(connection, partitions=1, records=3)
    (tmp_path / "mine.py").write_text(MODULE.format(topic=topic))
    running = listen(tmp_path, broker, "mine")
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
    running.send_signal(signal.SIGTERM)
    rest, said = running.communicate(timeout=180)
    assert (running.returncode, rest) == (0, ""), said
    assert "listening: printed" in said
    assert committed(connection, "printed", topic) == {0: 3}
    fill(connection, topic, [3], partitions=1)
    assert listen(tmp_path, broker, "mine", "printed", "--idle", "2").communicate(timeout=180)[0] == "3\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["nowhere"], "no module"), (["mine", "other"], "no listener 'other'"), (["json"], "has no")],
)
def test_a_wrong_name_is_bad_usage(broker: str, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "mine.py").write_text(MODULE.format(topic="t"))
    running = listen(tmp_path, broker, *arguments)
    _, errors = running.communicate(timeout=180)
    assert running.returncode == 2
    assert said in errors
