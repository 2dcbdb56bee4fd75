"""A NUL is found wherever it stands: the sieve looks at all bytes of a column at once before it looks at each value."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_assets.records import OFFSET, PARTITION
from kafka_assets.sinks.postgresql import PostgreSQLRoad
from kafka_assets.sinks.sieve import unfit


def refused(column: pa.Array) -> list[int]:
    count = len(column)
    rows = pa.table({
        PARTITION: pa.array([0] * count, pa.int32()),
        OFFSET: pa.array(range(count), pa.int64()),
        "note": column,
    })  # fmt: skip
    return [one.offset for one in unfit(rows, PostgreSQLRoad())]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_nul_is_found_at_each_place_of_a_column(kind: pa.DataType) -> None:
    texts = ["", "a", None, "b\0", "\0", "", "c"]
    assert refused(pa.array(texts, kind)) == [3, 4]
    assert refused(pa.array(["a", None], kind)) == []
    assert refused(pa.array([None, None], kind)) == []
    assert refused(pa.array([], kind)) == []
    for start in range(len(texts)):
        for end in range(start, len(texts) + 1):
            part = pa.array(texts, kind)[start:end]
            assert refused(part) == [at for at, text in enumerate(texts[start:end]) if text and "\0" in text]


def test_a_nul_is_found_inside_of_a_nested_value() -> None:
    column = pa.array([["a"], ["b", "c\0"], None, ["\0"]], pa.list_(pa.string()))
    assert refused(column) == [1, 3]
    assert refused(column[1:3]) == [0]
    assert refused(column[2:3]) == []
