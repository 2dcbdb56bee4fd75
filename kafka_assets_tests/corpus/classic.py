"""The corpus on a classic Spark session, in a process of its own: its results, pickled, to the file named."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from kafka_assets_tests.corpus.dress import WAYS, record
from kafka_assets_tests.corpus.frames import decoded
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
    target.write_bytes(pickle.dumps((values, records)))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
