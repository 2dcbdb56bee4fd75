"""An asset's function under `materialize_to_memory`: Spark, a list of records, no broker and no ledger."""

from __future__ import annotations

from decimal import Decimal

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from kafka_assets import kafka_asset
from kafka_assets.assets.names import KAFKA, SPARK
from kafka_assets.testing import ListRecords, Record, Session, run_asset


@kafka_asset(topic="orders", target="orders", schema="id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2)")
def paid_orders(records: DataFrame) -> DataFrame:
    """Orders that cost something."""
    return records.where("amount > 0")


GIVEN = [
    {"id": 1, "customer": "ada", "amount": 12.5},
    {"id": 2, "customer": "tim", "amount": 0},
    '{"id": 3, "customer": "grace", "amount": 99999999.99}',
    b"{broken",
    Record({"id": 4, "customer": None, "amount": 1}, key="k"),
]


def test_the_function_sees_the_decoded_records_of_a_list(spark: SparkSession) -> None:
    rows = run_asset(paid_orders, GIVEN, spark=spark).orderBy("id").collect()
    assert [(row.id, row.customer, row.amount) for row in rows] == [
        (1, "ada", Decimal("12.50")),
        (3, "grace", Decimal("99999999.99")),
        (4, None, Decimal("1.00")),
    ]
    assert [(row.kafka_partition, row.kafka_offset) for row in rows] == [(0, 0), (0, 2), (0, 4)]
    assert bytes(rows[2].kafka_key) == b"k"


@kafka_asset(topic="orders", target="order_counts", schema="id BIGINT NOT NULL", scope="slice")
def order_counts(records: DataFrame) -> DataFrame:
    return records.selectExpr("count(*) AS orders")


def test_a_run_of_several_whole_slices_gives_the_rows_of_each(spark: SparkSession) -> None:
    keys = [f"orders:0:{at}-{at + 2}" for at in range(0, 6, 2)]
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("kafka_order_counts", keys)
        result = dg.materialize_to_memory(
            [order_counts],
            tags={"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]},
            instance=instance,
            resources={KAFKA: ListRecords({"id": number} for number in range(5)), SPARK: Session(spark)},
        )
        assert [row.orders for row in result.output_for_node("order_counts").collect()] == [2, 2, 1]


def test_dagsters_own_materialize_to_memory_runs_it(spark: SparkSession) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("kafka_paid_orders", ["orders:0:0-2"])
        result = dg.materialize_to_memory(
            [paid_orders],
            partition_key="orders:0:0-2",
            instance=instance,
            resources={KAFKA: ListRecords(GIVEN), SPARK: Session(spark)},
        )
        assert result.success
        assert result.output_for_node("paid_orders").count() == 1
