"""The sensor on a real broker: what a tick costs, many topics in one table, and topics that come and go."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kafka_assets.assets.tick import tick
from kafka_assets.broker import admin as conversations
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, transaction
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.ledger.engine import make_engine
from kafka_assets.streams import declare
from kafka_assets_tests.integration.project import Landing

Declare = Callable[..., Landing]
ASKED = ("ListOffsets", "DescribeTopicPartitions", "Metadata")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], dict[str, int]]]:
    """How many requests of each kind were sent to the brokers since, by librdkafka's own statistics."""
    clients: list[Any] = []
    said: dict[int, dict[str, Any]] = {}
    make = conversations.AdminClient

    def counted(config: dict[str, Any], **more: Any) -> Any:
        number = len(clients)
        config = {
            **config,
            "statistics.interval.ms": 50,
            "stats_cb": lambda text: said.update({number: json.loads(text)}),
        }
        clients.append(make(config, **more))
        return clients[-1]

    monkeypatch.setattr(conversations, "AdminClient", counted)

    def sent() -> dict[str, int]:
        for client in clients:
            client.poll(0.2)  # the last statistics
        total: dict[str, int] = {}
        for statistics in said.values():
            for broker in statistics["brokers"].values():
                for kind, count in broker["req"].items():
                    total[kind] = total.get(kind, 0) + count
        clients.clear()
        said.clear()
        return total

    yield sent


def test_an_idle_tick_asks_a_broker_once_for_each_kind_however_many_topics(
    broker: str, tmp_path: Path, requests: Callable[[], dict[str, int]]
) -> None:
    connection = Connection(broker)
    names = [f"idle{os.getpid()}_{number}" for number in range(20)]
    for name in names:
        create_topic(connection, name, partitions=8)
    streams = [declare(name=name, topic=name, target=name, schema="id BIGINT") for name in names]
    engine = make_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    requests()
    with dg.DagsterInstance.ephemeral() as instance:

        def one(count: int) -> dict[str, int]:
            found = tick(
                streams[:count], engine=engine, connection=connection, instance=instance, log=logging.getLogger("test")
            )
            assert found.troubles == []
            sent = requests()
            assert sent["ListOffsets"] == 3  # log starts, last stable offsets, ends
            return {kind: sent[kind] for kind in ASKED if kind in sent}

        one(20)
        many, few = one(20), one(1)
        # The client asks for metadata by itself as well, once more or less; never once for each topic.
        assert max(many.pop("Metadata"), few.pop("Metadata")) < 10
        assert many == few
    engine.dispose()


def test_many_topics_land_in_one_table_and_each_row_knows_its_own(landing: Declare) -> None:
    prefix = f"shop{os.getpid()}"
    stream = landing(topics=rf"{prefix}\..*", max_bad_ratio=1.0)
    for name, first in (("orders", 0), ("returns", 1000)):
        stream.topic(name=f"{prefix}.{name}", partitions=2)
        stream.produce_ids(first, first + 30, topic=f"{prefix}.{name}")
        stream.produce_ids(first + 30, first + 40, partition=1, topic=f"{prefix}.{name}")
    stream.topic(name=f"my{prefix}.orders")
    stream.produce_ids(5000, 5010, topic=f"my{prefix}.orders")
    stream.produce(b"{cut", topic=f"{prefix}.returns")
    found = stream.land()
    assert len(found.requests) == 1  # of all topics, in one transaction
    by_topic = (
        f"select r.topic, count(*), min(o.id), max(o.id) from {stream.name} o"
        " join kafka_source r on r.id = o.kafka_source group by r.topic order by r.topic"
    )
    assert stream.rows(by_topic) == [(f"{prefix}.orders", 40, 0, 39), (f"{prefix}.returns", 40, 1000, 1039)]
    bad = "select r.topic, q.kafka_offset from kafka_quarantine q join kafka_source r on r.id = q.kafka_source"
    assert stream.rows(bad) == [(f"{prefix}.returns", 30)]

    stream.topic(name=f"{prefix}.late")
    stream.produce_ids(2000, 2005, topic=f"{prefix}.late")
    delete_topic(stream.connection, f"{prefix}.orders")
    found = stream.land()
    assert any(f"does not show {prefix}.orders" in trouble for trouble in found.troubles)
    assert stream.sql(f"select count(*) from {stream.name} where id >= 2000") == 5
    # A backfill of keys of several topics replaces what is theirs.
    keys = stream.keys()
    kept = [key for key in keys if key.startswith(f"{prefix}.returns")]
    assert all(stream.replay(key).success for key in kept)
    assert stream.sql(f"select count(*) from {stream.name}") == 85
    assert stream.sql("select count(*) from kafka_gap") == 0


def test_a_producer_that_hangs_is_seen_beside_what_lands(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 5)
    with transaction(stream.connection, stream.name, transactional_id=f"{stream.name}-hangs") as hanging:
        hanging.produce([Record(value=b'{"id": 5}', partition=0)])
        stream.land()
        deadline = time.monotonic() + 120
        while stream.sql("select hanging from kafka_lag") == 0 and time.monotonic() < deadline:
            stream.tick()
        assert stream.rows('select "lag", hanging from kafka_lag') == [(0, 1)]
        assert stream.sql(f"select count(*) from {stream.name}") == 5
        hanging.abort()
