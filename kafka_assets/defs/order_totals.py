"""What is made of another asset's slices: so it imports that asset, from the file beside it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from kafka_assets import slice_asset

from .orders import orders


@slice_asset(upstream=orders, target="order_totals", scope="slice", group_name="shop")
def order_totals(rows: DataFrame) -> DataFrame:
    """What each customer bought, slice by slice; a customer's total is the sum over the slices."""
    return rows.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
