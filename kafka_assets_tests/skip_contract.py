"""Skipping and importing, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import LeaseHeld, LedgerBusy, SettingsError, SliceRefused, TopicChanged, UsageError
from kafka_assets.ledger import retries
from kafka_assets.ledger.claims import record_failure
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets.ledger.importing import import_origins
from kafka_assets.ledger.last_committed import last_offset, next_offset, next_offsets
from kafka_assets.ledger.planning import resolve_source
from kafka_assets.ledger.publications import find, lock_rows
from kafka_assets.ledger.requests import due, given_up
from kafka_assets.ledger.skipping import current_sources, skip_ahead, skip_slices
from kafka_assets.ledger.slice_list import Listed, find_slices, list_slices
from kafka_assets.ledger.standing import progress_of
from kafka_assets.plan import NewSlice, Offsets
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import ASSET, Attempt, committed_through, plan, quoted, rows, scalar


class SkipContract:
    def test_skipped_slices_are_done_and_no_gap(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10), (10, 20), (20, 30)])
        skip(engine, keys[:2])
        assert kinds(engine) == [("skipped", "why not"), ("skipped", "why not"), ("normal", None)]
        assert committed_through(engine) == 20
        assert whole(engine)
        land(engine, keys[2:])
        assert committed_through(engine) == 30
        assert whole(engine)

    def test_a_skipped_slice_between_others_is_stepped_over(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10), (10, 20), (20, 30)])
        skip(engine, keys[1:2])
        assert committed_through(engine) == 0
        land(engine, keys[:1])
        assert committed_through(engine) == 20
        assert whole(engine)

    def test_what_is_committed_is_never_skipped(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10), (10, 20)])
        land(engine, keys[:1])
        with pytest.raises(SliceRefused, match="'orders' has committed it"):
            skip(engine, keys)
        assert {kind for kind, _ in kinds(engine)} == {"normal"}, "all or none"
        assert whole(engine)

    def test_what_is_skipped_is_not_skipped_again(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10)])
        skip(engine, keys)
        with pytest.raises(SliceRefused, match="it is skipped already"):
            skip(engine, keys, reason="another")
        assert kinds(engine) == [("skipped", "why not")]

    def test_a_run_that_holds_a_skipped_slice_commits_nothing(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10), (10, 20)])
        attempt = Attempt(engine, keys).claim()
        skip(engine, keys[:1])
        with pytest.raises(SliceRefused, match="recorded as skipped"):
            attempt.publish()
        assert scalar(engine, "select count(*) from orders") == 0
        assert [one.key for one in due(engine, asset=ASSET, topics=["orders"], limit=9)] == []
        record_failure(engine, attempt.claims, reason="skipped", max_attempts=5)
        land(engine, keys[1:], force=True)
        assert committed_through(engine) == 20
        assert whole(engine)

    def test_what_somebody_publishes_now_is_not_waited_for(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retries, "TRIES", 1)
        keys = plan(engine, slices=[(0, 10)])
        [held] = find(engine, asset=ASSET, keys=keys).values()
        listed = find_slices(engine, stream=ASSET, asset=ASSET, keys=keys)
        impatient = make_engine(engine.url, lock_seconds=0 if engine.dialect.name == "sqlite" else 1)
        with write(engine) as publisher:
            lock_rows(publisher, [held.id])
            with pytest.raises(LedgerBusy):
                skip_slices(impatient, listed, reason="why not")
        impatient.dispose()
        assert kinds(engine) == [("normal", None)]
        assert committed_through(engine) == 0

    def test_a_skip_that_was_decided_before_a_commit_is_refused_after_it(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10)])
        listed = find_slices(engine, stream=ASSET, asset=ASSET, keys=keys)
        land(engine, keys)
        with pytest.raises(SliceRefused, match="has committed it"):
            skip_slices(engine, listed, reason="too late")
        assert committed_through(engine) == 10
        assert whole(engine)

    def test_an_open_window_is_refused(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10)])
        listed = find_slices(engine, stream=ASSET, asset=ASSET, keys=keys)
        with write(engine) as connection:
            connection.exec_driver_sql(f"update kafka_slice set is_open = {true(engine)}")
        with pytest.raises(SliceRefused, match="a live consumer is growing it"):
            skip_slices(engine, listed, reason="why not")

    def test_what_was_given_up_is_nobodys_trouble_once_skipped(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10)])
        attempt = Attempt(engine, keys).claim()
        assert record_failure(engine, attempt.claims, reason="bad", max_attempts=1)
        assert given_up(engine, assets=[ASSET]) == {ASSET: 1}
        skip(engine, keys)
        assert given_up(engine, assets=[ASSET]) == {}
        assert committed_through(engine) == 10
        assert whole(engine)

    def test_every_asset_on_the_slices_steps_over_them(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10), (10, 20)])
        add_publications(engine, asset="below", stream=ASSET)
        skip(engine, keys[:1])
        assert next_offsets(engine, group="below") == {("orders", 0): 10}
        [source] = current_sources(engine, ASSET).values()
        skip(engine, keys[1:])
        skip_ahead(engine, source, 0, expected=20, new=[NewSlice(20, 30, "skipped", "r")], asset=ASSET)
        for asset in ("below", ASSET):
            assert next_offsets(engine, group=asset) == {("orders", 0): 30}
        assert whole(engine)

    def test_what_a_downstream_alone_has_not_landed_is_not_skipped(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10)])
        add_publications(engine, asset="below", stream=ASSET)
        land(engine, keys)
        with pytest.raises(SliceRefused, match="'orders' has committed it"):
            skip_slices(engine, find_slices(engine, stream=ASSET, asset="below", keys=keys), reason="r")

    def test_the_future_is_skipped_by_compare_and_set(self, engine: Engine) -> None:
        plan(engine, slices=[(0, 10)])
        [source] = current_sources(engine, ASSET).values()
        new = [NewSlice(10, 15), NewSlice(15, 40, "skipped", "old news")]
        [kept] = skip_ahead(engine, source, 0, expected=10, new=new, asset=ASSET)
        assert (kept.start, kept.end) == (10, 15)
        assert progress_of(engine, source.id)[0].planned_through == 40
        assert whole(engine)
        with pytest.raises(LeaseHeld, match="a sensor was faster"):
            skip_ahead(engine, source, 0, expected=10, new=new, asset=ASSET)
        land(engine, [SliceKey("orders", 1, 0, 0, 10), kept])
        assert committed_through(engine) == 40
        assert whole(engine)

    def test_a_live_consumer_keeps_its_partition(self, engine: Engine) -> None:
        plan(engine, slices=[(0, 10)])
        [source] = current_sources(engine, ASSET).values()
        with write(engine) as connection:
            connection.exec_driver_sql(
                f"update kafka_progress set {quoted(engine, 'owner')} = 'live-1', owner_lease_until = {2**52}"
            )
        with pytest.raises(LeaseHeld, match="the live consumer live-1 holds it"):
            skip_ahead(engine, source, 0, expected=10, new=[NewSlice(10, 20, "skipped", "r")], asset=ASSET)
        assert whole(engine)

    def test_the_slices_of_a_deleted_topic_are_refused(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 10)])
        listed = find_slices(engine, stream=ASSET, asset=ASSET, keys=keys)
        resolve_source(engine, stream=ASSET, topic="orders", topic_id="id-2")
        with pytest.raises(TopicChanged, match="was deleted"):
            skip_slices(engine, listed, reason="r")

    def test_imported_origins_are_where_planning_goes_on(self, engine: Engine) -> None:
        take_over(engine, {0: 7, 1: 0})
        assert next_offsets(engine, group=ASSET) == {("orders", 0): 7, ("orders", 1): 0}
        assert whole(engine)
        [key] = plan(engine, slices=[(7, 12)])
        land(engine, [key])
        assert committed_through(engine) == 12
        assert whole(engine)

    def test_what_the_ledger_knows_is_not_imported_over(self, engine: Engine) -> None:
        take_over(engine, {0: 7})
        with pytest.raises(SettingsError, match=r"knows stream 'orders' already.*partition 0 through 7"):
            take_over(engine, {0: 9, 1: 3})
        assert next_offsets(engine, group=ASSET) == {("orders", 0): 7}, "all or none"
        take_over(engine, {1: 3})
        assert next_offsets(engine, group=ASSET) == {("orders", 0): 7, ("orders", 1): 3}
        assert scalar(engine, "select count(*) from kafka_source") == 1
        assert whole(engine)

    def test_no_partition_is_left_to_begin_at_a_guess(self, engine: Engine) -> None:
        with pytest.raises(UsageError, match="partitions 1 of the topic 'orders' are left out"):
            take_over(engine, {0: 7}, partitions=2)
        assert rows(engine, "select * from kafka_source") == []
        take_over(engine, {0: 7})
        take_over(engine, {1: 3}, partitions=2)
        assert next_offsets(engine, group=ASSET) == {("orders", 0): 7, ("orders", 1): 3}

    def test_the_last_and_the_next_offset_with_and_without_a_default(self, engine: Engine) -> None:
        take_over(engine, {0: 7, 1: 0})
        at = {"group": ASSET, "topic": "orders"}
        assert next_offset(engine, **at, partition=0) == 7
        assert last_offset(engine, **at, partition=0) == 6
        assert next_offset(engine, **at, partition=1, default=5) == 0
        assert last_offset(engine, **at, partition=1) is None
        assert last_offset(engine, **at, partition=1, default=-1) == -1
        assert next_offset(engine, **at, partition=2) is None
        assert next_offset(engine, **at, partition=2, default=0) == 0

    @pytest.mark.parametrize(
        ("state", "listed"),
        [
            (None, ["committed", "failed", "planned", "skipped"]),
            ("planned", ["planned"]),
            ("committed", ["committed"]),
            ("failed", ["failed"]),
            ("skipped", ["skipped"]),
            ("lost", []),
            ("open", []),
        ],
    )
    def test_slices_are_listed_by_what_became_of_them(
        self, engine: Engine, state: str | None, listed: Sequence[str]
    ) -> None:
        keys = plan(engine, slices=[(0, 10), (10, 20), (20, 30), (30, 40)])
        land(engine, keys[:1])
        record_failure(engine, Attempt(engine, keys[1:2]).claim().claims, reason="bad", max_attempts=1)
        skip(engine, keys[3:])
        found = list_slices(engine, stream=ASSET, asset=ASSET, state=state)
        assert [one.state for one in found] == listed
        if state is None:
            assert [one.reason for one in found] == [None, "bad", None, "why not"]
            assert [one.key for one in list_slices(engine, stream=ASSET, asset=ASSET, limit=2)] == keys[2:]


def skip(engine: Engine, keys: Sequence[SliceKey], *, reason: str = "why not") -> list[Listed]:
    listed = find_slices(engine, stream=ASSET, asset=ASSET, keys=keys)
    skip_slices(engine, listed, reason=reason)
    return listed


def land(engine: Engine, keys: Sequence[SliceKey], *, force: bool = False) -> None:
    Attempt(engine, keys).claim(force=force).publish()


def take_over(engine: Engine, origins: dict[int, int], *, partitions: int = 0) -> None:
    import_origins(
        engine,
        stream=ASSET,
        asset=ASSET,
        topic="orders",
        topic_id="id-1",
        origins=origins,
        offsets=dict.fromkeys([*origins, *range(partitions)], Offsets(0, 100, 100)),
    )


def kinds(engine: Engine) -> list[tuple[object, ...]]:
    return rows(engine, "select kind, reason from kafka_slice order by start_offset")


def whole(engine: Engine) -> bool:
    """Whether the ledger's own question finds nothing."""
    return rows(engine, "select problem from kafka_gap") == []


def true(engine: Engine) -> str:
    return "true" if engine.dialect.name == "postgresql" else "1"
