"""A function's records are read once, whatever it makes of them, and all of them are told of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from kafka_assets.records import Chunk, Seen
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.transformed import fetch_transformed
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.corpus.frames import RAW
from kafka_assets_tests.integration.project import Landing

Function = Callable[[DataFrame], DataFrame]
COUNT = 90
WHOLE = {"of records": declare(name="s", topic="t", target="s", schema="id BIGINT")}
WHOLE["of a slice"] = WHOLE["of records"].model_copy(update={"scope": "slice"})


def joined(records: DataFrame) -> DataFrame:
    other = records.select(F.col("id").alias("same"))
    return records.join(other, records["id"] == other["same"]).drop("same")


def counted(records: DataFrame) -> DataFrame:
    return records.where(F.lit(records.count()) == F.lit(COUNT - COUNT // 9))


FUNCTIONS: dict[str, tuple[Function, int]] = {
    "as they come": (lambda records: records, 80),
    "twice": (lambda records: records.where("id < 30").unionByName(records.where("id >= 30")), 80),
    "joined with itself": (joined, 80),
    "in order": (lambda records: records.orderBy(F.desc("id")), 80),
    "dealt out": (lambda records: records.repartition(3), 80),
    "by one task": (lambda records: records.coalesce(1), 80),
    "the first few": (lambda records: records.limit(3), 3),
    "none": (lambda records: records.where("id < 0"), 0),
    "known to be none": (lambda records: records.where("false"), 0),
    "counted before": (counted, 80),
}


def marked(spark: SparkSession, partitions: int, marks: Path) -> DataFrame:
    """Records of which every ninth is bad; each reading of a partition is a line of a file."""
    columns = [
        "CAST('k' AS BINARY) AS key",
        "CAST(IF(id % 9 = 0, '{cut', concat('{\"id\":', id, '}')) AS BINARY) AS value",
        "'t' AS topic",
        "0 AS partition",
        "id AS offset",
        "timestamp_millis(1000 + id) AS timestamp",
        "0 AS timestampType",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    ]
    file = str(marks)

    def mark(batches: Iterator[Any]) -> Iterator[Any]:
        with open(file, "a") as lines:  # noqa: PTH123 - on a worker
            lines.write("read\n")
        yield from batches

    return spark.range(0, COUNT, 1, partitions).selectExpr(*columns).mapInArrow(mark, RAW)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("stream", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize(("function", "rows"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_records_are_read_once_and_all_are_told_of(
    spark: SparkSession, tmp_path: Path, partitions: int, stream: Stream, function: Function, rows: int
) -> None:
    marks, key = tmp_path / "marks", SliceKey("t", 1, 0, 0, COUNT)
    columns = ["id"] if stream.scope == "slice" else ["id", "kafka_partition", "kafka_offset"]
    kinds = {"id": pa.int64(), "kafka_partition": pa.int32(), "kafka_offset": pa.int64()}
    chunks: list[Chunk] = list(
        fetch_transformed(
            [Piece("t", 0, 0, COUNT, (key,))],
            read=lambda _: marked(spark, partitions, marks),
            stream=stream,
            transform=function,
            schema=pa.schema([pa.field(name, kinds[name]) for name in columns]),
            room=1 << 20,
        )
    )
    assert marks.read_text() == "read\n" * partitions
    seen = sum((part for chunk in chunks for part in chunk.seen.values()), Seen())
    assert (seen.read, seen.bad, sum(len(chunk.bad) for chunk in chunks)) == (COUNT, 10, 10)
    found = [at for chunk in chunks for at in chunk.rows.column("id").to_pylist()]
    assert len(found) == rows and None not in found
    if rows == 80:
        assert sorted(found) == [at for at in range(COUNT) if at % 9]


@pytest.mark.parametrize("way", [{"scope": "slice"}, {}, {"mode": "upsert", "key": ["id"]}], ids=str)
def test_what_one_task_reads_lands_by_a_function(landing: Callable[..., Landing], way: dict[str, Any]) -> None:
    stream = landing(transform=lambda records: records, schema="id BIGINT, note STRING", max_bad_ratio=1.0, **way)
    stream.topic()
    stream.produce(b'{"id": 1}', b"{cut", b'{"id": 2, "note": "n"}', b'{"note": "no key"}')
    stream.land()
    bad = [(1,), (3,)] if "key" in way else [(1,)]
    assert stream.rows("select kafka_offset from kafka_quarantine order by 1") == bad
    rows = [(1, None), (2, "n")] if "key" in way else [(None, "no key"), (1, None), (2, "n")]
    assert stream.rows(f"select id, note from {stream.name} order by id is not null, id") == rows
    books = "select records_read, landed, quarantined, holes from kafka_publication"
    landed = len(rows)
    assert stream.rows(books) == [(4, landed, len(bad), 0)]


def test_a_declared_column_may_have_any_name_where_a_key_is_missing(landing: Callable[..., Landing]) -> None:
    schema = "id BIGINT, _offset BIGINT, _partition BIGINT"
    stream = landing(transform=lambda records: records, schema=schema, mode="upsert", key=["id"], max_bad_ratio=1.0)
    stream.topic()
    stream.produce(b'{"id": 1, "_offset": 5}', b'{"_offset": 6}')
    stream.land()
    assert stream.rows(f"select id, _offset from {stream.name}") == [(1, 5)]
    assert stream.rows("select kafka_offset, value from kafka_quarantine") == [(1, b'{"_offset": 6}')]
