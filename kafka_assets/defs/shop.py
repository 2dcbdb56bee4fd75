"""What Dagster alone makes of the landed tables: an unpartitioned asset, and one that has only a check."""

from typing import Any

import dagster as dg
from sqlalchemy import text

BOOKS = dg.AssetSpec(
    "shop_books", deps=["orders"], group_name="shop", description="The shop's books, kept elsewhere; checked here."
)


@dg.asset(deps=["orders", "customers"], group_name="shop", kinds={"table"}, required_resource_keys={"kafka_assets_io"})
def shop_report(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
    """How the shop stands: what any asset may do that waits for whole tables, and not for slices."""
    with context.resources.kafka_assets_io.engine.connect() as connection:
        orders, turnover = connection.execute(text("select count(*), coalesce(sum(amount), 0) from orders")).one()
        customers = connection.execute(text("select count(*) from customers")).scalar_one()
    return dg.MaterializeResult(
        metadata={"orders": int(orders), "turnover": float(turnover), "customers": int(customers)}
    )


@dg.asset_check(asset=BOOKS.key, required_resource_keys={"kafka_assets_io"})
def no_order_is_free(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Every order has a price."""
    with context.resources.kafka_assets_io.engine.connect() as connection:
        free = connection.execute(text("select count(*) from orders where amount <= 0")).scalar_one()
    return dg.AssetCheckResult(passed=free == 0, metadata={"free_orders": int(free)})
