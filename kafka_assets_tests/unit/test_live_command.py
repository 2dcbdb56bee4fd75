"""`kafka-assets live` where it cannot begin: what happened, why, and what to do."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from kafka_assets_tests.commands import Commands

STREAMS = """
type: kafka_assets.KafkaTopic
attributes: {topic: orders, target: orders, schema: "id BIGINT, note STRING"}
"""
WITH_SPARK = """
from kafka_assets import kafka_asset


@kafka_asset(topic="paid", target="paid", schema="id BIGINT")
def paid(records):
    return records.where("id > 0")
"""


@pytest.fixture
def command(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Commands]:
    """In a project with two streams, and a broker that is down; signals stay as they are."""
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs" / "orders.yaml").write_text(STREAMS)
    (tmp_path / "defs" / "paid.py").write_text(WITH_SPARK)
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", str(engine.url))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.delenv("KAFKA_ASSETS_STREAMS", raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    before = list(logging.getLogger("kafka_assets").handlers)
    yield Commands(monkeypatch, capsys)
    logging.getLogger("kafka_assets").handlers[:] = before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("nobody",), 2, "there is no stream 'nobody'"),
        (("orders", "--assignor", "sticky"), 2, "cooperative-sticky"),
        (("orders", "--assignor", "uniform"), 2, "cooperative-sticky"),
        (("orders", "--group-protocol", "consumer", "--assignor", "roundrobin"), 2, "uniform and range"),
        (("orders", "--group-protocol", "newest"), 2, "no group protocol 'newest'"),
        (("orders", "--processes", "2"), 2, "one writer"),
        (("orders", "--threads", "2"), 2, "one writer"),
        (("orders", "--window", "soon"), 2, "'soon' is no duration"),
        (("orders", "--window", "0s"), 2, "must be 1 or more"),
        (("paid",), 1, "its function needs Spark"),
        (("orders",), 1, "127.0.0.1:1"),
        (("orders", "--child", "0"), 1, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_consumed_is_refused_in_words(
    command: Commands, given: tuple[str, ...], code: int, said: str
) -> None:
    assert said in " ".join(command("live", *given, code=code).err.split())
