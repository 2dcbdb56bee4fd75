"""The example stream: orders as JSON, each one a row."""

from pyspark.sql import DataFrame

from kafka_assets import kafka_asset


@kafka_asset(
    topic="orders",
    target="orders",
    schema="id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2), placed_at TIMESTAMP",
    slices={"max_records": 500_000, "max_delay": "2s"},
    keep_keys="30d",
    group_name="shop",
)
def orders(records: DataFrame) -> DataFrame:
    """Orders of the shop, as they were placed; what is malformed waits in kafka_quarantine."""
    return records
