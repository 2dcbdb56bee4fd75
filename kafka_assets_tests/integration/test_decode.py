"""Each value lands exactly, or its record is bad with a reason that names the field; never rounded, never changed."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.chunks import fetch_landed
from kafka_assets.streams import Stream
from kafka_assets_tests.corpus.classic import chunks
from kafka_assets_tests.corpus.dress import WAYS, record
from kafka_assets_tests.corpus.frames import AT, as_one, decoded, raw_frame
from kafka_assets_tests.corpus.json_records import RECORDS
from kafka_assets_tests.corpus.json_records import SCHEMA as RECORD_SCHEMA
from kafka_assets_tests.corpus.json_rules import RULES, Rule, made_of
from kafka_assets_tests.corpus.json_rules import cases as rules
from kafka_assets_tests.corpus.json_values import CASES, SCHEMA, Bad, Case

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def landed(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Every value of the corpus in every way of writing its record, in one query."""
    rows = decoded(spark, [record(case.column, case.token, way=way) for way in WAYS for case in CASES], schema=SCHEMA)
    return {way: rows[number * len(CASES) :][: len(CASES)] for number, way in enumerate(WAYS)}


@pytest.fixture(scope="module")
def whole(spark: SparkSession) -> list[dict[str, Any]]:
    return decoded(spark, [value for value, _ in RECORDS], schema=RECORD_SCHEMA)


