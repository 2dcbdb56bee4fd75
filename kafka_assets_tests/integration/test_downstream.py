"""Assets on the slices of another asset: real broker, real Spark, SQLite."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import functions as F  # noqa: N812

from kafka_assets import slice_asset
from kafka_assets.assets import downstream
from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK
from kafka_assets.assets.resources import KafkaResource, SparkResource
from kafka_assets.assets.tick import Tick, tick
from kafka_assets.ledger.engine import write
from kafka_assets_tests.integration.project import Landing, failure_of

Declare = Callable[..., Landing]


@dataclass
class Below:
    """What lies below a landing's stream, run like it."""

    above: Landing
    asset: dg.AssetsDefinition

    def tick(self) -> Tick:
        return tick(
            [stream for stream in (stream_of(self.asset), self.above.stream) if stream is not None],
            engine=self.above.engine,
            connection=self.above.connection,
            instance=self.above.instance,
            log=logging.getLogger(),
        )

    def run(self, tags: dict[str, str]) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [self.asset],
            instance=self.above.instance,
            tags=tags,
            raise_on_error=False,
            resources={
                KAFKA: KafkaResource(bootstrap_servers=self.above.broker),
                SPARK: SparkResource(spark_config={"spark.remote": self.above.spark_remote}),
                IO_MANAGER: SliceIOManager(database_url=self.above.database_url),
            },
        )

    def of(self, found: Tick) -> list[dg.RunRequest]:
        return [one for one in found.requests if one.asset_selection == [self.asset.key]]


def below(above: Landing, function: Callable[[Any], Any] | None = None) -> Below:
    def doubled(rows: Any) -> Any:
        return rows.where("id % 2 = 0").withColumn("twice", F.col("id") * 2)

    name = f"{above.name}_even"
    return Below(above, slice_asset(upstream=above.asset, target=name, name=name)(function or doubled))


def one_key(key: str) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": key, "dagster/asset_partition_range_end": key}


def test_a_downstream_asset_lands_what_its_upstream_committed_once_that_is_committed(landing: Declare) -> None:
    above = landing()
    above.topic(partitions=2)
    above.produce_ids(0, 100)
    above.produce_ids(100, 150, partition=1)
    even = below(above)
    first = even.tick()
    # Nothing is there to read yet: its publications are planned, and nothing is asked for.
    assert even.of(first) == []
    assert above.sql("select count(*) from kafka_publication") == 4
    for request in first.requests:
        assert above.run(request).success
    [request] = even.of(even.tick())
    assert request.asset_check_keys == []
    assert even.run(dict(request.tags)).success
    name = even.asset.key.to_user_string()
    assert above.sql(f"select count(*) from {name}") == 75
    assert above.sql(f"select sum(twice) from {name}") == sum(2 * number for number in range(0, 150, 2))
    where = f"where asset = '{name}'"
    sums = "sum(records_read), sum(landed), sum(filtered), sum(holes)"
    assert above.rows(f"select {sums} from kafka_publication {where}") == [(150, 75, 75, 0)]
    assert above.rows(f"select distinct fingerprint from kafka_publication {where}") == [(f"{above.name}@1",)]
    assert above.sql(f"select sum(committed_through) from kafka_committed {where}") == 150
    assert above.sql("select count(*) from kafka_gap") == 0
    assert even.tick().requests == []


def test_what_the_upstream_did_not_commit_is_refused_and_can_be_tried_again(landing: Declare) -> None:
    above = landing()
    above.topic()
    above.produce_ids(0, 10)
    even = below(above)
    even.tick()
    result = even.run(one_key(above.keys()[0]))
    assert not result.success
    assert "is not committed" in failure_of(result)
    assert above.sql("select count(*) from kafka_publication where state = 'committed'") == 0


def test_an_upstream_replayed_while_it_is_read_fails_the_downstream_and_nothing_is_written(
    landing: Declare, monkeypatch
) -> None:
    above = landing()
    above.topic()
    above.produce_ids(0, 10)
    above.land()
    even = below(above)
    [request] = even.of(even.tick())
    chunk = downstream.DerivedLanding._chunk

    def replayed_meanwhile(self, rows, seen):
        monkeypatch.undo()
        assert above.replay(above.keys()[0]).success
        return chunk(self, rows, seen)

    monkeypatch.setattr(downstream.DerivedLanding, "_chunk", replayed_meanwhile)
    result = even.run(dict(request.tags))
    assert not result.success
    assert "was replayed while its rows were being read" in failure_of(result)
    name = even.asset.key.to_user_string()
    assert above.sql(f"select count(*) from {name}") == 0
    assert even.run(one_key(above.keys()[0])).success
    assert above.rows(f"select fingerprint from kafka_publication where asset = '{name}'") == [(f"{above.name}@2",)]


