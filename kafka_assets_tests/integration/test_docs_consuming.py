"""The examples of docs/consuming.md, run as they stand there, on topics of their own."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from kafka_assets import run_listeners
from kafka_assets.broker import Connection
from kafka_assets.ledger.engine import make_engine, read, write
from kafka_assets.ledger.last_committed import next_offsets
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.integration.consuming import QUICK, committed, new_topic, stored

PAGE = Path(__file__).parents[2] / "docs" / "consuming.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
RECORDS = 5


class Page:
    """One example, with names of topics that are this test's own."""

    def __init__(self, broker: str, url: str) -> None:
        self.connection = Connection(broker, QUICK)
        self.url = url
        self.names = {
            "orders": new_topic(self.connection, partitions=2, records=RECORDS),
            "upper": new_topic(self.connection, partitions=1),
            "orders.dead": new_topic(self.connection, partitions=1),
        }

    def run(self, word: str) -> dict[str, Any]:
        """The example with this word in it."""
        [block] = [one for one in BLOCKS if word in one]
        for name, own in self.names.items():
            block = block.replace(f'"{name}"', f'"{own}"')
        names: dict[str, Any] = {"__name__": f"docs_consuming_{abs(hash(word))}"}
        exec(compile(block, f"{PAGE.name}, {word}", "exec"), names)
        return names

    def committed(self, group: str) -> dict[int, int]:
        return committed(self.connection, group, self.names["orders"])


@pytest.fixture
def page(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    url = f"sqlite:///{tmp_path / 'own.db'}"
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", broker)
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", url)
    return Page(broker, url)


DONE = {0: RECORDS, 1: RECORDS}


def test_every_example_is_run_here() -> None:
    words = ["record.headers)", "ledger.sql.execute", "InTransaction(producer)", "datetime(2026"]
    words += ["workers.run(", "run_in_threads(", "def count(", "heard.pauses"]
    assert len(BLOCKS) == len(words)
    for word in words:
        assert sum(word in block for block in BLOCKS) == 1, word


def test_the_first(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run("record.headers)")
    assert len(capsys.readouterr().out.splitlines()) == 2 * RECORDS
    assert page.committed("billing") == DONE


def test_own_sql(page: Page) -> None:
    page.run("ledger.sql.execute")
    engine = make_engine(page.url)
    with read(engine) as sql:
        assert sql.scalar(text("SELECT count(*) FROM sizes")) == 2 * RECORDS
    assert set(next_offsets(engine, group="sizes").values()) == {RECORDS}


def test_consume_transform_produce(page: Page) -> None:
    page.run("InTransaction(producer)")
    assert len(list(stored(page.connection, page.names["upper"]))) == 2 * RECORDS
    assert page.committed("shouting") == DONE


def test_without_a_group(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run("datetime(2026")
    counts = [int(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert counts == [RECORDS, 0, RECORDS - 2, RECORDS - 1, RECORDS]


@pytest.mark.parametrize(("word", "group"), [("workers.run(", "workers"), ("run_in_threads(", "threads")])
def test_many_threads(page: Page, capsys: pytest.CaptureFixture[str], word: str, group: str) -> None:
    page.run(word)
    assert len(capsys.readouterr().out.splitlines()) == 2 * RECORDS
    assert page.committed(group) == DONE


def test_listeners(page: Page) -> None:
    found = page.run("def count(")
    engine = make_engine(page.url)
    ensure_schema(engine)
    with write(engine) as sql:
        sql.execute(text("CREATE TABLE counts (orders INT)"))
    run_listeners(found["send_mail"], found["count"], stop=threading.Event(), idle=3)
    with read(engine) as sql:
        assert sql.scalar(text("SELECT sum(orders) FROM counts")) == 2 * RECORDS
    assert page.committed("mailing") == DONE


def test_a_listener_is_tested_on_a_list() -> None:
    [block] = [one for one in BLOCKS if "heard.pauses" in one]
    names: dict[str, Any] = {"__name__": "docs_consuming_test"}
    exec(compile(block, PAGE.name, "exec"), names)
    names["test_an_order_without_content_is_quarantined"]()
