"""What a stream's function makes of the records, as a query of Spark's: `record_function` says the same in Python."""

from __future__ import annotations

from pyspark.sql import DataFrame

from kafka_assets.lab.bench.record_function import GIVES, LEAST, PRODUCTS
from kafka_assets.records import OFFSET, PARTITION, SOURCE


def paid(records: DataFrame, products: str) -> DataFrame:
    """The rows of `GIVES`, and a record's place as it came; `products` is the file of the table that is joined.

    Spark sends a table of this size to all tasks by itself.
    """
    places = [name for name in (SOURCE, PARTITION, OFFSET) if name in records.columns]
    return (
        records.where(f"price >= {LEAST}BD")
        .selectExpr("*", f"id % {PRODUCTS} AS product")
        .join(records.sparkSession.read.parquet(products), "product")
        .selectExpr("*", "CAST((price + tax) * (1 - discount) AS DECIMAL(12,2)) AS paid")
        .select(*places, *GIVES.columns)
    )
