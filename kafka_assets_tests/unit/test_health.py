"""The checks, from numbers alone and from SQLite: each says no where something is wrong, and what to do."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest

from kafka_assets.assets.checks import _evaluation, _news
from kafka_assets.verdicts import (
    HANGING_MS,
    Place,
    Recent,
    Verdict,
    exact_counts,
    hanging_transaction,
    retention_headroom,
)
from kafka_assets_tests.health_contract import HealthContract

PLACE = Place("orders", 0, 20, 10, log_start=0, last_stable=20, high_watermark=20, tail_offsets=10, tail_end=20,
              tail_uncommitted_from=10, waits_ms=5000)  # fmt: skip


@pytest.mark.usefixtures("unsynced")
class TestHealthOnSQLite(HealthContract):
    """The engine is the unit tests' own."""


def test_what_waits_and_expires_soon_or_already_is_said() -> None:
    hour = 3_600_000
    kept = {"orders": hour}
    late = retention_headroom([PLACE], retention_ms=kept, oldest_ms={"orders:0": 0}, now_ms=hour - 1000)
    assert (late.passed, late.numbers["headroom_seconds"]) == (False, 1)
    assert retention_headroom([PLACE], retention_ms=kept, oldest_ms={"orders:0": 0}, now_ms=hour // 2).passed
    assert retention_headroom([PLACE], retention_ms={"orders": None}, oldest_ms={"orders:0": 0}, now_ms=9 * hour).passed
    gone = retention_headroom([replace(PLACE, log_start=12)], retention_ms=kept, oldest_ms={}, now_ms=0)
    assert (gone.passed, gone.numbers["expired_offsets"]) == (False, 2)


def test_a_transaction_is_hanging_once_it_is_older_than_kafka_allows() -> None:
    held = [replace(PLACE, high_watermark=25)]
    assert hanging_transaction(held, since_ms={"orders:0": 0}, now_ms=HANGING_MS).passed
    old = hanging_transaction(held, since_ms={"orders:0": 0}, now_ms=HANGING_MS + 1)
    assert (old.passed, old.numbers["held_back_offsets"]) == (False, 5)


def test_counts_of_an_upsert_table_are_its_books_and_quarantine() -> None:
    one = Recent("orders:0:0-10", 10, 1, 9, rows_found=None, quarantine_found=1)
    assert exact_counts([one]).passed
    assert not exact_counts([replace(one, quarantine_found=0)]).passed


def test_dagster_is_told_what_changed_and_the_rest_now_and_then() -> None:
    def event(passed: bool) -> dg.AssetCheckEvaluation:
        return _evaluation(dg.AssetKey("orders"), Verdict("lag", passed, "said", {"lag_offsets": 1}))

    told, cursor = _news([event(True)], None)
    assert len(told) == 1
    told, cursor = _news([event(True)], cursor)
    assert told == []
    told, cursor = _news([event(False)], cursor)
    assert len(told) == 1
    long_ago = cursor.replace(cursor.partition("[false, ")[2].partition("]")[0], "1.0")
    assert len(_news([event(False)], long_ago)[0]) == 1
