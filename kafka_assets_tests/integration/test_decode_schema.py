"""A schema that cannot be decoded is refused before any work, with the place and the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_assets.errors import StreamError
from kafka_assets_tests.corpus.frames import raw_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("schema", "format", "said"),
    [
        ("id BIGIN", "json", ["id BIGIN", "BIGIN", "column list"]),
        ("id", "json", ["id", "column list"]),
        ("BIGINT", "json", ["without a name"]),
        ("", "json", ["no field"]),
        ("kafka_key STRING", "json", ["kafka_key", "ours"]),
        ("Kafka_Offset BIGINT", "json", ["Kafka_Offset"]),
        ("_kafka_bad STRING", "json", ["_kafka_bad"]),
        ("id BIGINT, ID STRING", "json", ["'ID'", "twice"]),
        ("a STRUCT<x: INT, X: INT>", "json", ["'a.X'", "twice"]),
        ("name VARCHAR(10)", "json", ["name", "VARCHAR(10)", "supported", "STRING"]),
        ("name STRING COLLATE UTF8_LCASE", "json", ["name", "supported"]),
        ("v VARIANT", "json", ["'v'", "VARIANT"]),
        ("i INTERVAL DAY", "json", ["'i'", "INTERVAL"]),
        ("a ARRAY<STRUCT<t: TIME>>", "json", ["'a[].t'", "TIME"]),
        ("m MAP<INT, STRING>", "json", ["'m'", "MAP with STRING keys"]),
        ("id BIGINT", "xml", ["xml", "json, string or bytes"]),
        ("a STRING, b STRING", "string", ["exactly one field", "STRING"]),
        ("a BINARY", "string", ["exactly one field", "STRING"]),
        ("a STRING", "bytes", ["exactly one field", "BINARY"]),
    ],
)
def test_a_schema_is_refused_with_its_place_and_a_cure(
    spark: SparkSession, schema: str, format: str, said: list[str]
) -> None:
    from kafka_assets.spark.decode import decode

    with pytest.raises(StreamError) as refused:
        decode(raw_frame(spark, [b"{}"]), format=format, schema=schema)
    for words in said:
        assert words in str(refused.value)
    assert refused.value.cure
