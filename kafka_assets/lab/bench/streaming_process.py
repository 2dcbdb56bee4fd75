"""Structured Streaming and its JDBC sink, as many build it: `python -m kafka_assets.lab.bench.streaming_process`.

One classic local session for all landings that its standard input asks for, a line each. It prints "ready" when the
session is there, and of each landing the seconds from the query's start to its end.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafka_assets.lab.bench.spark_function import paid
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.spark.session import open_session


def land(session: SparkSession, job: dict[str, Any]) -> float:
    """Everything that is in the topic now, in one query that ends by itself."""
    records = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", job["topic"])
        .option("startingOffsets", "earliest")
        .load()
    )
    rows = records.select(
        f.lit(1).cast("bigint").alias(SOURCE),
        f.col("partition").alias(PARTITION),
        f.col("offset").alias(OFFSET),
        f.from_json(f.col("value").cast("string"), job["schema"]).alias("record"),
    ).select(SOURCE, PARTITION, OFFSET, "record.*")
    if job["products"] is not None:
        rows = paid(rows, job["products"])

    def write(batch: DataFrame, number: int) -> None:
        batch.write.format("jdbc").mode("append").options(**job["jdbc"], dbtable=job["table"]).save()

    with tempfile.TemporaryDirectory(prefix="kafka_assets_scratch_") as checkpoints:
        began = time.monotonic()
        query = (
            rows.writeStream.foreachBatch(write)
            .option("checkpointLocation", checkpoints)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return time.monotonic() - began


def main() -> None:
    config: dict[str, str] = json.loads(sys.stdin.readline())
    session = open_session(config).session
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(land(session, json.loads(line))), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
