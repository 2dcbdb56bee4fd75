"""Declarations are made valid once, or refused in the user's words."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from kafka_assets.errors import StreamError
from kafka_assets.streams import Upsert, declare, require_columns

GOOD = {"name": "orders", "topic": "orders", "target": "orders", "schema": "id BIGINT"}


def test_a_declaration_has_sound_defaults() -> None:
    stream = declare(**GOOD)
    assert stream.slices.max_delay == timedelta(seconds=10)
    assert stream.on_expired == "fail"
    assert stream.partitions_name == "kafka_orders"


@pytest.mark.parametrize(
    ("start", "hour"), [("2026-01-01T02:00:00", 2), ("2026-01-01", 0), ("2026-01-01T02:00:00+01:00", 1)]
)
def test_a_start_without_a_zone_is_the_same_moment_everywhere(
    start: str, hour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        found = declare(**GOOD, start=start).start
        assert isinstance(found, datetime)
        assert found.timestamp() == datetime(2026, 1, 1, hour, tzinfo=UTC).timestamp()
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("text", "seconds"), [("10s", 10), ("250ms", 0.25), ("15m", 900), ("1.5h", 5400)])
def test_durations_read_as_people_write_them(text: str, seconds: float) -> None:
    assert declare(**GOOD, slices={"max_delay": text}).slices.max_delay == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"topic": "a b"}, "Kafka topic"),
        ({"name": "no-dash"}, "asset name"),
        ({"topics": "shop.*"}, "either topic, or with topics"),
        ({"topic": None}, "either topic, or with topics"),
        ({"topic": None, "topics": "shop("}, "no regular expression"),
        ({"topic": None, "topics": "s.*", "mode": "upsert", "key": ["id"]}, "topics needs mode append"),
        ({"group": " "}, "group's name"),
        ({"keep_keys": "59m"}, "an hour or more"),
        ({"slices": {"runs": 0}}, "slices.runs"),
        ({"partitions": 3}, "there is no attribute 'partitions'"),
        ({"modee": "append"}, r"there is no attribute 'modee' · did you mean 'mode'\? · known attributes: name, topic"),
        ({"slices": {"max_recs": 5}}, r"attribute 'slices\.max_recs' · did you mean 'max_records'\? · known"),
        ({"slices": {"max_delay": "soon"}}, "write for example 10s"),
        ({"slices": {"max_records": 0}}, "slices.max_records"),
        ({"max_bad_ratio": 2}, "max_bad_ratio"),
        ({"mode": "replace"}, "mode"),
        ({"mode": "upsert"}, "mode upsert needs key"),
        ({"key": ["id"]}, "belong to mode upsert"),
        ({"order_by": "kafka_timestamp"}, "belong to mode upsert"),
        ({"mode": "upsert", "key": ["id", "ID"]}, "stands twice"),
        ({"mode": "upsert", "key": ["kafka_offset"]}, "only kafka_key"),
        ({"mode": "upsert", "key": ["id"], "order_by": "kafka_offset"}, "orders nothing"),
        ({"mode": "upsert", "key": ["id"], "scope": "slice"}, "scope slice belongs to mode append"),
        ({"evolve": "drop_columns"}, "evolve"),
        ({"skip_when_behind": {"keep": 5}}, "records, age, or both"),
        ({"skip_when_behind": {"records": 5, "keep": 6}}, "nothing would be jumped over"),
        ({"skip_when_behind": {"records": 5}}, "skip_when_behind.keep"),
        ({"skip_when_behind": {"records": 5, "keep": 5, "every": "0s"}}, "longer than nothing"),
        ({"skip_when_behind": {"records": 5, "keep": 5, "stale_keys": True}}, "belongs to mode upsert"),
        ({"mode": "upsert", "key": ["id"], "skip_when_behind": {"records": 5, "keep": 5}}, "loses keys"),
        ({"schema": "id BIGINT, name STRNG"}, "stream 'orders': the schema .*'STRNG' is no type"),
        ({"schema": "id BIGINT, ID STRING"}, "declares 'ID' twice"),
        ({"schema": "a STRING, b STRING", "format": "string"}, "exactly one field"),
        ({"target": ""}, "no table; write a name, or schema.table"),
        ({"target": "a.b.c"}, "no table; write a name, or schema.table"),
        ({"target": ".orders"}, "no table; write a name, or schema.table"),
        ({"target": "orders."}, "no table; write a name, or schema.table"),
        ({"target": "Kafka_slice"}, "those names belong to the ledger"),
    ],
)
def test_a_mistake_is_named_where_it_stands(change: dict[str, object], words: str) -> None:
    with pytest.raises(StreamError, match=words):
        declare(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": ["ident"]}, "key: the schema has no field 'ident' · it declares id, note, share, seen"),
        ({"key": ["ID"]}, "key: the schema has no field 'ID'"),
        ({"key": ["share"]}, "key: 'share' is DOUBLE · .* name a field that is .* a text, a date or a timestamp"),
        ({"key": ["kafka_key"], "order_by": "when"}, "order_by: the schema has no field 'when'"),
        ({"key": ["id"], "order_by": "note"}, "order_by: 'note' is STRING"),
    ],
)
def test_a_key_and_an_order_of_records_that_land_as_they_come_are_declared_fields(
    change: dict[str, object], words: str
) -> None:
    schema = "id BIGINT, note STRING, share DOUBLE, seen TIMESTAMP"
    with pytest.raises(StreamError, match=words):
        require_columns(declare(**{**GOOD, "schema": schema, "mode": "upsert", **change}))
    require_columns(declare(**{**GOOD, "schema": schema}, mode="upsert", key=["id", "note"], order_by="seen"))
    require_columns(declare(**{**GOOD, "schema": schema}, mode="upsert", key=["kafka_key"], order_by="kafka_timestamp"))


def test_a_declaration_survives_being_told_to_dagster() -> None:
    stream = declare(**GOOD, slices={"max_delay": "2s"}, start="2026-01-01T00:00:00Z")
    assert declare(**stream.model_dump(mode="json", by_alias=True)) == stream


@pytest.mark.parametrize("text", ["250ms", "1h", "30d", "10d", "365d"])
def test_every_duration_survives_it(text: str) -> None:
    stream = declare(**GOOD, max_lag=text)
    assert declare(**stream.model_dump(mode="json", by_alias=True)) == stream


def test_what_is_left_out_when_behind_is_said_once_and_only_where_it_is_meant() -> None:
    assert declare(**GOOD).skip_when_behind is None
    stream = declare(**GOOD, skip_when_behind={"records": 500, "keep": 500, "age": "10m"})
    assert declare(**stream.model_dump(mode="json", by_alias=True)) == stream
    assert stream.skip_when_behind is not None
    assert stream.skip_when_behind.every == timedelta(minutes=15)
    behind = {"records": 5, "keep": 5, "stale_keys": True}
    assert declare(**GOOD, mode="upsert", key=["id"], skip_when_behind=behind).skip_when_behind is not None


def test_an_upsert_declaration_says_key_and_order() -> None:
    stream = declare(**GOOD, mode="upsert", key=["kafka_key"], order_by="kafka_timestamp")
    assert stream.upsert == Upsert(("kafka_key",), "kafka_timestamp")
    assert declare(**stream.model_dump(mode="json", by_alias=True)) == stream
    assert declare(**GOOD).upsert is None


def test_a_pattern_is_pythons_and_for_the_whole_name() -> None:
    names = ["shop.orders", "shop", "myshop.orders", "shop.orders.old", "__shop.orders", "shopXorders"]
    stream = declare(**{**GOOD, "topic": None, "topics": r"^shop\.[a-z]+"})
    assert stream.matching(names) == ["shop.orders"]
    assert declare(**{**GOOD, "topic": None, "topics": ".*shop.*"}).matching(["__shop.orders"]) == []
    assert declare(**GOOD).matching(names) == ["orders"]
    assert declare(**stream.model_dump(mode="json", by_alias=True)) == stream


def test_the_ledger_knows_an_asset_by_its_group() -> None:
    assert declare(**GOOD).asset == "orders"
    assert declare(**GOOD, group="loader").asset == "loader"
