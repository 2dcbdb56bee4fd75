"""The examples of docs/testing.md, run as they stand there, on the services of the tests."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafka_assets import devstack
from kafka_assets.errors import StreamError
from kafka_assets.testing import Services, local_services, run_asset

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def example(number: int, folder: Path) -> ModuleType:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    path = folder / f"example_{number}.py"
    path.write_text(blocks[number], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"docs_testing_{number}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examples_in(module: ModuleType) -> list[Any]:
    return [function for name, function in vars(module).items() if name.startswith("test_")]


def test_the_examples_of_testing_your_own_asset_pass(spark: SparkSession, tmp_path: Path) -> None:
    module = example(1, tmp_path)
    assert len(examples_in(module)) == 2
    for test in examples_in(module):
        test(spark)


@pytest.fixture
def services(services_folder: Path, broker: str, spark_remote: str) -> Services:
    """Those of this session, in the place of a second broker and Spark."""
    return Services(services_folder)


def test_the_example_with_real_services_passes(services: Services, tmp_path: Path) -> None:
    module = example(2, tmp_path)
    [test] = examples_in(module)
    test(services)


def test_the_example_of_dagsters_materialize_passes(services: Services, tmp_path: Path) -> None:
    [test] = examples_in(example(3, tmp_path))
    test(services)


def test_a_slice_asset_runs_on_rows_from_a_list(spark: SparkSession, tmp_path: Path) -> None:
    totals = vars(example(2, tmp_path))["paid_totals"]
    [row] = run_asset(totals, [{"id": 1, "amount": "2.50"}, {"id": 2, "amount": 4}, {"id": 3}], spark=spark).collect()
    assert (row.payments, str(row.amount)) == (3, "6.50")
    with pytest.raises(StreamError, match="is no row"):
        run_asset(totals, [b"{}"], spark=spark)


def test_services_start_when_they_are_asked_for_and_end_with_their_block() -> None:
    with local_services() as started:
        assert devstack.status(started.folder) == []
        first, second = (started.database("postgresql") for _ in range(2))
        assert first != second
        assert [one.name for one in devstack.status(started.folder)] == ["postgresql"]
    assert not started.folder.exists()
