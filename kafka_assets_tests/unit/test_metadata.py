"""What Dagster shows of a slice's rows: their values, and nothing that a browser would act on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafka_assets.assets.metadata import as_code


@pytest.mark.parametrize(
    "value",
    [
        "![x](http://evil.example/b.png)",
        "<img src=http://evil.example/b.png>",
        "[click](http://evil.example)",
        "`![x](http://evil.example/b.png)",
        "``` ![x](http://evil.example/b.png) `",
        "`",
        "a | b",
    ],
)
def test_a_value_is_shown_as_code_that_nothing_in_it_ends(value: str) -> None:
    cell = as_code(value)
    fence = re.match("`+", cell)
    assert fence is not None and cell.endswith(f" {fence[0]}")
    inside = cell.removeprefix(fence[0]).removesuffix(fence[0])
    assert fence[0] not in re.findall("`+", inside)
    assert inside.strip().replace("\\|", "|") == value


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "` None `"), ("", ""), ("x" * 100, f"` {'x' * 80}… `"), (4, "` 4 `")]
)
def test_a_value_is_cut_and_nothing_is_nothing(value: Any, shown: str) -> None:
    assert as_code(value) == shown
