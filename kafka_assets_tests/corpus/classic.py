"""The corpus on a classic Spark session, in a process of its own: its results, pickled, to the file named."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

from kafka_assets.slices import Piece, SliceKey
from kafka_assets.streams import Stream
from kafka_assets_tests.corpus.dress import WAYS, record
from kafka_assets_tests.corpus.frames import as_one, decoded, raw_frame
from kafka_assets_tests.corpus.json_records import RECORDS
from kafka_assets_tests.corpus.json_records import SCHEMA as RECORD_SCHEMA
from kafka_assets_tests.corpus.json_values import CASES, SCHEMA


def main(target: Path) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.memory", "2g").getOrCreate()
    values = decoded(spark, [record(case.column, case.token, way=way) for way in WAYS for case in CASES], schema=SCHEMA)
    records = decoded(spark, [value for value, _ in RECORDS], schema=RECORD_SCHEMA)
    target.write_bytes(pickle.dumps((values, records, chunks(spark))))
    spark.stop()


def chunks(spark: Any) -> list[Any]:
    """The records as chunks of both roads: what was seen and what is bad; and what Spark still holds afterwards."""
    from kafka_assets.spark.chunks import fetch_landed, plain_schema
    from kafka_assets.spark.transformed import fetch_transformed

    stream = Stream(name="s", topic="orders", target="s", schema=RECORD_SCHEMA)
    piece = Piece("orders", 3, 0, len(RECORDS), (SliceKey("orders", 1, 3, 0, len(RECORDS)),))

    def read(_: Any) -> Any:
        return raw_frame(spark, [value for value, _ in RECORDS])

    schema = plain_schema(stream)
    plain = as_one(fetch_landed([piece], read=read, stream=stream))
    made = as_one(
        fetch_transformed(
            [piece],
            read=read,
            stream=stream,
            transform=lambda some: some,
            schema=schema,
            room=1 << 24,
        )
    )
    held = spark.sparkContext._jsc.sc().getRDDStorageInfo() if hasattr(spark, "_jsparkSession") else []
    return [(one.rows.to_pylist(), one.seen, one.bad) for one in (plain, made)] + [len(held)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
