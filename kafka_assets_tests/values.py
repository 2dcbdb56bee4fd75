"""Values at the edges of every type, and how each database gives them back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kafka_assets.sinks.nested import json_texts

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
    "real": pa.array([0.1, -0.0, -3.4028235e38, 1.1754944e-38, None], pa.float32()),
    "precise": pa.array([0.1, -1.7976931348623157e308, 2.2250738585072014e-308, 1e22, -0.0, None], pa.float64()),
    "truth": pa.array([True, False, None]),
    "words": pa.array(["", " a", "𝔸🙂ß", "tab\tline\nreturn\rback\\slash", "\\N", "'\"`%:;", "x" * 100_000, None]),
    "nothings": pa.array(["", " ", "NULL", "null", "\\N", None]),
    "bytes": pa.array([b"", b"\x00\xff\t\n\\", bytes(range(256)), b"\\x00", None]),
    "day": pa.array([date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31), None]),
    "moment": pa.array([*(at.replace(tzinfo=UTC) for at in _TIMES), None], pa.timestamp("us", "UTC")),
    "clock": pa.array([*_TIMES, None], pa.timestamp("us")),
    "nested": pa.array([[{"name": "tab\t\"quote\" \\ 🙂", "counts": [1, 2**62]}], [], [{"name": None}], None]),
    "map": pa.array([[("b", [1]), ("a", [])], [], [("", None)], None], pa.map_(pa.string(), pa.list_(pa.int64()))),
    "map of numbers": pa.array([[(2, "b"), (-1, None)], [], None], pa.map_(pa.int64(), pa.string())),
    "maps inside": pa.array(
        [[{"at": 1, "counts": [("k", [(1, "x")])]}, None], [{"at": None, "counts": None}], [], None],
        pa.list_(pa.struct([("at", pa.int8()), ("counts", pa.map_(pa.string(), pa.map_(pa.int8(), pa.string())))])),
    ),
}  # fmt: skip

_BEFORE = pa.scalar(datetime(1, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC")).value - 1
_AFTER = pa.scalar(datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), pa.timestamp("us", "UTC")).value + 1
_BROKEN = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.array([0, 1, 4, 5], pa.int32()).buffers()[1], pa.py_buffer(b"a\xed\xa0\x80b")]
)
"""Text with a lone surrogate in the middle: what a cast from bytes may give."""

BEYOND: dict[str, Any] = {
    "nul": pa.array(["a", "a\0b", "\0", None]),
    "nested nul": pa.array([[{"k": "a\0b"}], [{"k": "a\\u0000b"}], [{"k": "b"}], None]),
    "broken": _BROKEN,
    "nested broken": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), _BROKEN),
    "unreal": pa.array([1.5, float("nan"), float("inf"), float("-inf"), None], pa.float32()),
    "imprecise": pa.array([1.5, float("nan"), float("inf"), float("-inf"), None]),
    "nested unreal": pa.array([[1.5], [float("nan")], [float("inf"), 1.5], [None], None]),
    "ages": pa.array([-719162 - 1, -719162, 2932896, 2932896 + 1, None], pa.int32()).cast(pa.date32()),
    "aeons": pa.array([_BEFORE, 0, _AFTER, None], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "clocks": pa.array([_BEFORE, 0, _AFTER, None], pa.int64()).cast(pa.timestamp("us")),
    "nested ages": pa.array([[-719163], [0], None], pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
}  # fmt: skip
"""Values that not every database can hold."""

_NUL, _YEARS, _JSON = "NUL", "outside of the years 1 to 9999", "JSON has neither"
_UTF8, _NAN, _INFINITE = "not valid UTF-8", "NaN", "infinite"
_EVERYWHERE: dict[str, dict[int, str]] = {
    "broken": {1: _UTF8},
    "nested broken": {1: _UTF8},
    "nested unreal": {1: _JSON, 2: _JSON},
    "ages": {0: _YEARS, 3: _YEARS},
    "aeons": {0: _YEARS, 2: _YEARS},
    "clocks": {0: _YEARS, 2: _YEARS},
    "nested ages": {0: _YEARS},
}
_MYSQL = {1: _NAN, 2: _INFINITE, 3: _INFINITE}
_SOMEWHERE: dict[str, dict[str, dict[int, str]]] = {
    "postgresql": {"nul": {1: _NUL, 2: _NUL}, "nested nul": {0: _NUL}},
    "sqlite": {"unreal": {1: _NAN}, "imprecise": {1: _NAN}},
    "mysql": {"unreal": _MYSQL, "imprecise": _MYSQL},
    "mariadb": {"unreal": _MYSQL, "imprecise": _MYSQL},
}


def misfits(column: str, database: str) -> dict[int, str]:
    """Which values of a column the database cannot hold, by their place, and a word of the reason."""
    return (_EVERYWHERE | _SOMEWHERE[database]).get(column, {})


def as_python(values: Any) -> list[Any]:
    """What is nested comes back as JSON."""
    if pa.types.is_nested(values.type):
        return [None if text is None else json.loads(text) for text in json_texts(values)]
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
