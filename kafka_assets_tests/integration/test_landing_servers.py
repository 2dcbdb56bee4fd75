"""From a topic to rows on each server database: real broker, real Spark, the sensor and the IO manager."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine

from kafka_assets.broker.produce import Record, produce
from kafka_assets_tests.integration.project import Landing


def test_a_topic_lands_exactly_and_a_replay_replaces(
    request: pytest.FixtureRequest, engine: Engine, broker: str, spark_remote: str
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        stream = Landing(
            name=f"landed_{request.node.callspec.params['server']}",
            broker=broker,
            spark_remote=spark_remote,
            database_url=engine.url.render_as_string(hide_password=False),
            engine=engine,
            instance=instance,
            attributes={
                "schema": "id BIGINT NOT NULL, note STRING, price DECIMAL(38,18), at TIMESTAMP, tags ARRAY<STRING>",
                "max_bad_ratio": 1.0,
            },
        )
        stream.topic(partitions=2)
        for partition in range(2):
            stream.produce(*(_record(number) for number in range(partition, 300, 2)), partition=partition)
        # The last two have a NUL in the reason, too, that quotes them.
        stream.produce(b"{cut", b'{"id": "\\u0000"}', b"\0\0\0\0\1", partition=1)
        stream.land()
        _holds_exactly(stream)
        assert stream.tick().requests == []
        before = stream.sql("select sum(committed_attempt) from kafka_publication")
        keys = stream.keys()
        for key in keys:
            assert stream.replay(key).success
        _holds_exactly(stream)
        assert stream.sql("select sum(committed_attempt) from kafka_publication") == before + len(keys)


def test_a_compacted_topic_with_deletes_becomes_a_table_of_its_keys(
    request: pytest.FixtureRequest, engine: Engine, broker: str, spark_remote: str
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        stream = Landing(
            name=f"keyed_{request.node.callspec.params['server']}",
            broker=broker,
            spark_remote=spark_remote,
            database_url=engine.url.render_as_string(hide_password=False),
            engine=engine,
            instance=instance,
            attributes={"mode": "upsert", "key": ["id"], "schema": "id BIGINT, note STRING, price DECIMAL(12,2)"},
        )
        stream.topic(partitions=2)
        for version in ("first", "last"):
            for part in range(2):
                _send(stream, part, {n: f'{{"id": {n}, "note": "{version}", "price": 0.10}}' for n in _keys(part)})
            stream.land()
        _send(stream, 0, {n: None for n in _keys(0) if n % 3 == 0})
        stream.land()
        standing = [(n, "last") for n in range(200) if n % 2 or n % 3]
        assert stream.rows(f"select id, note from {stream.name} order by id") == standing
        # The oldest slice comes again, the newest, too: nothing that was deleted or replaced comes back.
        for key in (stream.keys()[0], stream.keys()[-1]):
            assert stream.replay(key).success
        assert stream.rows(f"select id, note from {stream.name} order by id") == standing
        assert stream.sql("select count(*) from kafka_tombstone") == 200 - len(standing)
        assert stream.sql("select count(*) from kafka_gap") == 0


def _keys(partition: int) -> range:
    return range(partition, 200, 2)


def _send(stream: Landing, partition: int, values: dict[int, str | None]) -> None:
    produce(
        stream.connection,
        stream.name,
        (
            Record(key=b"%d" % key, value=None if value is None else value.encode(), partition=partition)
            for key, value in values.items()
        ),
    )


def _record(number: int) -> bytes:
    text = f'"id": {number}, "note": "n\\t{number} 🙂", "price": 0.000000000000000001, "tags": ["a"]'
    return f'{{{text}, "at": "2024-02-29T12:00:00.123456Z"}}'.encode()


def _holds_exactly(stream: Landing) -> None:
    def asked(what: str, source: str = stream.name) -> Any:
        return stream.sql(f"select {what} from {source}")

    assert (asked("count(*)"), asked("count(distinct id)"), asked("sum(id)")) == (300, 300, 300 * 299 // 2)
    assert asked("min(note)") == "n\t0 🙂"
    assert str(asked("max(price)")) == "1E-18"
    assert asked("max(at)").replace(tzinfo=None).isoformat() == "2024-02-29T12:00:00.123456"
    assert asked("count(*)", "kafka_quarantine") == 3
    assert asked("sum(next_offset)", "kafka_committed_offset") == 303
    assert asked("count(*)", "kafka_gap") == 0
