"""What is kept of a record that could not become a row: no more than anybody reads of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from kafka_assets.ledger import quarantined
from kafka_assets.ledger.quarantined import quarantine_reasons
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.quarantine import KEPT, headers_json
from kafka_assets_tests.ledgers import Attempt, chunk_of, plan, rows


def test_of_a_long_record_the_beginning_is_kept_and_its_length_said(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 3)])
    chunk = chunk_of(key, bad=[0, 1])
    short = replace(chunk.bad[0], value=b"v" * KEPT)
    long = replace(chunk.bad[1], value=b"v" * (KEPT + 1), key=b"k" * 3 * KEPT, reason="r" * 10_000)
    Attempt(engine, [key]).claim().publish(replace(chunk, bad=(short, long)))
    kept = "select length(value), value_bytes, length(key), key_bytes, length(reason) from kafka_quarantine"
    assert rows(engine, f"{kept} order by kafka_offset") == [
        (KEPT, KEPT, None, None, len("no good")),
        (KEPT, KEPT + 1, KEPT, 3 * KEPT, 2000),
    ]


def test_a_million_reasons_are_told_in_a_few_lines(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 60)])
    chunk = chunk_of(key, bad=range(60))
    bad = [
        replace(one, reason=f'{name}: "{at}" does not fit BIGINT exactly', code="does_not_fit", field=name)
        for at, one in enumerate(chunk.bad)
        for name in ("id" if at % 3 else "amount",)
    ]
    Attempt(engine, [key]).claim().publish(replace(chunk, bad=tuple(bad)))
    found = quarantine_reasons(engine, assets=["orders"], limit=10)
    assert [(one.code, one.field, one.records) for one in found] == [
        ("does_not_fit", "id", 40),
        ("does_not_fit", "amount", 20),
    ]
    assert found[0].example == 'id: "1" does not fit BIGINT exactly'
    assert [one.field for one in quarantine_reasons(engine, assets=["orders"], limit=1)] == ["id"]


def test_of_many_bad_records_the_newest_of_each_partition_are_counted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantined, "LOOKED", 10)
    monkeypatch.setattr(quarantined, "LEAST", 1)
    for partition in (0, 1):
        [key] = plan(engine, slices=[(0, 9)], partition=partition)
        said = [f'{"id" if offset < 5 else "amount"}: "{offset}" does not fit BIGINT exactly' for offset in range(9)]
        chunk = chunk_of(key, bad=range(5 if partition else 9))
        bad = tuple(
            replace(one, reason=said[one.offset], code="does_not_fit", field=said[one.offset].partition(":")[0])
            for one in chunk.bad
        )
        Attempt(engine, [key]).claim().publish(replace(chunk, bad=bad), policy=BadPolicy("quarantine", 1.0))
    found = quarantine_reasons(engine, assets=["orders", "another"], limit=10)
    # Of partition 0 the newest five and one more, by which it is known that there are more; of partition 1 all.
    assert [(one.field, one.records, one.more_records) for one in found] == [("id", 7, True), ("amount", 4, True)]
    monkeypatch.setattr(quarantined, "LOOKED", 18)
    found = quarantine_reasons(engine, assets=["orders"], limit=10)
    assert [(one.field, one.records, one.more_records) for one in found] == [("id", 10, False), ("amount", 4, False)]
    assert found[0].first_at < found[0].last_at
    assert quarantine_reasons(engine, assets=["another"], limit=10) == []


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
