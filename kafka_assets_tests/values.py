"""Values at the edges of every type, and how each database gives them back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

_TINY = Decimal("0.000000000000000001")
_HUGE = Decimal("99999999999999999999.999999999999999999")
_TIMES = [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(9999, 12, 31, 23, 59, 59, 999999)]

CORPUS: dict[str, Any] = {
    "tiny": pa.array([-(2**7), 2**7 - 1, None], pa.int8()),
    "small": pa.array([-(2**15), 2**15 - 1, None], pa.int16()),
    "whole": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
    "big": pa.array([-(2**63), 2**63 - 1, 0, None], pa.int64()),
    "wide": pa.array([_TINY, _TINY.copy_negate(), _HUGE, _HUGE.copy_negate(), Decimal(0), None], pa.decimal128(38, 18)),
    "money": pa.array([Decimal("9999999999.99"), Decimal("-0.01"), None], pa.decimal128(12, 2)),
    "real": pa.array([0.1, -3.4028235e38, 1.1754944e-38, None], pa.float32()),
    "precise": pa.array([0.1, -1.7976931348623157e308, 2.2250738585072014e-308, 1e22, -0.0, None], pa.float64()),
    "truth": pa.array([True, False, None]),
    "words": pa.array(["", " a ", "𝔸🙂ß", "tab\tline\nreturn\rback\\slash", "\\N", "'\"`%:;", "x" * 100_000, None]),
    "bytes": pa.array([b"", b"\x00\xff\t\n\\", bytes(range(256)), b"\\x00", None]),
    "day": pa.array([date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31), None]),
    "moment": pa.array([*(at.replace(tzinfo=UTC) for at in _TIMES), None], pa.timestamp("us", "UTC")),
    "clock": pa.array([*_TIMES, None], pa.timestamp("us")),
    "nested": pa.array([[{"name": "tab\t\"quote\" \\ 🙂", "counts": [1, 2**62]}], [], [{"name": None}], None]),
}  # fmt: skip


def as_python(values: Any) -> list[Any]:
    return values.to_pylist()


def as_given(value: Any, kind: Any) -> Any:
    """A value as the driver gives it, in the form that it had; SQLite keeps times, JSON and long decimals as text."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return value if isinstance(value, Decimal) else Decimal(str(value))
    if pa.types.is_date(kind):
        value = date.fromisoformat(value) if isinstance(value, str) else value
    elif pa.types.is_timestamp(kind):
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
        value = time.replace(tzinfo=UTC) if kind.tz and time.tzinfo is None else time
    elif pa.types.is_nested(kind):
        value = json.loads(value) if isinstance(value, str) else value
    elif pa.types.is_float32(kind):
        value = pa.scalar(value, kind).as_py()
    elif pa.types.is_boolean(kind):
        value = {0: False, 1: True}[value]
    return value
