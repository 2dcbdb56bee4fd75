"""Times that are all of one form take a short way, on which each of them is what it is on the long one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafka_assets.decode import clocks, columns
from kafka_assets.decode.clocks import are_alike
from kafka_assets.decode.decoder import JsonValues
from kafka_assets.schema import declared

GOOD = "2026-01-{:02d}T00:00:{:02d}"
ODD = [
    "2024-02-30T00:00:00", "2024-13-01T00:00:00", "2024-00-01T00:00:00", "2024-01-00T00:00:00", "2024-01-32T00:00:00",
    "2024-01-01T24:00:00", "2024-01-01T23:60:00", "2024-01-01T23:59:60", "0000-01-01T00:00:00", "0001-01-01T00:00:00",
    "9999-12-31T23:59:59", "2024-02-29T23:59:59", "2024-01-01 00:00:00", "2024-1-01T00:00:000", "2024-01-01t00:00:00",
    "+024-01-01T00:00:00", "2024-01-01T00:00:0x", "2024/01/01T00:00:00", "2024-01-01T00-00-00", "é024-01-01T00:00:0",
]  # fmt: skip


@pytest.mark.parametrize("behind", ["", "Z", ".5", ".25Z", ".123456Z", ".1234567Z", ".Z", ".000000"])
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_by_the_short_way_as_by_the_long_one(kind: str, behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = [GOOD.format(1 + at % 28, at % 60) for at in range(100)]
    reader = JsonValues(declared(f"at {kind}", "json"))

    def read() -> list[Any]:
        found: list[Any] = []
        for odd in [*ODD, good[0]]:
            texts = [*good[:50], odd, *good[50:]]
            one = reader.read(pa.array([f'{{"at":"{text}{behind}"}}'.encode() for text in texts], pa.binary()))
            assert one.rows.num_rows + len(one.bad) == len(texts)
            found.append((one.rows.to_pydict(), dict(one.bad)))
        return found

    short = read()
    monkeypatch.setattr(columns, "are_alike", lambda texts, *, zoned: False)
    assert short == read()
    # One that is none costs its neighbours nothing.
    fits = (kind == "TIMESTAMP" or not behind.endswith("Z")) and behind not in (".1234567Z", ".Z")
    assert all(set(bad) <= {50} for _, bad in short) == fits


@pytest.mark.parametrize(
    ("texts", "zoned", "alike"),
    [
        (["2026-01-01T00:00:00Z"] * 3, True, True),
        (["2026-01-01T00:00:00"] * 3, True, False),
        (["2026-01-01T00:00:00"] * 3, False, True),
        (["2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.9Z"], True, True),
        (["2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00Z"], True, False),
        (["2026-01-01T00:00:00.1234567Z"], True, False),
        (["2026-01-01T00:00:00Z", None], True, False),
        (["2026-01-01T00:00"], True, False),
        ([""], True, False),
        ([], True, False),
    ],
)
def test_what_is_alike(texts: list[str | None], zoned: bool, alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_ROWS", 2)
    clocks._bounds.cache_clear()
    assert are_alike(pa.array(texts, pa.string()), zoned=zoned) is alike
    around = pa.array(["x", *texts, "y"], pa.string()).slice(1, len(texts))
    assert are_alike(around, zoned=zoned) is alike
    clocks._bounds.cache_clear()
