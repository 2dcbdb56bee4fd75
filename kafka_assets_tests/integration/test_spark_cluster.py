"""Landing through a real Spark cluster: the same rows as through one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka

from kafka_assets.broker.connection import Connection
from kafka_assets.spark.session import open_session
from kafka_assets.spark.worker_python import require_fit
from kafka_assets.spark.worker_reach import brokers_reached
from kafka_assets_tests.integration.on_cluster import Meeting, check_functions, check_landed, function_of, produced
from kafka_assets_tests.integration.project import Landing
from kafka_assets_tests.spark_cluster import SparkCluster

RECORDS = 4_000


def test_executors_say_what_they_have_and_which_brokers_they_reach(cluster: SparkCluster, broker: str) -> None:
    opened = open_session({"spark.remote": cluster.remote})
    try:
        assert require_fit(opened.session).confluent_kafka == confluent_kafka.__version__
        assert brokers_reached(opened.session, Connection(broker), seconds=5) == [broker]
    finally:
        opened.close()


def test_functions_of_every_form_reach_the_executors_of_a_cluster(
    landing: Callable[..., Landing], cluster: SparkCluster, tmp_path: Path
) -> None:
    transform = function_of(tmp_path / "defs", Meeting(tmp_path / "meeting"))
    made = produced(landing, cluster, records=RECORDS, transform=transform)
    made.land()
    check_landed(made, records=RECORDS)
    assert check_functions(made) == set(cluster.workers)
