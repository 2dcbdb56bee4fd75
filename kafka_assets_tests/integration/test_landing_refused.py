"""Records whose rows the database refuses, through the real landing: their bytes come from Kafka again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine

from kafka_assets.broker.produce import Record, produce
from kafka_assets_tests.integration.project import Landing
from kafka_assets_tests.ledgers import quoted
from kafka_assets_tests.refusals_contract import run

CULPRITS = {0: "zero", 41: "middle", 99: "last"}


@pytest.fixture(params=["append", "upsert"])
def stream(request: pytest.FixtureRequest, engine: Engine, broker: str, spark_remote: str) -> Iterator[Landing]:
    upsert: dict[str, Any] = {"mode": "upsert", "key": ["id"]} if request.param == "upsert" else {}
    with dg.DagsterInstance.ephemeral() as instance:
        yield Landing(
            name=f"refused_{request.param}_{request.node.callspec.params['server']}",
            broker=broker,
            spark_remote=spark_remote,
            database_url=engine.url.render_as_string(hide_password=False),
            engine=engine,
            instance=instance,
            attributes={**upsert, "schema": "id BIGINT NOT NULL, rate DOUBLE", "max_bad_ratio": 1.0},
        )


def test_refused_records_are_quarantined_as_kafka_has_them(stream: Landing) -> None:
    stream.topic(partitions=2)
    stream.produce(*(_value(number, 1.5) for number in range(1000, 1010)), partition=0)
    stream.land()
    engine = stream.engine
    run(engine, f"alter table {stream.name} add constraint positive check (rate > 0)")
    for partition in range(2):
        records = (
            Record(
                value=_value(number + 100 * partition, -1 if number in CULPRITS else 2),
                key=b"key %d" % number,
                headers=(("trace", b"\xff%d" % number), ("empty", None)),
                timestamp_ms=1_700_000_000_000 + number,
                partition=partition,
            )
            for number in range(100)
        )
        produce(stream.connection, stream.name, records)
    stream.land()
    assert stream.sql(f"select count(*) from {stream.name}") == 10 + 200 - 6
    kept = stream.rows(
        f"select kafka_partition, kafka_offset, {quoted(engine, 'key')}, value, headers, kafka_timestamp, reason"
        " from kafka_quarantine order by kafka_partition, kafka_offset"
    )
    assert [row[:4] for row in kept] == [
        (partition, number + (10 if partition == 0 else 0), b"key %d" % number, _value(number + 100 * partition, -1))
        for partition in range(2)
        for number in CULPRITS
    ]
    assert [row[5] for row in kept] == [1_700_000_000_000 + number for _ in range(2) for number in CULPRITS]
    for *_, headers, _, reason in kept:
        assert '"base64"' in headers
        assert re.search("positive", reason)
    assert stream.sql("select sum(landed), sum(quarantined) from kafka_publication") == 210 - 6
    assert stream.sql("select sum(quarantined) from kafka_publication") == 6
    assert stream.sql("select count(*) from kafka_gap") == 0


def _value(number: int, rate: float) -> bytes:
    return b'{"id": %d, "rate": %s}' % (number, str(float(rate)).encode())
