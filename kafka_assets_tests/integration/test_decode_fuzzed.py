"""Spoiled records against an independent judge: no query fails, nothing lands that the judge does not read the same."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kafka_assets.schema import declared
from kafka_assets_tests.corpus.frames import decoded
from kafka_assets_tests.corpus.json_mutants import FIELDS, SCHEMA, mutants
from kafka_assets_tests.corpus.judge import judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 3000


def test_spoiled_records_land_exactly_or_are_bad(spark: SparkSession) -> None:
    payloads = mutants(COUNT, seed=20240229)
    rows = decoded(spark, payloads, schema=SCHEMA)
    complaints: list[str] = []
    landed = 0
    for payload, row in zip(payloads, rows, strict=True):
        outcome, reason = judge(payload, declared(SCHEMA, "json")), row["_kafka_bad"]
        found = [row[name] for name in FIELDS]
        if reason is None:
            landed += 1
            if outcome is None or not _same(found, outcome):
                complaints.append(f"{payload!r} landed {found}, expected {outcome}")
        elif outcome is not None:
            complaints.append(f"{payload!r} is bad ({reason}), expected {outcome}")
    assert not complaints, f"{len(complaints)} complaints\n" + "\n".join(complaints[:20])
    # Neither the judge nor the decoder may simply refuse everything.
    assert COUNT / 5 < landed < COUNT * 3 / 4


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return (found, math.copysign(1, found)) == (expected, math.copysign(1, expected))
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(_same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return isinstance(found, list | tuple) and len(found) == len(expected) and all(map(_same, found, expected))
    return found == expected