def test_the_downstream_of_a_topic_that_is_gone_still_gets_what_was_committed(landing: Declare) -> None:
    above = landing()
    above.topic()
    above.produce_ids(0, 10)
    above.land()
    with write(above.engine) as connection:
        connection.exec_driver_sql("update kafka_source set retired_at = '2026-01-01 00:00:00.000000'")
    even = below(above)
    [request] = even.of(even.tick())
    assert even.run(dict(request.tags)).success
    assert above.sql(f"select count(*) from {even.asset.key.to_user_string()}") == 5


def test_an_ordinary_asset_takes_the_committed_rows_as_an_argument(
    landing: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = landing(schema="id BIGINT NOT NULL, note STRING, amount DECIMAL(12,2), at TIMESTAMP, ok BOOLEAN, d DATE")
    above.topic()
    above.produce(
        b'{"id": 1, "amount": 12.34, "at": "2026-01-02T03:04:05.000006Z", "ok": true, "d": "2026-02-03"}', b'{"id": 2}'
    )
    above.land()
    # It has no Spark of its own: the IO manager opens the one that the settings name.
    monkeypatch.setenv("KAFKA_ASSETS_SPARK_REMOTE", above.spark_remote)
    seen: list[Any] = []

    @dg.asset(
        partitions_def=above.asset.partitions_def,
        ins={"rows": dg.AssetIn(above.asset.key)},
        io_manager_key="mem",
    )
    def counted(rows) -> None:
        seen.extend(rows.orderBy("kafka_offset").collect())

    result = dg.materialize(
        [above.asset, counted],
        selection=[counted],
        instance=above.instance,
        partition_key=above.keys()[0],
        resources={
            KAFKA: KafkaResource(bootstrap_servers=above.broker),
            SPARK: SparkResource(),
            IO_MANAGER: SliceIOManager(database_url=above.database_url),
            "mem": dg.mem_io_manager,
        },
    )
    assert result.success
    assert [(row.id, row.kafka_offset, str(row.amount)) for row in seen] == [(1, 0, "12.34"), (2, 1, "None")]


def test_a_key_shows_its_first_rows_and_what_still_waits(landing: Declare) -> None:
    above = landing()
    above.topic()
    above.produce_ids(0, 10)
    above.land()
    [event] = above.instance.fetch_materializations(above.asset.key, limit=1).records
    assert event.asset_materialization is not None
    shown = event.asset_materialization.metadata
    assert shown["lag_after"].value == 0
    assert str(shown["preview"].value).count("\n") == 6
    assert "| ` 4 ` | ` n ` |" in str(shown["preview"].value)


def test_a_downstream_of_scope_slice_sums_each_slice_and_a_replay_replaces_its_rows(landing: Declare) -> None:
    above = landing(schema="id BIGINT NOT NULL, note STRING, amount DECIMAL(12,2)", max_bad_ratio=1.0)
    above.topic(partitions=2)

    def bought(first: int, last: int, partition: int) -> None:
        who = ("ada", "tim", "eve")
        values = (b'{"id": %d, "note": "%s", "amount": 0.1}' % (n, who[n % 3].encode()) for n in range(first, last))
        above.produce(*values, b"{broken", partition=partition)

    def totals(rows: Any) -> Any:
        return rows.groupBy("note").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))

    bought(0, 30, 0)
    bought(30, 60, 1)
    above.land()
    bought(60, 90, 0)
    above.land()
    name = f"{above.name}_totals"
    decorate = slice_asset(upstream=above.asset, target=name, name=name, scope="slice")
    below_it = Below(above, decorate(totals))

    def holds() -> None:
        found = above.rows(f"select note, sum(orders), round(sum(amount), 2) from {name} group by note order by note")
        assert [(note, orders, float(amount)) for note, orders, amount in found] == [
            (note, 30, 3.0) for note in ("ada", "eve", "tim")
        ]
        assert above.sql(f"select count(*) from {name}") == 3 * 3, "a row for each customer of each slice"
        # A bad record has no row above: below it is a hole.
        sums = "sum(records_read), sum(landed), sum(holes), sum(rows_written)"
        assert above.rows(f"select {sums} from kafka_publication where asset = '{name}'") == [(90, 90, 3, 9)]
        assert above.sql("select count(*) from kafka_gap") == 0

    while requests := below_it.of(below_it.tick()):
        for request in requests:
            assert below_it.run(dict(request.tags)).success
    holds()
    keys = above.keys()
    for key in keys:
        assert above.replay(key).success
        assert below_it.run(one_key(key)).success
    holds()
    made_of = f"select distinct fingerprint from kafka_publication where asset = '{name}'"
    assert above.rows(made_of) == [(f"{above.name}@2",)]
