"""One stream, one answer: what Spark makes of a record, live mode makes of it, and calls bad what that calls bad."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from kafka_assets.live.decode import Decoder
from kafka_assets.records import BadRecord, Chunk
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.corpus.dress import WAYS, record
from kafka_assets_tests.corpus.frames import AT, RAW, as_one
from kafka_assets_tests.corpus.json_mutants import SCHEMA as FUZZED
from kafka_assets_tests.corpus.json_mutants import mutants
from kafka_assets_tests.corpus.json_records import RECORDS
from kafka_assets_tests.corpus.json_records import SCHEMA as RECORD_SCHEMA
from kafka_assets_tests.corpus.json_values import CASES, SCHEMA
from kafka_assets_tests.corpus.live import batch, records_of
from kafka_assets_tests.corpus.numbers import SCHEMA as NUMBERS
from kafka_assets_tests.corpus.numbers import number_records
from kafka_assets_tests.properties.runner import AS_IT_IS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MUTANTS = 200  # of a local relation of 1,500 Spark makes no end
EXAMPLES = int(os.environ.get("KAFKA_ASSETS_TESTS_EXAMPLES", "2"))
"""Batches that are drawn for each upsert stream: more find more."""
BULKY = ", ".join(part for part in FUZZED.split(", ") if not part.startswith(("counts", "sums")))
"""Without the types that live mode does not read in bulk."""


def by_spark(
    spark: SparkSession,
    stream: Stream,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    *,
    through_a_function: bool = False,
) -> Chunk:
    from kafka_assets.spark.chunks import fetch_landed, plain_schema
    from kafka_assets.spark.transformed import fetch_transformed

    rows = [(*one, AT, 0, [("trace", b"\xff"), ("none", None)]) for one in records_of(keys, values)]

    def read(pieces: Sequence[Piece]) -> DataFrame:
        return spark.createDataFrame(rows, RAW)

    key = SliceKey("orders", 1, 3, 0, len(values) + 5)
    piece = Piece("orders", 3, key.start, key.end, (key,))
    if not through_a_function:
        return as_one(fetch_landed([piece], read=read, stream=stream))
    schema = plain_schema(stream)
    return as_one(
        fetch_transformed(
            [piece],
            read=read,
            stream=stream,
            transform=lambda records: records,
            schema=schema,
            room=1 << 24,
        )
    )


def live(stream: Stream, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Chunk:
    return Decoder(stream).chunk({SliceKey("orders", 1, 3, 0, len(values) + 5): batch(keys, values)})


def complaints(spark: SparkSession, stream: Stream, values: Sequence[bytes | None], **given: Any) -> list[str]:
    keys = given.get("keys") or [b"key"] * len(values)
    ours = live(stream, keys, values)
    plain, made = (by_spark(spark, stream, keys, values, through_a_function=through) for through in (False, True))
    assert plain.seen == made.seen
    return [*differences(plain, ours, keys, values), *differences(made, ours, keys, values)]


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
    if ours.seen != theirs.seen:
        found.append(f"the books say {ours.seen}, and Spark's {theirs.seen}")
    return found


def _rows(table: Any) -> dict[int, Any]:
    return {} if table is None else {row["kafka_offset"]: row for row in table.to_pylist()}


def _bad(records: Sequence[BadRecord]) -> dict[int, Any]:
    """Which reason is told where several hold, is not promised."""
    return {one.offset: replace(one, reason="", code=None, field=None) for one in records}


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
    # Numbers and objects are shown as the JVM writes them.
    shown = re.compile(r": .*? does not fit ")
    plain = [{at: shown.sub(": … does not fit ", reason, count=1) for at, reason in one.items()} for one in said]
    others = [
        f"{values[at]!r}: {said[0].get(at)} | {said[1][at]}" for at in said[1] if plain[0].get(at) != plain[1][at]
    ]
    assert said[1] and not others, "\n".join(others)


@pytest.mark.parametrize("schema", [FUZZED, BULKY], ids=["all types", "in bulk"])
def test_spoiled_records(spark: SparkSession, schema: str) -> None:
    found = complaints(spark, _json(schema), mutants(MUTANTS, seed=20260229))
    assert not found, f"{len(found)} differ\n" + "\n".join(found[:20])


def test_numbers_written_in_all_ways(spark: SparkSession) -> None:
    found = complaints(spark, _json(NUMBERS), number_records(2_000, seed=7))
    assert not found, f"{len(found)} differ\n" + "\n".join(found[:20])


VALUES = st.one_of(
    st.builds(lambda seed: mutants(1, seed=seed)[0], st.integers(0, 2**32)),
    st.builds(lambda seed: number_records(1, seed=seed)[0], st.integers(0, 2**32)),
    st.binary(max_size=40),
    st.none(),
)
KEYS = st.one_of(
    st.none(),
    st.binary(max_size=6),
    st.sampled_from([b"7", b" 8 ", b'"7"', b'{"id":7}', b'{"id":8,"id":9}', b'{"id":null}', b"1e2", b"-0"]),
    st.text(max_size=8).map(str.encode),
)  # fmt: skip


@pytest.mark.parametrize(
    "attributes",
    [{"key": ["id"]}, {"key": ["note"]}, {"key": ["kafka_key"]}, {"key": ["id"], "order_by": "price"}],
    ids=["a number", "a text", "the record's own", "ordered by a column"],
)
def test_records_and_tombstones_of_an_upsert_stream(spark: SparkSession, attributes: dict[str, Any]) -> None:
    stream = _json("id BIGINT, note STRING, price DECIMAL(12,2)", mode="upsert", **attributes)

    @seed(20260301)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=AS_IT_IS,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.tuples(KEYS, VALUES), min_size=100, max_size=200))
    def agree(records: list[tuple[bytes | None, bytes | None]]) -> None:
        keys, values = [key for key, _ in records], [value for _, value in records]
        assert complaints(spark, stream, values, keys=keys) == []

    agree()
