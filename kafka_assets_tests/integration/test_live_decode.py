"""One stream, one answer: what Spark makes of a record, live mode makes of it, and calls bad what that calls bad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafka_assets.live.decode import Decoder
from kafka_assets.records import BadRecord, Chunk
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.corpus.dress import WAYS, record
from kafka_assets_tests.corpus.frames import AT, RAW
from kafka_assets_tests.corpus.json_mutants import mutants
from kafka_assets_tests.corpus.json_oracle import SCHEMA as FUZZED
from kafka_assets_tests.corpus.json_records import RECORDS
from kafka_assets_tests.corpus.json_records import SCHEMA as RECORD_SCHEMA
from kafka_assets_tests.corpus.json_values import CASES, SCHEMA
from kafka_assets_tests.corpus.live import batch, records_of
from kafka_assets_tests.corpus.numbers import number_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MUTANTS = 4_000
BULKY = ", ".join(part for part in FUZZED.split(", ") if not part.startswith(("counts", "sums")))
"""Without the types that live mode does not read in bulk."""
NUMBERS = "n DECIMAL(12,2), wide DECIMAL(34,4), zero DECIMAL(5,0), d DOUBLE, l BIGINT, ds ARRAY<DOUBLE>"


def by_spark(
    spark: SparkSession, stream: Stream, keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> Chunk:
    from kafka_assets.spark.chunks import fetch_records

    rows = [(*one, AT, 0, [("trace", b"\xff"), ("none", None)]) for one in records_of(keys, values)]

    def read(pieces: Sequence[Piece]) -> DataFrame:
        return spark.createDataFrame(rows, RAW)

    key = SliceKey("orders", 1, 3, 0, len(values) + 5)
    piece = Piece("orders", 3, key.start, key.end, (key,))
    return fetch_records([piece], read=read, stream=stream, transform=lambda records: records)


def live(stream: Stream, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Chunk:
    return Decoder(stream).chunk({SliceKey("orders", 1, 3, 0, len(values) + 5): batch(keys, values)})


def complaints(spark: SparkSession, stream: Stream, values: Sequence[bytes | None], **given: Any) -> list[str]:
    keys = given.get("keys") or [b"key"] * len(values)
    theirs, ours = by_spark(spark, stream, keys, values), live(stream, keys, values)
    return differences(theirs, ours, keys, values)


def differences(theirs: Chunk, ours: Chunk, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> list[str]:
    found: list[str] = []
    if not ours.rows.schema.equals(theirs.rows.schema):
        found.append(f"the columns are {ours.rows.schema}, and not {theirs.rows.schema}")
    for what, mine, other in (
        ("landed", _rows(ours.rows), _rows(theirs.rows)),
        ("deletes", _rows(ours.deletes), _rows(theirs.deletes)),
        ("is bad:", _bad(ours.bad), _bad(theirs.bad)),
    ):
        for offset in sorted(mine.keys() | other.keys()):
            if not _same(mine.get(offset), other.get(offset)):
                place = f"{keys[offset]!r}: {values[offset]!r}"[:300]
                found.append(f"{place} {what} {mine.get(offset)}, and by Spark {other.get(offset)}")
    books = [{key: replace(seen, fingerprint=None) for key, seen in one.seen.items()} for one in (ours, theirs)]
    if books[0] != books[1]:
        found.append(f"the books say {books[0]}, and Spark's {books[1]}")
    return found


def _rows(table: Any) -> dict[int, Any]:
    return {} if table is None else {row["kafka_offset"]: row for row in table.to_pylist()}


def _bad(records: Sequence[BadRecord]) -> dict[int, Any]:
    """Which reason is told where several hold, is not promised."""
    return {one.offset: replace(one, reason="") for one in records}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (one, math.copysign(1, one)) == (other, math.copysign(1, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other and str(one) == str(other)


def _json(schema: str, **attributes: Any) -> Stream:
    return declare(name="orders", topic="orders", target="orders", schema=schema, **attributes)


def test_every_value_of_the_corpus(spark: SparkSession) -> None:
    values = [record(case.column, case.token, way=way) for way in WAYS for case in CASES]
    found = complaints(spark, _json(SCHEMA), values)
    assert not found, "\n".join(found[:30])


def test_every_record_of_the_corpus(spark: SparkSession) -> None:
    found = complaints(spark, _json(RECORD_SCHEMA), [value for value, _ in RECORDS])
    assert not found, "\n".join(found[:30])


def test_the_reasons_of_the_corpus_are_spark_s(spark: SparkSession) -> None:
    values = [record(case.column, case.token, way="compact") for case in CASES]
    stream, keys = _json(SCHEMA), [None] * len(values)
    said = [{one.offset: one.reason for one in chunk.bad} for chunk in (
        live(stream, keys, values), by_spark(spark, stream, keys, values)
    )]  # fmt: skip
    others = [f"{values[at]!r}: {said[0][at]} | {said[1][at]}" for at in said[1] if said[0].get(at) != said[1][at]]
    # Numbers and objects are shown as the JVM writes them.
    assert len(others) < len(said[1]) / 10, "\n".join(others)


@pytest.mark.parametrize("schema", [FUZZED, BULKY], ids=["all types", "in bulk"])
def test_spoiled_records(spark: SparkSession, schema: str) -> None:
    found = complaints(spark, _json(schema), mutants(MUTANTS, seed=20260229))
    assert not found, f"{len(found)} differ\n" + "\n".join(found[:20])


def test_numbers_written_in_all_ways(spark: SparkSession) -> None:
    found = complaints(spark, _json(NUMBERS), number_records(6_000, seed=7))
    assert not found, f"{len(found)} differ\n" + "\n".join(found[:20])
