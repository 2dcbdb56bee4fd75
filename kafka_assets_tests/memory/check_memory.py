"""The publisher's memory does not grow with the slice; `make memory` runs it, `make test` does not find it by its name.

KAFKA_ASSETS_TESTS_MEMORY=sqlite,postgresql leaves the other databases out.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_assets_tests.memory.publisher import peak_megabytes

SMALL, BIG = 500_000, 4_000_000
MORE = 100
"""Megabytes that eight times the records may take besides."""
DATABASES = os.environ.get("KAFKA_ASSETS_TESTS_MEMORY", "sqlite,postgresql,mariadb,mysql").split(",")


@pytest.mark.parametrize("database", DATABASES)
def test_four_million_records_take_no_more_memory_than_half_a_million(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if database == "sqlite":
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
    else:
        url = str(request.getfixturevalue(f"{database}_url"))
    small, big = peak_megabytes(url, SMALL), peak_megabytes(url, BIG)
    with capsys.disabled():
        print(f"\n{database}: peak {small:.0f} MB with {SMALL:,} records, {big:.0f} MB with {BIG:,}")
    assert big < small + MORE
