"""The corpora through Kafka, a cluster's executors and a table: the same rows and reasons as through one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any

import pytest

from kafka_assets.schema import declared
from kafka_assets.spark.session import open_session
from kafka_assets_tests.corpus import json_mutants, json_records, json_values, numbers, public, utf8
from kafka_assets_tests.corpus.dress import WAYS, record
from kafka_assets_tests.corpus.frames import BAD, decoded
from kafka_assets_tests.corpus.json_rules import RULES, Rule, made_of
from kafka_assets_tests.corpus.judge import judge
from kafka_assets_tests.integration.project import Landing
from kafka_assets_tests.spark_cluster import SparkCluster

pytestmark = pytest.mark.campaign

PARTITIONS = 4
LARGEST = 900_000
"""Bytes that a broker takes by its defaults, and some room."""
CORPORA: dict[str, tuple[str, Callable[[], Sequence[bytes | None]]]] = {
    "values": (json_values.SCHEMA, lambda: [record(c.column, c.token, way=w) for w in WAYS for c in json_values.CASES]),
    "records": (json_records.SCHEMA, lambda: [value for value, _ in json_records.RECORDS]),
    "spoiled": (json_mutants.SCHEMA, partial(json_mutants.mutants, 6_000, seed=20261120)),
    "numbers": (numbers.SCHEMA, partial(numbers.number_records, 6_000, seed=20261120)),
    "UTF-8": (utf8.SCHEMA, utf8.utf8_records),
    **({"public": (public.SCHEMA, partial(public.public_records, public.FOLDER))} if public.FOLDER else {}),
}


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_cluster_lands_and_quarantines_what_one_process_does(
    landing: Callable[..., Landing], cluster: SparkCluster, corpus: str
) -> None:
    schema, given = CORPORA[corpus]
    values = [one for one in given() if one is None or len(one) < LARGEST]
    alone = landing(schema=schema, max_bad_ratio=1.0)
    there = replace(landing(schema=schema, max_bad_ratio=1.0, topic=alone.name), spark_remote=cluster.remote)
    alone.topic(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        alone.produce(*values[partition::PARTITIONS], partition=partition)
    before = len(cluster.told.tasks)
    for made in (alone, there):
        made.land()
        assert made.sql(f"select count(*) from kafka_publication where asset = '{made.name}'") == PARTITIONS
    assert different(landed(there), landed(alone)) == []
    assert different(refused(there), refused(alone)) == []
    # And both what the judge says, who knows no Spark.
    fields = declared(schema, "json")
    good = {place(at) for at, value in enumerate(values) if judge(value, fields) is not None}
    assert places(landed(there)) == good
    assert places(refused(there)) == {place(at) for at in range(len(values))} - good
    assert {cluster.worker_of(task.executor) for task in cluster.told.tasks[before:]} == set(cluster.workers)


def test_a_value_lands_there_when_it_fits_exactly_however_it_is_spelt(cluster: SparkCluster) -> None:
    opened = open_session({"spark.remote": cluster.remote})
    wrong: list[tuple[Rule, Any]] = []
    for schema in dict.fromkeys(rule.schema for rule in RULES):
        some = [rule for rule in RULES if rule.schema == schema]
        rows = decoded(opened.session, [rule.record for rule in some], schema=schema)
        found = [made_of([] if row[BAD] is not None else [row], rule) for rule, row in zip(some, rows, strict=True)]
        wrong += [(rule, made) for rule, made in zip(some, found, strict=True) if made != rule.expected]
    opened.close()
    assert wrong == []


def place(at: int) -> tuple[int, int]:
    """The partition and offset of the value that stands there in its corpus."""
    return at % PARTITIONS, at // PARTITIONS


def places(rows: list[dict[str, Any]]) -> set[tuple[int, int]]:
    return {(row["kafka_partition"], row["kafka_offset"]) for row in rows}


def different(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """The first rows that are not the same; floats that are no numbers, and signs of zeros, count."""
    return [(one, other) for one, other in zip_longest(some, others) if repr(one) != repr(other)][:10]


def landed(made: Landing) -> list[dict[str, Any]]:
    return [without(row, "kafka_source") for row in all_of(made, made.name)]


def refused(made: Landing) -> list[dict[str, Any]]:
    rows = [row for row in all_of(made, "kafka_quarantine") if row["asset"] == made.name]
    return [without(row, "kafka_source", "asset", "slice_id", "quarantined_at") for row in rows]


def all_of(made: Landing, table: str) -> list[dict[str, Any]]:
    columns = [str(name) for _, name, *_ in made.rows(f"pragma table_info({table})")]
    rows = made.rows(f"select * from {table} order by kafka_partition, kafka_offset")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
