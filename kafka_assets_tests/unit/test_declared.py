"""A schema's text becomes Arrow fields, or is refused with the place and the cure, when the stream is declared."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_assets.errors import StreamError
from kafka_assets.schema import comment_of, declared, spelled


@pytest.mark.parametrize(
    ("schema", "format", "said"),
    [
        ("id BIGIN", "json", ["id BIGIN", "BIGIN", "column list"]),
        ("id", "json", ["id", "column list"]),
        ("id BIGINT,", "json", ["column list"]),
        ("id DECIMAL(39,2)", "json", ["DECIMAL(39,2)"]),
        ("a ARRAY<INT", "json", ["'>'"]),
        ("id BIGINT NOT", "json", ["NOT"]),
        ("id BIGINT ; x", "json", ["';"]),
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
def test_a_schema_is_refused_with_its_place_and_a_cure(schema: str, format: str, said: list[str]) -> None:
    with pytest.raises(StreamError) as refused:
        declared(schema, format)
    for words in said:
        assert words in str(refused.value)
    assert refused.value.cure


def test_all_ways_to_write_a_type_are_read() -> None:
    fields = declared(
        "`a b` byte NOT NULL COMMENT 'it\\'s', b: short, c Integer, d long, e real, f dec, g numeric(5), "
        "h decimal( 12 , 2 ), i timestamp_ltz, `j``k` STRUCT<x: INT NOT NULL COMMENT 'c', y ARRAY<MAP<STRING,DATE>>>",
        "json",
    )
    assert fields.names == ["a b", "b", "c", "d", "e", "f", "g", "h", "i", "j`k"]
    assert fields.types[:9] == [
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.decimal128(10, 0), pa.decimal128(5, 0),
        pa.decimal128(12, 2), pa.timestamp("us", "UTC"),
    ]  # fmt: skip
    assert [field.nullable for field in fields] == [False] + [True] * 9
    assert not fields.field(9).type.field("x").nullable
    assert declared("struct<a: int, b: string>", "json").names == ["a", "b"]


def test_what_the_ui_shows_of_a_column() -> None:
    fields = declared(
        "`a,``b` STRING NOT NULL COMMENT 'who, and it\\'s why', amount decimal(12, 2), "
        'c ARRAY<STRUCT<x: INT, y: STRING>>, placed_at: TIMESTAMP COMMENT "two\nlines"',
        "json",
    )
    assert [(one.name, spelled(one.type), one.nullable, comment_of(one)) for one in fields] == [
        ("a,`b", "STRING", False, "who, and it's why"),
        ("amount", "DECIMAL(12,2)", True, None),
        ("c", "ARRAY<STRUCT<X:INT,Y:STRING>>", True, None),
        ("placed_at", "TIMESTAMP", True, "two\nlines"),
    ]
