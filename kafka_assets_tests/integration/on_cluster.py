"""A stream that lands through a Spark cluster, and what must be in its table and ledger afterwards, for tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_assets import load_assets
from kafka_assets.assets.folder import broken_in
from kafka_assets_tests.integration.project import Landing
from kafka_assets_tests.spark_cluster import SparkCluster

PLAIN = "id BIGINT NOT NULL, note STRING"
HELPER = """
import threading
import time
from pathlib import Path

from .place import place, placed

MEETING = Path({meeting!r})
lock = threading.Lock()


def passed(batches):
    for batch in batches:
        (MEETING / place()).touch()
        while (MEETING / "wait").exists():
            time.sleep(0.05)
        with lock:
            yield placed(batch)
"""
PLACE = """
import os
import sys

import pyarrow as pa


def place():
    assert "dagster" not in sys.modules and "kafka_assets" not in sys.modules
    return next(part for part in os.getcwd().split("/") if part.startswith("worker-"))


def placed(batch):
    return batch.set_column(batch.schema.get_field_index("note"), "note", pa.array([place()] * batch.num_rows))
"""
FORMS = """
from pyspark.sql import functions as F
import pandas as pd
import pyarrow as pa

from kafka_assets import kafka_asset

from . import helper, place

MARK = "!"


@F.udf("string")
def marked(note):
    return note + MARK


@F.pandas_udf("bigint")
def doubled(number: pd.Series) -> pd.Series:
    return number * 2


def moved(records: pa.Table) -> pa.Table:
    return pa.Table.from_batches([place.placed(one) for one in records.to_batches()], schema=records.schema)


def transform(records):
    given = records.select("kafka_partition", "kafka_offset", "id", "note")
    given = given.mapInArrow(helper.passed, given.schema)
    return given.withColumns({"note": marked("note"), "twice": doubled("id")})


@kafka_asset(topic="t", target="t", schema="id BIGINT", arrow=moved)
def forms(records):
    return transform(records)
"""


class Meeting:
    """A folder by which a test and the functions that it sent to executors hear of each other."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._wait = folder / "wait"

    def workers(self) -> list[str]:
        """Those on which the stream's function has come to a batch of records."""
        return sorted(one.name for one in self.folder.glob("worker-*"))

    @contextmanager
    def kept(self) -> Generator[None]:
        """Within it the function waits, on whichever executor it runs, with its first batch in its hands."""
        self._wait.touch()
        try:
            yield
        finally:
            self._wait.unlink()


def function_of(folder: Path, meeting: Meeting) -> Callable[[Any], Any]:
    """The function of a stream's file in this folder, with helper modules beside it."""
    folder.mkdir()
    (folder / "helper.py").write_text(HELPER.format(meeting=str(meeting.folder)))
    (folder / "place.py").write_text(PLACE)
    (folder / "forms.py").write_text(FORMS)
    declared = load_assets(folder)
    assert not broken_in(declared), [str(one.error) for one in broken_in(declared)]
    return vars(sys.modules["kafka_assets_streams.forms"])["transform"]


def produced(
    landing: Callable[..., Landing], cluster: SparkCluster, *, records: int, partitions: int = 2, **attributes: Any
) -> Landing:
    """A stream on the cluster with so many records, as many in each partition, one of each thousand bad."""
    made = replace(landing(schema=PLAIN, max_bad_ratio=1.0, **attributes), spark_remote=cluster.remote)
    made.topic(partitions=partitions)
    each = records // partitions
    for partition in range(partitions):
        values = (
            b"{broken" if _is_bad(number) else b'{"id": %d, "note": "n"}' % number
            for number in range(partition * each, (partition + 1) * each)
        )
        made.produce(*values, partition=partition)
    return made


def _is_bad(number: int) -> bool:
    return number % 1000 == 7


def check_landed(made: Landing, *, records: int, partitions: int = 2) -> None:
    """Every good record once in its place, every bad one in quarantine once, and the ledger says the same."""
    good = [number for number in range(records) if not _is_bad(number)]
    bad = records - len(good)
    rows = made.rows(f"select count(*), count(distinct id), sum(id) from {made.name}")
    assert rows == [(len(good), len(good), sum(good))]
    each = records // partitions
    assert made.sql(f"select count(*) from {made.name} where id <> kafka_partition * {each} + kafka_offset") == 0
    places = "count(distinct kafka_partition || ':' || kafka_offset)"
    assert made.rows(f"select count(*), {places} from kafka_quarantine") == [(bad, bad)]
    counts = "count(*), sum(records_read), sum(landed), sum(quarantined), sum(rows_written)"
    booked = made.rows(f"select {counts} from kafka_publication where state = 'committed'")
    assert booked == [(partitions, records, len(good), bad, len(good))]
    assert made.sql("select sum(committed_through) from kafka_committed") == records
    assert made.sql("select count(*) from kafka_publication where state <> 'committed'") == 0
    assert made.sql("select count(*) from kafka_gap") == 0


def check_functions(made: Landing) -> set[str]:
    """Each row has what the functions of the stream's file made; the workers that made it."""
    assert made.sql(f"select count(*) from {made.name} where twice <> 2 * id or note not like 'worker-%!'") == 0
    return {str(note).removesuffix("!") for (note,) in made.rows(f"select distinct note from {made.name}")}


@contextmanager
def meanwhile(does: Callable[[], object]) -> Generator[None]:
    """`does` runs beside the block; what it raises is raised at the end."""
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(does)
        yield
        doing.result()
