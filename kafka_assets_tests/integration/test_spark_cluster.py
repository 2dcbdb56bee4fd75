"""Landing through a real Spark cluster: the same rows as through one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kafka_assets_tests.integration.on_cluster import Meeting, check_functions, check_landed, function_of, produced
from kafka_assets_tests.integration.project import Landing
from kafka_assets_tests.spark_cluster import SparkCluster

RECORDS = 4_000


def test_functions_of_every_form_reach_the_executors_of_a_cluster(
    landing: Callable[..., Landing], cluster: SparkCluster, tmp_path: Path
) -> None:
    transform = function_of(tmp_path / "defs", Meeting(tmp_path / "meeting"))
    made = produced(landing, cluster, records=RECORDS, transform=transform)
    made.land()
    check_landed(made, records=RECORDS)
    assert check_functions(made) == set(cluster.workers)
