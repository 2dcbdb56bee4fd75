"""What each check finds in a ledger and in tables, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, event

from kafka_assets.ledger import health as asking
from kafka_assets.ledger.claims import claim, record_failure
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.health import gaps_of, health
from kafka_assets.ledger.publications import find
from kafka_assets.ledger.stalls import stall
from kafka_assets.slices import SliceKey
from kafka_assets.verdicts import (
    HANGING_MS,
    NAMES,
    Verdict,
    exact_counts,
    hanging_transaction,
    lag,
    no_gaps,
    planning,
    quarantine_ratio,
    retention_headroom,
    stuck_slices,
)
from kafka_assets_tests import whole_contract as whole
from kafka_assets_tests.downstream_contract import BELOW, below, changed, statements
from kafka_assets_tests.ledgers import ASSET, Attempt, chunk_of, plan

HOUR_MS = 3_600_000


def judged(engine: Engine, *, asset: str = ASSET, target: str = "orders", counted: bool = True) -> dict[str, Verdict]:
    """All of them; the broker says that the first waiting record is as old as the slice, and of an open transaction."""
    found = health(engine, asset=asset, target=target, counted=counted)
    held = {one.named: found.now_ms - HANGING_MS - 1 for one in found.places if one.high_watermark > one.last_stable}
    waiting = {one.named: found.now_ms - one.waits_ms for one in found.places if one.lag}
    verdicts = [
        no_gaps(found.places, below=found.below, found=gaps_of(engine, stream=ASSET, asset=asset)),
        exact_counts(found.recent),
        lag(found.places, max_lag_ms=HOUR_MS // 2),
        quarantine_ratio(found.recent, max_bad_ratio=0.2),
        retention_headroom(found.places, retention_ms={"orders": HOUR_MS}, oldest_ms=waiting, now_ms=found.now_ms),
        hanging_transaction(found.places, since_ms=held, now_ms=found.now_ms),
        stuck_slices(found.waiting),
        planning(found.places),
    ]
    assert tuple(one.name for one in verdicts) == NAMES
    return {one.name: one for one in verdicts}


def failing(verdicts: dict[str, Verdict]) -> set[str]:
    return {name for name, one in verdicts.items() if not one.passed}


def landed(engine: Engine) -> None:
    first, _, _ = plan(engine, slices=[(0, 10), (10, 20), (20, 30)])
    Attempt(engine, [first]).claim().publish(chunk_of(first, bad=[3]))


class HealthContract:
    def test_an_empty_ledger_passes_and_of_its_planning_nobody_knows(self, engine: Engine) -> None:
        found = judged(engine)
        assert failing(found) == {"planning"}
        assert not found["planning"].known

    def test_what_a_live_consumer_holds_is_looked_at_by_that(self, engine: Engine) -> None:
        landed(engine)
        changed(engine, "update kafka_progress set observed_at = '2020-01-01 00:00:00.000000'")
        changed(engine, "update kafka_progress set owner = 'live-1', owner_lease_until = 99999999999999")
        assert failing(judged(engine)) == set()

    def test_what_is_planned_and_committed_while_it_looks_is_no_gap(self, engine: Engine) -> None:
        landed(engine)
        beside = make_engine(engine.url)
        looked: list[str] = []

        def meanwhile(connection: object, cursor: object, statement: str, *others: object) -> None:
            """After each of the first statements, as neighbours do that are in a hurry."""
            looked.append(statement)
            if len(looked) < 5:
                start = 20 + 10 * len(looked)
                [key] = plan(beside, slices=[(start, start + 10)])
                Attempt(beside, [key]).claim().publish(chunk_of(key))

        event.listen(engine, "after_cursor_execute", meanwhile)
        places = health(engine, asset=ASSET, target="orders", counted=True)
        event.remove(engine, "after_cursor_execute", meanwhile)
        assert len(looked) > 5
        verdict = no_gaps(places.places, below=places.below, found=[])
        assert verdict.passed, verdict

    def test_a_ledger_in_order_passes_all_with_its_numbers(self, engine: Engine) -> None:
        landed(engine)
        found = judged(engine)
        assert failing(found) == set()
        assert found["exact_counts"].numbers == {"slices_counted": 1, "rows_counted": 9, "slices_that_differ": 0}
        assert found["lag"].numbers["lag_offsets"] == 20
        assert found["quarantine_ratio"].numbers["ratio"] == 0.1
        assert found["stuck_slices"].numbers == {"waiting": 2, "failed": 0, "asked_often": 0}
        assert found["hanging_transaction"].numbers["held_back_offsets"] == 0
        assert 3000 < found["retention_headroom"].numbers["headroom_seconds"] <= 3600

    @pytest.mark.parametrize(
        ("statement", "found"),
        [
            ("delete from orders where kafka_offset = 5", {"exact_counts"}),
            ("delete from kafka_quarantine", {"exact_counts"}),
            ("update kafka_committed set committed_through = 20", {"no_gaps"}),
            ("update kafka_committed set committed_through = 0", {"no_gaps"}),
            ("update kafka_progress set planned_through = 40", {"no_gaps"}),
            ("update kafka_slice set created_at = '2020-01-01 00:00:00.000000'", {"lag", "retention_headroom"}),
            ("update kafka_publication set quarantined = 3, landed = 7 where state = 'committed'",
             {"quarantine_ratio", "exact_counts"}),
            ("update kafka_progress set log_start = 12", {"retention_headroom"}),
            ("update kafka_progress set high_watermark = 35", {"hanging_transaction"}),
            ("update kafka_claim set requests = 10", {"stuck_slices"}),
            ("update kafka_progress set observed_at = '2020-01-01 00:00:00.000000'", {"planning"}),
            ("update kafka_publication set state = 'failed' where start_offset = 20", {"stuck_slices"}),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_found_by_its_check_alone_and_its_cure_said(
        self, engine: Engine, statement: str, found: set[str]
    ) -> None:
        landed(engine)
        changed(engine, statement)
        verdicts = judged(engine)
        assert failing(verdicts) == found
        assert all(" · " in verdicts[name].said for name in found)

    def test_the_bounded_questions_alone_find_a_wrong_committed_through(self, engine: Engine) -> None:
        landed(engine)
        for through in (0, 20):
            changed(engine, f"update kafka_committed set committed_through = {through}")
            found = health(engine, asset=ASSET, target="orders", counted=True)
            assert not no_gaps(found.places, below=found.below).passed

    def test_what_waits_to_be_planned_is_a_lag_too(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 10)])
        Attempt(engine, [key]).claim().publish()
        changed(engine, "update kafka_progress set last_stable = 15, high_watermark = 15, pending_since = 1000")
        assert failing(judged(engine)) == {"lag", "retention_headroom"}
        assert judged(engine)["lag"].numbers["lag_offsets"] == 5

    def test_a_slice_given_up_says_why(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 10)])
        held = claim(engine, list(find(engine, asset=ASSET, keys=[key]).values()), run_id="r")
        record_failure(engine, held, reason="the table is too narrow", max_attempts=1)
        assert "the table is too narrow" in judged(engine)["stuck_slices"].said

    def test_what_keeps_all_slices_from_landing_is_said_at_once(self, engine: Engine) -> None:
        plan(engine, slices=[(0, 10)])
        stall(engine, asset=ASSET, failure="it has no column 'currency'", code_version="v1")
        found = judged(engine)
        assert failing(found) == {"stuck_slices"}
        assert "it has no column 'currency'" in found["stuck_slices"].said

    def test_a_slice_that_is_lost_waits_for_nobody(self, engine: Engine) -> None:
        plan(engine, slices=[(0, 10)])
        changed(engine, "update kafka_slice set kind = 'lost', reason = 'gone'")
        changed(engine, "update kafka_committed set committed_through = 10")
        assert failing(judged(engine)) == set()
        assert judged(engine)["stuck_slices"].numbers["waiting"] == 0

    def test_partitions_are_judged_apart(self, engine: Engine) -> None:
        for partition in range(3):
            [key] = plan(engine, slices=[(0, 10)], partition=partition)
            Attempt(engine, [key]).claim().publish()
        changed(engine, "delete from orders where kafka_partition = 1 and kafka_offset < 2")
        found = judged(engine)
        assert failing(found) == {"exact_counts"}
        assert "orders:1:0-10 committed 10 rows" in found["exact_counts"].said
        assert found["exact_counts"].numbers == {"slices_counted": 3, "rows_counted": 28, "slices_that_differ": 1}

    def test_rows_of_whole_slices_are_counted(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 10)])
        whole.land(engine, whole.whole_chunk(key, ["a", "b", "c"]))
        assert judged(engine)["exact_counts"].numbers["rows_counted"] == 3
        changed(engine, "delete from orders where kafka_ordinal = 1")
        assert failing(judged(engine)) == {"exact_counts"}

    def test_of_a_table_that_is_gone_the_books_remain(self, engine: Engine) -> None:
        landed(engine)
        changed(engine, "drop table orders")
        assert failing(judged(engine)) == set()

    @pytest.mark.parametrize("committed", [True, False])
    def test_of_a_table_that_somebody_else_made_the_books_remain(self, engine: Engine, committed: bool) -> None:
        if committed:
            landed(engine)
            changed(engine, "drop table orders")
        else:
            plan(engine, slices=[(0, 10)])
        changed(engine, "create table orders (id integer)")
        try:
            assert failing(judged(engine)) == set()
        finally:
            changed(engine, "drop table orders")

    def test_an_asset_below_is_judged_by_its_own_books(self, engine: Engine) -> None:
        landed(engine)
        key = SliceKey("orders", 1, 0, 0, 10)
        add_publications(engine, asset=BELOW, stream=ASSET)
        below(engine, key)
        found = judged(engine, asset=BELOW, target=BELOW)
        assert failing(found) == set()
        assert found["exact_counts"].numbers["rows_counted"] == 5
        assert found["stuck_slices"].numbers["waiting"] == 2
        changed(engine, "delete from below where kafka_offset = 4")
        assert failing(judged(engine, asset=BELOW, target=BELOW)) == {"exact_counts"}
        assert failing(judged(engine)) == set()

    def test_so_many_of_the_newest_slices_are_counted_and_no_more(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = plan(engine, slices=[(10 * number, 10 * number + 10) for number in range(6)])
        Attempt(engine, keys).claim().publish()
        monkeypatch.setattr(asking, "NEWEST", 3)
        changed(engine, "delete from orders where kafka_offset = 5")
        assert failing(judged(engine)) == set(), "an old slice is not looked at"
        assert judged(engine)["exact_counts"].numbers["slices_counted"] == 3
        monkeypatch.setattr(asking, "ROWS", 20)
        assert judged(engine)["exact_counts"].numbers["rows_counted"] == 20
        # The rows of all slices that are looked at by one statement: between two, a replay might commit.
        sent = statements(engine)
        health(engine, asset=ASSET, target="orders", counted=True)
        assert len([one for one in sent if "kafka_quarantine" in one]) == 1
