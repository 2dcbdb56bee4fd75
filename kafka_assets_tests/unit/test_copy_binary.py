"""Rows in PostgreSQL's binary form: the same bytes as packed one by one by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafka_assets.lab.bench.hand_loops import Target, msgspec_copy_binary
from kafka_assets.lab.bench.record_shapes import SHAPES
from kafka_assets.sinks.copy_binary import HEAD, TAIL, binary, sent_as

AT = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC)
PLAIN = SHAPES["plain"]
Order: Any = PLAIN.struct
ORDERS = [
    Order(id=1, customer="ada", amount=0.1, placed_at=AT, note="é🙂"),
    Order(id=None, customer=None, amount=None, placed_at=None, note=None),
    Order(id=-(2**63), customer="", amount=-0.0, placed_at=datetime(1, 1, 1, tzinfo=UTC), note="x" * 1000),
]
KINDS = {
    "kafka_partition": pa.int32(), "kafka_offset": pa.int64(), "id": pa.int64(), "customer": pa.string(),
    "amount": pa.float64(), "placed_at": pa.timestamp("us", "UTC"), "note": pa.string(),
}  # fmt: skip


def sent(rows: pa.Table) -> bytes:
    return HEAD + b"".join(binary(rows, rows.column_names, first=1)) + TAIL


def test_rows_are_what_a_hand_written_loop_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [pa.array([3] * 3, pa.int32()), pa.array([7, 8, 9], pa.int64())]
    columns += [pa.array([getattr(one, name) for one in ORDERS], kind) for name, kind in list(KINDS.items())[2:]]
    rows = pa.Table.from_arrays(columns, names=list(KINDS))
    assert sent(rows) == by_hand(monkeypatch)
    # The same of rows that begin in the middle of their buffers, and come in several parts.
    apart = pa.concat_tables([pa.concat_tables([rows, rows]).slice(3, 1), rows.slice(1)])
    assert sent(apart) == by_hand(monkeypatch)


def by_hand(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What the benchmark's loop writes for these orders."""
    written: list[bytes] = []

    class Anything:
        def __init__(self, at: int) -> None:
            self.at = at

        def __getattr__(self, name: str) -> Any:
            return lambda *given: self

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def partition(self) -> int:
            return 3

        def offset(self) -> int:
            return 7 + self.at

        def value(self) -> bytes:
            import msgspec

            return msgspec.json.encode(ORDERS[self.at])

        def write(self, part: bytes) -> None:
            written.append(part)

    class Connection:
        class connection:  # noqa: N801 - as SQLAlchemy names it
            driver_connection = Anything(0)

    msgspec_copy_binary(Connection(), Target("orders", PLAIN), [Anything(at) for at in range(3)])  # type: ignore[arg-type]
    return b"".join(written)


def test_every_type_has_its_form() -> None:
    columns: dict[str, tuple[Any, bytes]] = {
        "b": (pa.array([True]), b"\1"),
        "t": (pa.array([-5], pa.int8()), struct.pack(">h", -5)),
        "s": (pa.array([300], pa.int16()), struct.pack(">h", 300)),
        "f": (pa.array([1.5], pa.float32()), struct.pack(">f", 1.5)),
        "d": (pa.array([date(1999, 12, 31)]), struct.pack(">i", -1)),
        "n": (pa.array([datetime(2000, 1, 1, 0, 0, 1)], pa.timestamp("us")), struct.pack(">q", 1_000_000)),
        "y": (pa.array([b"\0\xff"]), b"\0\xff"),
        "j": (pa.array([[1, None]]), b"\1[1,null]"),
        "m": (
            pa.array([Decimal("-12345.67")], pa.decimal128(12, 2)),
            struct.pack(">8h", 4, 2, 0x4000, 2, 0, 1, 2345, 6700),
        ),
        "w": (pa.array([Decimal("0.12345")], pa.decimal128(5, 5)), struct.pack(">6h", 2, -1, 0, 5, 1234, 5000)),
    }  # fmt: skip
    rows = pa.Table.from_arrays([column for column, _ in columns.values()], names=list(columns))
    expected = struct.pack(">hiq", len(columns) + 1, 8, 1)
    expected += b"".join(struct.pack(">i", len(form)) + form for _, form in columns.values())
    assert sent(rows) == HEAD + expected + TAIL


@pytest.mark.parametrize("precision", range(1, 19))
def test_a_decimal_of_any_scale_is_sent_as_it_is_and_nulls_among_them(precision: int) -> None:
    for scale in range(precision + 1):
        most = 10**precision - 1
        given = [Decimal(one).scaleb(-scale) for one in (most, -most, 1, -1, 0, most // 3, 10 ** (precision // 2))]
        for values in (given, [None, *given, None]):
            rows = pa.table({"d": pa.array(values, pa.decimal128(precision, scale))})
            assert [decimal_of(one, scale) for one in fields(sent(rows))] == values


def fields(data: bytes) -> Iterator[bytes | None]:
    """The one column behind the BIGINT of each row."""
    at = len(HEAD)
    while data[at : at + 2] != TAIL:
        (count, _, _, size) = struct.unpack_from(">hiqi", data, at)
        assert count == 2
        at += struct.calcsize(">hiqi")
        yield data[at : at + size] if size >= 0 else None
        at += max(size, 0)
    assert at + 2 == len(data)


def decimal_of(form: bytes | None, scale: int) -> Decimal | None:
    """As PostgreSQL reads it: groups of four digits, of which the first stands so many groups before the point."""
    if form is None:
        return None
    count, weight, sign, shown = struct.unpack_from(">4h", form)
    groups = struct.unpack_from(f">{count}h", form, 8)
    assert shown == scale and len(form) == 8 + 2 * count and all(0 <= one < 10_000 for one in groups)
    size = sum(Decimal(one) * Decimal(10_000) ** (weight - at) for at, one in enumerate(groups))
    return -size if sign else Decimal(size)


def test_what_has_no_form_is_sent_as_text() -> None:
    assert sent_as(pa.decimal128(38, 18)) is None
    assert sent_as(pa.null()) is None
