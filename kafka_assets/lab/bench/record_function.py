"""What a stream's function makes of the records, one by one in Python: a filter, a join, arithmetic of decimals.

Of the shape `decimals`: cheap things are left out, each of the others finds its product in a table of 10,000 rows, and
gets its category, and what is to be paid after its discount. `spark_function` says the same to Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_assets.lab.bench.record_shapes import SHAPES, Kind, Shape, Values

PRODUCTS = 10_000
"""Rows of the table that is joined; a record's product is its id modulo this."""
LEAST = Decimal("10000.00")
"""The price from which on a record is kept: nine in ten are."""
_CATEGORIES, _DISCOUNTS = 40, 3_000
_CENT = Decimal("0.01")
_TEXT: Kind = "STRING"
_MONEY: Kind = "DECIMAL(12,2)"
_TIME: Kind = "TIMESTAMP"

TAKES = SHAPES["decimals"]
"""What the function is given."""
GIVES = Shape(
    "paid",
    {
        "id": "BIGINT", "customer": _TEXT, "category": _TEXT, "price": _MONEY, "tax": _MONEY, "paid": _MONEY,
        "placed_at": _TIME, "shipped_at": _TIME, "note": _TEXT,
    },
)  # fmt: skip
"""The rows that it makes."""


@dataclass(frozen=True)
class Product:
    """One row of the table that is joined; `discount` is a part of the price, DECIMAL(5,4)."""

    product: int
    category: str
    discount: Decimal


def products() -> list[Product]:
    """The table that is joined, the same each time."""
    return [
        Product(number, f"category {number % _CATEGORIES}", Decimal(number % _DISCOUNTS).scaleb(-4))
        for number in range(PRODUCTS)
    ]


def write_products(file: Path) -> None:
    """The same as a file that Spark reads."""
    schema = pa.schema([("product", pa.int64()), ("category", pa.string()), ("discount", pa.decimal128(5, 4))])
    pq.write_table(pa.Table.from_pylist([vars(one) for one in products()], schema=schema), file)


@cache
def row_maker() -> Callable[[Any], Any | None]:
    """What makes a row of `GIVES` of a decoded record of `TAKES`, and None of one that is left out."""
    joined = [(one.category, 1 - one.discount) for one in products()]
    made = GIVES.struct

    def row(record: Any) -> Any | None:
        if record.price is None or record.price < LEAST:
            return None
        product: int = record.id % PRODUCTS
        category, part = joined[product]
        paid = ((record.price + record.tax) * part).quantize(_CENT, ROUND_HALF_UP)
        return made(
            record.id, record.customer, category, record.price, record.tax, paid,
            record.placed_at, record.shipped_at, record.note,
        )  # fmt: skip

    return row


def values_maker() -> Callable[[Values], Values | None]:
    """The same for values in the order of their columns."""
    taken, row = TAKES.struct, row_maker()

    def values(record: Values) -> Values | None:
        made = row(taken(*record))
        return None if made is None else msgspec.structs.astuple(made)

    return values
