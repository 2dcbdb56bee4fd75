"""What each commit mode loses or repeats when its process is killed at the worst moment. By real kills."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from kafka_assets.broker import Connection
from kafka_assets.ledger.engine import read, write
from kafka_assets_tests.integration.consuming import expected, new_topic, stored
from kafka_assets_tests.integration.killed_consumer import killed

ENCRYPTED = True
"""As users of MySQL speak to it: what a broken connection says is another error there."""
RECORDS = 10


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker)


def handled(file: Path) -> Counter[tuple[int, int]]:
    lines = file.read_text().splitlines()
    return Counter((int(one.split()[0]), int(one.split()[1])) for one in lines)


@pytest.mark.parametrize(
    ("mode", "lost", "doubled"),
    [("sync", [], [4]), ("async", [], [4]), ("offset-first", [4], [])],
)
def test_data_first_repeats_and_offset_first_loses(
    connection: Connection, tmp_path: Path, mode: str, lost: list[int], doubled: list[int]
) -> None:
    topic = new_topic(connection, partitions=1, records=RECORDS)
    out = tmp_path / "handled"
    killed(connection.bootstrap_servers, topic, out, mode, 5)
    killed(connection.bootstrap_servers, topic, out, mode, 0)
    found = handled(out)
    assert [value for _, value in expected(RECORDS, partitions=1) if not found[0, value]] == lost
    repeated = [value for (_, value), times in sorted(found.items()) if times > 1]
    if mode == "async":
        # What was on its way when it was killed is repeated, too: never less than in step.
        assert repeated
        assert repeated[-1] == 4
    else:
        assert repeated == doubled


def contract_the_ledger_neither_loses_nor_repeats(engine: Engine, connection: Connection) -> None:
    """And each of them begins when the group's session of the one before has ended: the leases stand for an hour."""
    topic = new_topic(connection, partitions=1, records=RECORDS)
    with write(engine) as sql:
        sql.execute(text("CREATE TABLE handled (kafka_partition INT, kafka_offset BIGINT, number BIGINT)"))
    url = engine.url.render_as_string(hide_password=False)
    for count in (5, 2, 0):  # in mid-unit, in mid-unit again, and to the end
        killed(connection.bootstrap_servers, topic, "", "ledger", count, url)
    with read(engine) as sql:
        rows = sql.execute(text("SELECT kafka_partition, number FROM handled ORDER BY 1, 2")).all()
        assert [tuple(row) for row in rows] == expected(RECORDS, partitions=1)
        assert sql.execute(text("SELECT * FROM kafka_gap")).all() == []
        assert sql.scalar(text("SELECT next_offset FROM kafka_committed_offset")) == RECORDS


def test_the_ledger_neither_loses_nor_repeats(engine: Engine, connection: Connection) -> None:
    contract_the_ledger_neither_loses_nor_repeats(engine, connection)


def test_the_ledger_neither_loses_nor_repeats_on_sqlite(sqlite: Engine, connection: Connection) -> None:
    contract_the_ledger_neither_loses_nor_repeats(sqlite, connection)


@pytest.mark.parametrize(("mode", "count"), [("transaction-flushed", 5), ("transaction-committed", 6)])
def test_a_killed_transaction_shows_each_output_once(connection: Connection, mode: str, count: int) -> None:
    topic = new_topic(connection, partitions=1, records=RECORDS)
    out = new_topic(connection, partitions=1)
    killed(connection.bootstrap_servers, topic, out, mode, count)
    killed(connection.bootstrap_servers, topic, out, mode, 0)
    assert [int(record.value or b"") for record in stored(connection, out)] == list(range(RECORDS))
