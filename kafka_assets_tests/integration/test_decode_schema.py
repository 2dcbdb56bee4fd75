"""Spark reads the texts that `kafka_assets.schema` takes, and as the same types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_assets import schema
from kafka_assets_tests.corpus.json_mutants import SCHEMA as FUZZED
from kafka_assets_tests.corpus.json_values import SCHEMA as VALUES
from kafka_assets_tests.corpus.numbers import SCHEMA as NUMBERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = """
    `a b` byte NOT NULL COMMENT 'it\\'s', b: short, c Integer, d long, e real, f dec, g numeric(5), h decimal( 12 , 2 ),
    i timestamp_ltz, `j``k` STRUCT<x: INT NOT NULL COMMENT 'c', y ARRAY<MAP<STRING,DATE>>>, l TIMESTAMP_NTZ, m BINARY
"""


@pytest.mark.parametrize("text", [WAYS, FUZZED, VALUES, NUMBERS, "struct<a: int, b: string>"])
def test_both_read_the_same(spark: SparkSession, text: str) -> None:
    from pyspark.sql import types as T  # noqa: N812 - the name everybody knows it by
    from pyspark.sql.pandas.types import to_arrow_schema

    ours, sparks = schema.declared(text, "json"), T.DataType.fromDDL(text)
    assert isinstance(sparks, T.StructType)
    assert schema.landed_schema(ours) == schema.landed_schema(to_arrow_schema(sparks, timezone="UTC"))
    assert [field.nullable for field in ours] == [field.nullable for field in sparks]
