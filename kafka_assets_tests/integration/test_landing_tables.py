"""From a topic to tables that change, and to rows of whole slices: real broker, real Spark, SQLite."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from kafka_assets import kafka_asset
from kafka_assets.assets.resources import KafkaResource
from kafka_assets.broker.produce import Record, transaction
from kafka_assets.sinks.steps import STEPS
from kafka_assets.slices import Piece
from kafka_assets.testing import run_asset
from kafka_assets_tests.integration.project import Landing, failure_of

Declare = Callable[..., Landing]


def test_a_second_declaration_with_one_more_field_widens_the_table(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 10)
    stream.land()
    stream.produce(b'{"id": 10, "note": "n", "price": 1.25}')
    wider = stream.declared_again(schema="id BIGINT NOT NULL, note STRING, price DECIMAL(12,2)")
    [request] = wider.tick().requests
    assert "no column 'price'" in failure_of(wider.run(request))
    evolving = wider.declared_again(evolve="add_columns")
    assert evolving.run(request).success
    held = f"select count(*), count(price), max(price) from {stream.name}"
    assert stream.rows(held) == [(11, 1, 1.25)]
    # A run of the earlier code that comes late finds a column that it does not know, and lands.
    assert stream.replay(stream.keys()[0]).success
    assert stream.rows(held) == [(11, 1, 1.25)]


def totals(records: DataFrame) -> DataFrame:
    """Looks across records, and keeps nothing of their places."""
    return records.groupBy("note").agg(F.count("*").alias("records"), F.sum("id").alias("total"))


def test_a_whole_slice_is_aggregated_and_a_replay_replaces_its_rows(landing: Declare) -> None:
    stream = landing(scope="slice", slices={"max_records": 40, "max_delay": "0ms"}, transform=totals)
    stream.topic()
    stream.produce(*(b'{"id": %d, "note": "%d"}' % (number, number % 3) for number in range(79)), b"{cut")
    stream.land()
    held = f"select kafka_offset, note, records, total from {stream.name} order by kafka_offset, note"
    expected = [
        (start, str(note), len(ids), sum(ids))
        for start in (0, 40)
        for note in range(3)
        for ids in [[number for number in range(start, min(start + 40, 79)) if number % 3 == note]]
    ]
    assert stream.rows(held) == expected
    counts = "select records_read, landed, filtered, quarantined, rows_written from kafka_publication order by id"
    assert stream.rows(counts) == [(40, 40, 0, 0, 3), (40, 39, 0, 1, 3)]
    prints = stream.rows("select fingerprint from kafka_publication order by id")
    for key in list(stream.keys()):
        result = stream.replay(key)
        assert result.success
        assert "other_records" not in _metadata(result)
    assert stream.rows(held) == expected
    assert stream.rows("select fingerprint from kafka_publication order by id") == prints
    assert stream.sql("select count(*) from kafka_gap") == 0


@pytest.mark.parametrize(
    ("transform", "rows"),
    [
        (lambda records: records.limit(1), 1),
        (lambda records: records.where("false"), 0),
        (lambda records: records.join(records.select("id"), "id"), 20),
        (lambda records: records.union(records), 40),
    ],
    ids=["stops early", "wants nothing", "uses its records twice", "doubles them"],
)
def test_every_record_is_counted_whatever_the_transform_does(
    landing: Declare, transform: Callable[[DataFrame], DataFrame], rows: int
) -> None:
    stream = landing(scope="slice", transform=transform)
    stream.topic()
    stream.produce_ids(0, 20)
    stream.land()
    assert stream.rows("select records_read, holes, rows_written from kafka_publication") == [(20, 0, rows)]
    assert stream.sql(f"select count(*) from {stream.name}") == rows


def test_a_slice_that_is_kept_is_its_own_session_s_where_a_process_has_several(
    landing: Declare, spark: SparkSession
) -> None:
    # The client takes it for the active session's.
    type(spark)._set_default_and_active_session(spark)  # type: ignore[attr-defined]
    stream = landing(scope="slice", transform=lambda records: records.limit(3))
    stream.topic()
    stream.produce_ids(0, 20)
    stream.land()
    assert stream.rows("select records_read, holes, rows_written from kafka_publication") == [(20, 0, 3)]


def nothing_known(records: DataFrame) -> DataFrame:
    """An inner join with a lookup table that is still empty, which Spark sees when the query runs."""
    known = records.sparkSession.range(3).where("id % 7 = 6")
    return records.join(known, "id")


@pytest.mark.parametrize(
    ("transform", "holes"),
    [
        (lambda records: records.where("false"), 0),
        (lambda records: records.where("false"), 1),
        (lambda records: records.join(records.sparkSession.createDataFrame([], "id BIGINT"), "id"), 0),
        (nothing_known, 0),
        (lambda records: nothing_known(records.hint("shuffle_hash")), 0),
    ],
    ids=["wants nothing", "with holes", "joins nothing", "joins what turns out to be nothing", "shuffled first"],
)
def test_records_of_which_spark_knows_that_none_lands_are_counted_all_the_same(
    landing: Declare, transform: Callable[[DataFrame], DataFrame], holes: int
) -> None:
    stream = landing(transform=transform, max_bad_ratio=1.0)
    stream.topic()
    stream.produce_ids(0, 20)
    stream.produce(b"{cut")
    if holes:
        with transaction(stream.connection, stream.name, transactional_id=stream.name) as writing:
            writing.produce([Record(value=b'{"id": 20, "note": "n"}', partition=0)])
            writing.commit()
        stream.settle()
    stream.land()
    counts = "select records_read, filtered, quarantined, holes, rows_written from kafka_publication"
    assert stream.rows(counts) == [(21 + holes, 20 + holes, 1, holes, 0)]
    [[first]] = stream.rows("select fingerprint from kafka_publication")
    everything = stream.declared_again(name=f"{stream.name}_all", target=f"{stream.name}_all", transform=None)
    everything.land()
    assert stream.rows("select distinct fingerprint from kafka_publication") == [(first,)]


def test_a_map_lands_as_an_object(landing: Declare) -> None:
    stream = landing(transform=lambda records: records.selectExpr("*", "map(note, array(map(id, note))) AS notes"))
    stream.topic()
    stream.produce_ids(0, 1)
    stream.land()
    assert stream.rows(f"select notes from {stream.name}") == [('{"n":[[[0,"n"]]]}',)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("parse_json('1')", "VARIANT"),
        ("array(parse_json('1'))", r"VARIANT"),
        ("named_struct('at', TIME'12:00:00')", r"TIME\(6\)"),
        ("INTERVAL '1' DAY", "INTERVAL DAY"),
        ("map('a', INTERVAL '1' YEAR)", "INTERVAL YEAR"),
        ("make_interval(1)", "INTERVAL"),
    ],
)
def test_a_type_that_no_value_lands_as_is_refused_with_the_cure(landing: Declare, value: str, kind: str) -> None:
    stream = landing(transform=lambda records: records.selectExpr("*", f"{value} AS odd"))
    stream.topic()
    stream.produce_ids(0, 1)
    [request] = stream.tick().requests
    assert re.search(rf"gives 'odd.*' as {kind}.*cast it", failure_of(stream.run(request)))


def test_the_fingerprint_is_of_the_records_however_they_are_cut_and_whoever_reads_them(
    landing: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 100)
    stream.produce(*[b'{"id": 1, "note": "twin"}'] * 2)
    stream.land()
    [[before]] = stream.rows("select fingerprint from kafka_publication")
    assert len(before) == 16
    monkeypatch.setattr("kafka_assets.assets.landing.QUERY_OFFSETS", 40)
    assert stream.replay(stream.keys()[0]).success
    assert stream.rows("select fingerprint from kafka_publication") == [(before,)]
    whole = stream.declared_again(scope="slice", name=f"{stream.name}_whole", target=f"{stream.name}_whole")
    whole.land()
    assert stream.rows("select fingerprint from kafka_publication") == [(before,)] * 2


def test_a_replay_of_other_records_is_told(landing: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 10)
    stream.land()
    other = f"{stream.name}_other"
    stream.topic(name=other)
    stream.produce_ids(0, 3, topic=other)
    stream.produce(b'{"id": 4, "note": "n"}', topic=other)
    stream.produce_ids(4, 10, topic=other)
    read = KafkaResource.read

    def changed(kafka: KafkaResource, spark: Any, pieces: Sequence[Piece], **more: Any) -> Any:
        return read(kafka, spark, [replace(one, topic=other) for one in pieces], **more)

    monkeypatch.setattr(KafkaResource, "read", changed)
    result = stream.replay(stream.keys()[0])
    assert result.success
    assert _metadata(result)["other_records"].value is True


def test_a_key_says_where_the_time_of_its_run_went(landing: Declare) -> None:
    stream = landing()
    stream.topic()
    stream.produce_ids(0, 10)
    [request] = stream.tick().requests
    spent = _seconds(stream.run(request))
    assert set(spent) == {f"seconds_{step}" for step in STEPS if step != "merge"}
    assert all(isinstance(seconds, float) and seconds >= 0 for seconds in spent.values())
    assert spent["seconds_first_chunk"] > 0
    assert _seconds(stream.run(request)) == {}, "it had nothing to do"


def test_the_function_alone_is_given_one_slice_at_a_time(spark: SparkSession) -> None:
    asset = kafka_asset(topic="t", target="t", schema="id BIGINT NOT NULL, note STRING", scope="slice")(totals)
    given = [{"id": number, "note": "ab"[number % 2]} for number in range(10)]
    rows = run_asset(asset, [*given, b"{cut"], spark=spark).orderBy("note").collect()
    assert [(row.note, row.records, row.total) for row in rows] == [("a", 5, 20), ("b", 5, 25)]


def _metadata(result: Any) -> Any:
    [event] = result.get_asset_materialization_events()
    return event.materialization.metadata


def _seconds(result: Any) -> dict[str, object]:
    return {name: entry.value for name, entry in _metadata(result).items() if name.startswith("seconds_")}
