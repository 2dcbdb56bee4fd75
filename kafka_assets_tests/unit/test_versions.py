"""A key has one digest, whoever carries it; a version is a number."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafka_assets.errors import TableIncompatible
from kafka_assets.sinks.sqlite import SQLiteRoad
from kafka_assets.sinks.versions import DIGEST, KEY_TEXT, completed, hidden, key_types, versioned
from kafka_assets.streams import Upsert


def digest(**key: Any) -> str:
    rows = pa.table({name: value if isinstance(value, pa.Array) else pa.array([value]) for name, value in key.items()})
    return versioned(rows, Upsert(tuple(key), "offset"), deleted=False).column(DIGEST).to_pylist()[0]


def test_a_digest_does_not_depend_on_the_width_of_a_number() -> None:
    assert digest(id=pa.array([7], pa.int16())) == digest(id=pa.array([7], pa.int64()))
    assert digest(id=pa.array([b"a"], pa.binary())) == digest(id=pa.array([b"a"], pa.large_binary()))


def test_no_two_keys_have_one_digest() -> None:
    found = [
        digest(a="x", b="y"), digest(a="xy", b=""), digest(a="", b="xy"), digest(a="1:x", b="y"),
        digest(a="x", b="1:y"), digest(a=" x", b="y"), digest(a=Decimal("1.10"), b=date(2026, 1, 1)),
    ]  # fmt: skip
    assert len({*found}) == len(found)


def test_a_row_without_its_key_has_no_digest() -> None:
    assert digest(id=pa.array([None], pa.int64())) is None


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (pa.array([-3], pa.int8()), -3),
        (pa.array([date(1970, 1, 3)]), 2),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1, 5, UTC)], pa.timestamp("us", "UTC")), 1_000_005),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ms")), 1_000_000),
    ],
)
def test_an_order_value_is_a_number(value: Any, number: int) -> None:
    rows = versioned(pa.table({"id": [1], "at": value}), Upsert(("id",), "at"), deleted=False)
    assert rows.column("kafka_order_at").to_pylist() == [number]


def test_a_delete_shows_its_key_and_knows_nothing_else() -> None:
    schema = pa.schema([("kafka_key", pa.binary()), ("note", pa.string())])
    gone = completed(pa.table({"kafka_key": [b"a", b"\xff"]}), schema)
    assert gone.column("note").to_pylist() == [None, None]
    shown = versioned(gone, Upsert(("kafka_key",), "offset"), deleted=True).column(KEY_TEXT).to_pylist()
    assert shown == ['{"kafka_key":"a"}', '{"kafka_key":"0xff"}']


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int64()), pa.null()])
def test_what_does_not_compare_alike_everywhere_is_no_key(kind: Any) -> None:
    with pytest.raises(TableIncompatible, match="cannot be part of a key"):
        key_types(SQLiteRoad("x.db"), {"id": kind}, Upsert(("id",), "offset"))


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.decimal128(9, 2)])
def test_what_is_no_number_orders_nothing(kind: Any) -> None:
    with pytest.raises(TableIncompatible, match="cannot order versions"):
        hidden(Upsert(("id",), "at"), {"id": pa.int64(), "at": kind})
