"""The checks, from a ledger alone and from numbers alone: each says no where something is wrong, and what to do."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest
from sqlalchemy import Engine

from kafka_assets.assets.checks import _evaluation, _news
from kafka_assets.ledger.claims import claim, record_failure
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.health import gaps_of, health
from kafka_assets.ledger.publications import find
from kafka_assets.ledger.requests import due
from kafka_assets.verdicts import (
    HANGING_MS,
    Place,
    Recent,
    Verdict,
    exact_counts,
    hanging_transaction,
    lag,
    no_gaps,
    quarantine_ratio,
    retention_headroom,
    stuck_slices,
)
from kafka_assets_tests.ledgers import ASSET, Attempt, chunk_of, plan

PLACE = Place("orders", 0, 20, 10, log_start=0, last_stable=20, high_watermark=20, tail_offsets=10, tail_end=20,
              tail_uncommitted_from=10, waits_ms=5000)  # fmt: skip


def judged(engine: Engine) -> dict[str, Verdict]:
    found = health(engine, asset=ASSET, target="orders", counted=True)
    return {
        one.name: one
        for one in (
            no_gaps(found.places, below=found.below, found=gaps_of(engine, stream=ASSET, asset=ASSET)),
            exact_counts(found.recent),
            lag(found.places, max_lag_ms=600_000),
            quarantine_ratio(found.recent, max_bad_ratio=0.01),
            stuck_slices(found.waiting),
        )
    }


def changed(engine: Engine, statement: str) -> None:
    with write(engine) as connection:
        connection.exec_driver_sql(statement)


def landed(engine: Engine) -> None:
    first, _, _ = plan(engine, slices=[(0, 10), (10, 20), (20, 30)])
    Attempt(engine, [first]).claim().publish(chunk_of(first, bad=[3]))


def test_a_ledger_in_order_passes_all_with_its_numbers(engine: Engine) -> None:
    landed(engine)
    found = judged(engine)
    assert {name for name, one in found.items() if not one.passed} == {"quarantine_ratio"}
    assert found["exact_counts"].numbers == {"slices_counted": 1, "rows_counted": 9, "slices_that_differ": 0}
    assert found["lag"].numbers["lag_offsets"] == 20
    assert found["quarantine_ratio"].numbers["ratio"] == 0.1
    assert found["stuck_slices"].numbers == {"waiting": 2, "failed": 0, "asked_often": 0}


def test_an_empty_ledger_passes(engine: Engine) -> None:
    assert all(one.passed for one in judged(engine).values())


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("exact_counts", "delete from orders where kafka_offset = 5"),
        ("exact_counts", "delete from kafka_quarantine"),
        ("no_gaps", "update kafka_committed set committed_through = 20"),
        ("no_gaps", "update kafka_committed set committed_through = 0"),
        ("no_gaps", "update kafka_progress set planned_through = 40"),
        ("lag", "update kafka_slice set created_at = '2020-01-01 00:00:00.000000'"),
        ("stuck_slices", "update kafka_claim set requests = 10"),
        ("stuck_slices", "update kafka_publication set state = 'failed' where start_offset = 20"),
    ],
)
def test_what_is_wrong_in_the_ledger_is_found_and_its_cure_said(engine: Engine, name: str, statement: str) -> None:
    landed(engine)
    changed(engine, statement)
    found = judged(engine)[name]
    assert not found.passed
    assert " · " in found.said


def test_the_bounded_questions_alone_find_a_wrong_committed_through(engine: Engine) -> None:
    landed(engine)
    changed(engine, "update kafka_committed set committed_through = 20")
    found = health(engine, asset=ASSET, target="orders", counted=True)
    assert not no_gaps(found.places, below=found.below).passed


def test_a_slice_given_up_says_why(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 10)])
    held = claim(engine, list(find(engine, asset=ASSET, keys=[key]).values()), run_id="r")
    record_failure(engine, held, reason="the table is too narrow", max_attempts=1)
    assert "the table is too narrow" in judged(engine)["stuck_slices"].said


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


def test_a_downstream_gets_each_slice_once_and_waits_for_its_upstream(engine: Engine) -> None:
    landed(engine)
    assert add_publications(engine, asset="below", stream=ASSET, limit=2) == 2
    assert add_publications(engine, asset="below", stream=ASSET) == 1
    assert add_publications(engine, asset="below", stream=ASSET) == 0
    waiting = due(engine, asset="below", limit=10, upstream=ASSET)
    assert [str(one.key) for one in waiting] == ["orders:0:0-10"]
    assert gaps_of(engine, stream=ASSET, asset="below") == []


def test_a_downstream_steps_over_what_is_lost(engine: Engine) -> None:
    plan(engine, slices=[(0, 10), (10, 20)])
    changed(engine, "update kafka_slice set kind = 'lost', reason = 'gone' where start_offset = 0")
    changed(engine, "update kafka_committed set committed_through = 10")
    assert add_publications(engine, asset="below", stream=ASSET) == 1
    with write(engine) as connection:
        through = "select committed_through from kafka_committed where asset = 'below'"
        assert connection.exec_driver_sql(through).scalar() == 10
    assert gaps_of(engine, stream=ASSET, asset="below") == []
