"""What a stream declares its records to be, as Spark's types."""

from __future__ import annotations

from functools import lru_cache

from pyspark.errors import PySparkException
from pyspark.sql import types as T  # noqa: N812 - the name everybody knows it by

from kafka_assets import schema as texts
from kafka_assets.errors import StreamError


@lru_cache(maxsize=256)
def declared(schema: str, format: str) -> T.StructType:
    """The declared fields, or a StreamError that says what is wrong with them, before any work."""
    texts.declared(schema, format)
    try:
        parsed = T.DataType.fromDDL(schema)
    except PySparkException as wrong:
        message = " ".join((wrong.getMessage() or str(wrong)).split())
        raise StreamError(
            f"the schema {schema!r} cannot be read by Spark",
            why=message[:300],
            cure='write a column list, for example "id BIGINT NOT NULL, amount DECIMAL(12,2), placed_at TIMESTAMP"',
        ) from wrong
    assert isinstance(parsed, T.StructType)
    return parsed
