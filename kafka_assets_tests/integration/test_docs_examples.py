"""The examples of docs/testing.md, run as they stand there, on the Spark of the tests."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_the_examples_of_testing_your_own_asset_pass(spark: SparkSession, tmp_path: Path) -> None:
    _, example = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    path = tmp_path / "test_payments.py"
    path.write_text(example, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("docs_testing_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [function for name, function in vars(module).items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test(spark)
