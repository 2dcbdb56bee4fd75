"""Landing through a real Spark cluster: the same rows as through one process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_assets import load_assets
from kafka_assets.assets.folder import broken_in
from kafka_assets_tests.integration.project import Landing
from kafka_assets_tests.spark_cluster import SparkCluster, spark_cluster

pytestmark = pytest.mark.campaign

HELPER = """
import threading

import pyarrow as pa

from .place import place

lock = threading.Lock()


def numbered(batches):
    for batch in batches:
        with lock:
            yield batch.set_column(batch.schema.get_field_index("note"), "note", pa.array([place()] * batch.num_rows))
"""
PLACE = """
import os
import sys


def place():
    assert "dagster" not in sys.modules and "kafka_assets" not in sys.modules
    return f"{os.getcwd()} {os.getppid()}"
"""
FORMS = """
from pyspark.sql import functions as F
import pandas as pd

from kafka_assets import kafka_asset

from . import helper

MARK = "!"


@F.udf("string")
def marked(note):
    return note + MARK


@F.pandas_udf("bigint")
def doubled(number: pd.Series) -> pd.Series:
    return number * 2


def transform(records):
    given = records.select("kafka_partition", "kafka_offset", "id", "note")
    return given.mapInArrow(helper.PASS, given.schema).withColumns({"note": marked("note"), "twice": doubled("id")})


@kafka_asset(topic="t", target="t", schema="id BIGINT")
def forms(records):
    return transform(records)
"""
RECORDS = 60_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def transform(tmp_path: Path) -> Callable[..., Any]:
    """The function of a stream's file, which passes all records through one of its helper's."""

    def load(passes: str) -> Any:
        defs = tmp_path / "defs"
        defs.mkdir()
        (defs / "helper.py").write_text(HELPER)
        (defs / "place.py").write_text(PLACE)
        (defs / "forms.py").write_text(FORMS.replace("PASS", passes))
        declared = load_assets(defs)
        assert not broken_in(declared), [str(one.error) for one in broken_in(declared)]
        return vars(sys.modules["kafka_assets_streams.forms"])["transform"]

    return load


def produced(landing: Callable[..., Landing], cluster: SparkCluster, transform: Any) -> Landing:
    """A stream on the cluster with `RECORDS` records in two partitions, one of each thousand bad."""
    made = replace(
        landing(schema="id BIGINT NOT NULL, note STRING", max_bad_ratio=1.0, transform=transform),
        spark_remote=cluster.remote,
    )
    made.topic(partitions=2)
    for partition in range(2):
        values = (
            b"{broken" if number % 1000 == 7 else b'{"id": %d, "note": "n"}' % number
            for number in range(partition * RECORDS // 2, (partition + 1) * RECORDS // 2)
        )
        made.produce(*values, partition=partition)
    return made


def landed(made: Landing) -> None:
    """Every good record once, with what the functions made of it, and every bad one in quarantine."""
    bad = RECORDS // 1000
    [(count, ids, total, twice)] = made.rows(
        f"select count(*), count(distinct id), sum(id), sum(twice) from {made.name}"
    )
    assert (count, ids) == (RECORDS - bad, RECORDS - bad)
    assert total == sum(number for number in range(RECORDS) if number % 1000 != 7)
    assert twice == 2 * total
    assert made.sql("select count(*) from kafka_quarantine") == bad
    assert made.sql("select count(*) from kafka_gap") == 0
    assert made.sql(f"select count(*) from {made.name} where note not like '%!'") == 0


def test_functions_of_every_form_reach_the_executors_of_a_cluster(
    landing: Callable[..., Landing], cluster: SparkCluster, transform: Callable[..., Any]
) -> None:
    made = produced(landing, cluster, transform("numbered"))
    made.land()
    landed(made)
    places = {str(place) for (place,) in made.rows(f"select distinct note from {made.name}")}
    folders = {word for place in places for word in place.split("/") if word.startswith("worker-")}
    assert folders == {"worker-1", "worker-2"}, places
