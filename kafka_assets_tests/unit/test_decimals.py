"""Decimals as text, where a database keeps them so: written out, as people and `LIKE` read them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafka_assets.sinks.nested import json_texts
from kafka_assets.sinks.sqlite import values

WRITTEN = {
    "0.0000001": "0.0000001000",
    "-0.0000000001": "-0.0000000001",
    "0": "0.0000000000",
    "213": "213.0000000000",
    "1234567890123456789012.5": "1234567890123456789012.5000000000",
}


@pytest.mark.parametrize("small", [False, True])
def test_a_decimal_is_written_without_an_exponent(small: bool) -> None:
    given = {text: said for text, said in WRITTEN.items() if small or len(said) > 14}
    kind: Any = pa.decimal128(32, 10)
    column = pa.array([*map(Decimal, given), None], kind)
    assert values(column) == [*given.values(), None]
    nested: Any = pa.array([{"d": Decimal(text)} for text in given], pa.struct([("d", kind)]))
    assert json_texts(nested) == [f'{{"d":"{said}"}}' for said in given.values()]
