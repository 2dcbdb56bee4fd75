"""The Spark road: `kafka-assets run` as a person or cron starts it, and the clock of its publishing transactions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml
from sqlalchemy import Engine, select

from kafka_assets.audit.scratch import scratch_environment
from kafka_assets.errors import ServiceError
from kafka_assets.lab.bench.course import Course, Landing, new_name
from kafka_assets.lab.bench.table_content import Content
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.engine import read
from kafka_assets.settings import Settings

PUBLISH, COMMAND = "publish clock", "whole command"
BEFORE, AFTER = "before its first transaction", "after its last COMMIT"
_COMMAND = [sys.executable, "-c", "from kafka_assets.cli import main; main()", "run", "--until-caught-up", "--json"]
_FUNCTION = """\
from pyspark.sql import DataFrame

from kafka_assets import kafka_asset
from kafka_assets.lab.bench.spark_function import paid


@kafka_asset(topic={topic!r}, target={asset!r}, schema={schema!r})
def {asset}(records: DataFrame) -> DataFrame:
    return paid(records, {products!r})
"""
_NOT_OURS = {"DAGSTER_HOME", "PYTHONDONTWRITEBYTECODE"}
"""What an environment may have, and a command that is timed may not: what was installed has its bytecode, and without
it each command would compile this package, in 0.2 s."""
_SAID = 2_000
"""Characters of what a failed command said last."""


@dataclass(frozen=True)
class SparkRoad:
    """A project in a folder of its own, whose one stream is another at each landing.

    `merged`: what an upsert table must have; without it, the stream appends.
    """

    settings: Settings
    merged: Content | None = None

    @property
    def name(self) -> str:
        return "Spark road" if self.merged is None else "Spark road, upsert"

    def land(self, course: Course) -> Landing:
        """Seconds from the command's start to its end, and those of its publishing transactions alone."""
        asset = new_name()
        self._declare(course, asset)
        environment = {
            **{name: value for name, value in os.environ.items() if name not in _NOT_OURS},
            **scratch_environment(self.settings, course.engine, self.settings.project),
        }
        began = time.time()  # the ledger's transactions have their times by this clock, too
        done = subprocess.run(_COMMAND, env=environment, capture_output=True, text=True, check=False)
        ended = time.time()
        if done.returncode != 0:
            raise ServiceError(
                f"`kafka-assets run` ended with {done.returncode}",
                why=f"{done.stdout[-_SAID:]}\n{done.stderr[-_SAID:]}".strip(),
                cure="correct it, and run the benchmark again",
            )
        published = publishing_spans(course.engine, asset=asset)
        clocks = {PUBLISH: sum(to - since for since, to in published), COMMAND: ended - began}
        fixed = {BEFORE: published[0][0] - began, AFTER: ended - published[-1][1]}
        return Landing(asset, clocks, self.merged, fixed)

    def _declare(self, course: Course, asset: str) -> None:
        folder = self.settings.streams
        folder.mkdir(parents=True, exist_ok=True)
        if course.products is not None:
            schema, products = course.records.shape.schema, str(course.products)
            source = _FUNCTION.format(asset=asset, topic=course.topic, schema=schema, products=products)
            Path(folder, "bench.py").write_text(source, encoding="utf-8")
            return
        attributes = {
            "name": asset, "topic": course.topic, "target": asset, "schema": course.records.shape.schema,
            **({} if self.merged is None else {"mode": "upsert", "key": ["id"]}),
        }  # fmt: skip
        declared = {"type": "kafka_assets.KafkaTopic", "attributes": attributes}
        Path(folder, "bench.yaml").write_text(yaml.safe_dump(declared), encoding="utf-8")


def publishing_spans(engine: Engine, *, asset: str) -> list[tuple[float, float]]:
    """Each transaction's beginning and its COMMIT, in seconds since 1970; Spark's reading and decoding lie between.

    Each slice tells its transaction's time, and no two transactions of an asset lie over each other.
    """
    p = t.publication.c
    slices = select(p.committed_at, p.duration_ms).where(p.asset == asset).order_by(p.committed_at)
    with read(engine) as connection:
        found = [(row.committed_at.timestamp(), row.duration_ms / 1000) for row in connection.execute(slices)]
    spans: list[tuple[float, float]] = []
    for committed, took in found:
        began = committed - took
        if spans and began < spans[-1][1]:
            began = min(began, spans.pop()[0])
        spans.append((began, committed))
    return spans