def _same(found: Any, expected: Any) -> bool:
    """Equal, of one type, and with the sign of a zero."""
    if isinstance(expected, float) and isinstance(found, float):
        return found == expected and math.copysign(1, found) == math.copysign(1, expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return type(found) is type(expected) and found == expected


def _complaint(row: dict[str, Any], case: Case) -> str | None:
    reason, found = row["_kafka_bad"], row[case.column]
    if isinstance(case.expected, Bad):
        if reason is None:
            return f"landed {found!r}"
        named = case.expected.reason != "does not fit" or reason.startswith(case.column)
        return None if case.expected.reason in reason and named else f"bad for another reason: {reason}"
    if reason is not None:
        return f"bad: {reason}"
    return None if _same(found, case.expected) else f"landed {found!r}"


@pytest.mark.parametrize("way", WAYS)
def test_a_value_lands_exactly_or_is_bad_with_its_reason(landed: dict[str, list[dict[str, Any]]], way: str) -> None:
    wrong = [
        f"{case.type} {case.token[:80]}: expected {case.expected!r}, {complaint}"
        for case, row in zip(CASES, landed[way], strict=True)
        if (complaint := _complaint(row, case))
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_declared_field_of_a_record_is_filled(landed: dict[str, list[dict[str, Any]]]) -> None:
    for case, row in zip(CASES, landed["crowded"], strict=True):
        if row["_kafka_bad"] is None:
            assert all(row[c.column] is None for c in CASES if c.column != case.column)


@pytest.mark.parametrize("number", range(len(RECORDS)), ids=lambda n: repr(RECORDS[n][0])[:60])
def test_a_record_is_one_json_object_or_bad(whole: list[dict[str, Any]], number: int) -> None:
    (_, expected), row = RECORDS[number], whole[number]
    if isinstance(expected, Bad):
        assert row["_kafka_bad"] is not None
        assert expected.reason in row["_kafka_bad"]
    else:
        assert row["_kafka_bad"] is None
        assert (row["id"], row["note"]) == expected


def test_reasons_are_bounded(spark: SparkSession) -> None:
    name = "n" * 200
    values = [b'{"note":' + b"[" + b'"x",' * 100_000 + b"1]}", b'{"note":"' + b"x" * 1000 + b'"}']
    for row in decoded(spark, values, schema=f"note INT, {name} STRUCT<{name}: INT>"):
        assert len(row["_kafka_bad"]) <= 300


def test_the_record_carries_what_kafka_says_of_it(spark: SparkSession) -> None:
    [row] = decoded(spark, [b'{"id":7}'], schema="id BIGINT")
    assert row == {
        "id": 7,
        "kafka_key": b"key",
        "kafka_timestamp": AT,
        "kafka_timestamp_type": 0,
        "kafka_headers": [{"key": "trace", "value": b"\xff"}, {"key": "none", "value": None}],
        "kafka_partition": 3,
        "kafka_offset": 0,
        "_kafka_bad": None,
    }


def test_a_required_field_that_is_missing_or_null_is_named(spark: SparkSession) -> None:
    rows = decoded(spark, [b"{}", b'{"id":null}', b'{"ID":7}', b'{"id":0}'], schema="id BIGINT NOT NULL, note STRING")
    assert [row["_kafka_bad"] for row in rows] == ["id: missing or null, and declared NOT NULL"] * 3 + [None]


def test_names_with_spaces_quotes_and_points_are_found(spark: SparkSession) -> None:
    schema = "`a b` BIGINT, `a.b` STRING, `it's` DECIMAL(5,2), `a\"b` DECIMAL(5,2), `é` STRING, `$` BOOLEAN, `a]` INT"
    good = '{"a b":1,"a.b":"x","it\'s":1.5,"a\\"b":2.5,"é":"12","$":true,"a]":3}'.encode()
    quoted = b'{"a\\"b":"2,5"}'
    rows = decoded(spark, [good, quoted, b'{"\xc3\xa9":12}', b'{"a.b":12}'], schema=schema)
    assert rows[0]["_kafka_bad"] is None
    assert [rows[0][name] for name in ("a b", "a.b", "é", "$", "a]")] == [1, "x", "12", True, 3]
    assert [str(rows[0][name]) for name in ("it's", 'a"b')] == ["1.50", "2.50"]
    assert [row["_kafka_bad"].partition(":")[0] for row in rows[1:]] == ['a"b', "é", "a.b"]


def test_timestamps_do_not_depend_on_the_zone_of_the_session(spark: SparkSession) -> None:
    values = [b'{"at":"2024-03-10T02:30:00"}', b'{"at":"2024-03-10T02:30:00.5-08:00"}']
    before = spark.conf.get("spark.sql.session.timeZone")
    found: list[list[Any]] = []
    try:
        for zone in ("UTC", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            found.append([row["at"] for row in decoded(spark, values, schema="at TIMESTAMP")])
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert found[0] == found[1]
    assert [at.isoformat() for at in found[0]] == ["2024-03-10T02:30:00+00:00", "2024-03-10T10:30:00.500000+00:00"]


def test_bad_records_come_with_their_bytes_from_the_same_read(spark: SparkSession) -> None:
    values = [value for value, _ in RECORDS]
    stream = Stream(name="s", topic="orders", target="s", schema=RECORD_SCHEMA)
    key = SliceKey("orders", 1, 3, 0, len(values))
    piece = Piece("orders", 3, 0, len(values), (key,))

    def read(_: object) -> DataFrame:
        return raw_frame(spark, values)

    chunk = as_one(fetch_landed([piece], read=read, stream=stream))
    bad = {row["kafka_offset"]: row["_kafka_bad"] for row in decoded(spark, values, schema=RECORD_SCHEMA)}
    assert {one.offset: one.reason for one in chunk.bad} == {at: why for at, why in bad.items() if why is not None}
    for one in chunk.bad:
        assert (one.value, one.key, one.partition) == (values[one.offset], b"key", 3)
        assert one.headers == (("trace", b"\xff"), ("none", None))
        assert one.timestamp == AT.timestamp() * 1000
        assert one.code is not None
    assert (chunk.seen[key].read, chunk.seen[key].bad) == (len(values), len(chunk.bad))


def test_text_and_bytes_land_whole(spark: SparkSession) -> None:
    values = [b"a", b"", None, "é😀\0".encode(), b"\xff"]
    rows = decoded(spark, values, schema="line STRING", format="string")
    assert [row["line"] for row in rows[:4]] == ["a", "", None, "é😀\0"]
    assert [row["_kafka_bad"] for row in rows] == [None] * 4 + ["line: the value is not valid UTF-8"]
    rows = decoded(spark, values, schema="body BINARY", format="bytes")
    assert [(row["body"], row["_kafka_bad"]) for row in rows] == [(value, None) for value in values]
    [row] = decoded(spark, [None], schema="body BINARY NOT NULL", format="bytes")
    assert row["_kafka_bad"] == "body: the value is null (a tombstone), and declared NOT NULL"


@pytest.mark.campaign
def test_a_classic_session_says_the_same(
    spark: SparkSession, landed: dict[str, list[dict[str, Any]]], whole: list[dict[str, Any]], tmp_path: Path
) -> None:
    target = tmp_path / "classic"
    command = [sys.executable, "-m", "kafka_assets_tests.corpus.classic", str(target)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    values, records, [plain, made, held] = pickle.loads(target.read_bytes())
    assert repr(values) == repr([row for way in WAYS for row in landed[way]])
    assert repr(records) == repr(whole)
    assert [plain, made, 0] == chunks(spark) == [made, plain, held]


@pytest.fixture(scope="module")
def by_rule(spark: SparkSession) -> dict[tuple[str, bytes], Any]:
    """What Spark makes of each rule's record: one query for those of a schema."""
    found: dict[tuple[str, bytes], Any] = {}
    for schema in dict.fromkeys(rule.schema for rule in RULES):
        some = [rule for rule in RULES if rule.schema == schema]
        rows = decoded(spark, [rule.record for rule in some], schema=schema)
        for rule, row in zip(some, rows, strict=True):
            found[schema, rule.record] = made_of([] if row["_kafka_bad"] is not None else [row], rule)
    return found


@pytest.mark.parametrize("rule", rules())
def test_a_value_lands_when_it_fits_exactly_however_it_is_spelt(by_rule: Any, rule: Rule) -> None:
    assert by_rule[rule.schema, rule.record] == rule.expected
