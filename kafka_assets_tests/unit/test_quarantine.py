"""What is kept of a record that could not become a row: no more than anybody reads of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from kafka_assets.sinks.quarantine import KEPT, headers_json
from kafka_assets_tests.ledgers import Attempt, chunk_of, plan, rows

pytestmark = pytest.mark.usefixtures("unsynced")


def test_of_a_long_record_the_beginning_is_kept_and_its_length_said(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 3)])
    chunk = chunk_of(key, bad=[0, 1])
    short = replace(chunk.bad[0], value=b"v" * KEPT)
    long = replace(chunk.bad[1], value=b"v" * (KEPT + 1), key=b"k" * 3 * KEPT, reason="r" * 10_000)
    Attempt(engine, [key]).claim().publish(replace(chunk, bad=(short, long)))
    kept = rows(engine, "select length(value), length(key), reason from kafka_quarantine order by kafka_offset")
    assert kept[0] == (KEPT, None, "no good")
    assert kept[1][:2] == (KEPT, KEPT)
    assert "the value's 65,537 bytes" in kept[1][2]
    assert "the key's 196,608 bytes" in kept[1][2]
    assert len(kept[1][2]) < 3000


def test_headers_are_kept_whole_as_long_as_they_are_few_and_short() -> None:
    found = json.loads(headers_json([("a", b"1"), ("b", None), ("c", b"\xff")]) or "")
    assert found == [{"key": "a", "value": "1"}, {"key": "b", "value": None}, {"key": "c", "base64": "/w=="}]
    assert headers_json([]) is None


@pytest.mark.parametrize(
    "headers",
    [[("a", b"x" * 10_000_000)], [("n" * 10_000_000, b"x")], [(f"h{n}", b"x") for n in range(100_000)]],
    ids=["long", "long name", "many"],
)
def test_of_headers_without_end_the_rest_is_counted(headers: list[tuple[str, bytes | None]]) -> None:
    text = headers_json([("first", b"1"), *headers]) or ""
    assert len(text) < 3 * KEPT
    found = json.loads(text)
    assert found[0] == {"key": "first", "value": "1"}
    assert "bytes" in found[-1] or found[-1]["left_out"] == len(headers) + 1 - 100
