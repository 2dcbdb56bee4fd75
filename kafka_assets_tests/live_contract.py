"""What live consumers promise beside a sensor, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.audit.streams import lags
from kafka_assets.errors import (
    Fenced,
    KeysUnknown,
    LeaseHeld,
    LedgerBusy,
    OutcomeUnknown,
    RowsRefused,
    SliceFailed,
    SliceRefused,
    StreamError,
    TopicChanged,
)
from kafka_assets.ledger import engine as doors
from kafka_assets.ledger import leases, owning, retries
from kafka_assets.ledger.backends import backend_of
from kafka_assets.ledger.claims import record_failure
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.janitor import end_live
from kafka_assets.ledger.leases import new_owner, take
from kafka_assets.ledger.planning import commit_plan, observe, resolve_source
from kafka_assets.ledger.requests import due
from kafka_assets.ledger.skipping import skip_ahead, skip_slices
from kafka_assets.ledger.slice_list import find_slices, list_slices
from kafka_assets.ledger.sources import Source
from kafka_assets.ledger.standing import ends_of, remaining
from kafka_assets.plan import NewSlice, Offsets
from kafka_assets.records import Seen
from kafka_assets.sinks import live as transaction
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.batch import WindowPolicy
from kafka_assets.slices import SliceKey
from kafka_assets_tests import refusals_contract as refusals
from kafka_assets_tests import upserts
from kafka_assets_tests.health_contract import failing, judged
from kafka_assets_tests.ledgers import (
    ASSET,
    Attempt,
    chunk_of,
    committed_through,
    quoted,
    rows,
    rows_of,
    scalar,
    target,
)
from kafka_assets_tests.lives import HOUR_MS, Live, end_leases, landed, meet, owners, unlooked, whole, windows
from kafka_assets_tests.upserts import Gone, Put

LOG = logging.getLogger(__name__)
TINY = WindowPolicy(seconds=3600, max_records=10)


class LiveContract:
    # Leases

    def test_a_lease_is_refused_to_others_while_it_stands_and_taken_once_it_has_ended(self, engine: Engine) -> None:
        source = meet(engine, partitions=2)
        Live(engine, source, "first").take(0)
        found = take(engine, [(source, 0), (source, 1)], owner="second")
        assert [lease.partition for lease in found.leases] == [1]
        assert "held by the live consumer first" in str(found.refused[source.id, 0])
        assert owners(engine) == ["first", "second"]
        end_leases(engine)
        Live(engine, source, "third").take(0, 1)
        assert owners(engine) == ["third", "third"]

    def test_a_backend_is_ended_before_its_lease_is_taken_and_not_while_it_stands(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ended: list[object] = []
        monkeypatch.setattr(leases, "terminate", lambda engine, backend: ended.append((backend, owners(engine))))
        source = meet(engine, partitions=2)
        Live(engine, source, "first").take(0, 1)
        with write(engine) as connection:
            connection.exec_driver_sql("update kafka_progress set owner_backend = 'somebody'")
        assert len(take(engine, [(source, 0), (source, 1)], owner="second").refused) == 2
        assert ended == []
        end_leases(engine)
        take(engine, [(source, 0)], owner="second")
        assert ended == [("somebody", ["first", "first"])]
        assert owners(engine) == ["second", "first"]

    def test_an_owner_that_came_back_meanwhile_is_not_robbed(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = meet(engine)
        first = Live(engine, source, "first").take()
        with write(engine) as connection:
            connection.exec_driver_sql("update kafka_progress set owner_backend = 'somebody'")
        end_leases(engine)
        monkeypatch.setattr(leases, "terminate", lambda engine, backend: first.extend())
        [refused] = take(engine, [(source, 0)], owner="second").refused.values()
        assert "first" in str(refused)
        assert owners(engine) == ["first"]

    def test_what_a_group_gives_is_not_waited_for_where_a_member_of_it_had_it(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The group gives a partition only where whoever had it left, or counts as dead."""
        ended: list[object] = []
        monkeypatch.setattr(leases, "terminate", lambda engine, backend: ended.append((backend, owners(engine))))
        source = meet(engine, partitions=3)
        dead, heir, stranger = new_owner("orders"), new_owner("orders"), new_owner("others")
        Live(engine, source, dead).take(0, 1)
        Live(engine, source, stranger).take(2)
        with write(engine) as connection:
            connection.exec_driver_sql("update kafka_progress set owner_backend = 'somebody'")
        wanted = [(source, 0), (source, 1), (source, 2)]
        assert len(take(engine, wanted, owner=new_owner(), given=[(source.id, 0)]).refused) == 3, "of no group"
        found = take(engine, wanted, owner=heir, given=[(source.id, 0), (source.id, 2)])
        assert [lease.partition for lease in found.leases] == [0]
        assert set(found.refused) == {(source.id, 1), (source.id, 2)}, "not given to it, and of another group"
        assert owners(engine) == [heir, dead, stranger]
        assert ended == [("somebody", [dead, dead, stranger])], "its backend first"

    def test_whom_its_group_gave_up_while_it_was_frozen_commits_nothing_more(self, engine: Engine) -> None:
        source = meet(engine)
        frozen = Live(engine, source, new_owner("orders")).take()
        frozen.land(0, 5)
        heir = Live(engine, source, new_owner("orders"))
        heir.leases = take(engine, [(source, 0)], owner=heir.name, lease_ms=HOUR_MS, given=[(source.id, 0)]).leases
        with pytest.raises((Fenced, LedgerBusy)):
            frozen.land(5, 8, note="frozen")
        heir.land(5, 8, note="heir")
        with pytest.raises(Fenced):
            frozen.land(8, 9, note="frozen")
        assert {note for _, offset, note in rows_of(engine) if offset >= 5} == {"heir"}
        assert whole(engine)

    def test_an_owner_takes_its_own_lease_again(self, engine: Engine) -> None:
        source = meet(engine)
        live = Live(engine, source).take(lease_ms=HOUR_MS)
        before = scalar(engine, "select owner_lease_until from kafka_progress")
        live.take(lease_ms=2 * HOUR_MS)
        after = scalar(engine, "select owner_lease_until from kafka_progress")
        assert int(str(after)) >= int(str(before)) + HOUR_MS

    def test_leases_are_extended_together_and_those_of_others_are_named(self, engine: Engine) -> None:
        source = meet(engine, partitions=3)
        live = Live(engine, source, "first").take(0, 1, 2, lease_ms=1)
        end_leases(engine)
        Live(engine, source, "second").take(1)
        assert [lease.partition for lease in live.extend()] == [1]
        stands = rows(
            engine, f"select p.owner, p.owner_lease_until > {HOUR_MS} from kafka_progress p order by p.partition"
        )
        assert [(owner, bool(later)) for owner, later in stands] == [("first", True), ("second", True), ("first", True)]

    def test_a_partition_that_is_given_back_is_anybodys_and_its_window_closed(self, engine: Engine) -> None:
        source = meet(engine)
        live = Live(engine, source).take()
        live.land(0, 5)
        live.give_back()
        assert owners(engine) == [None]
        assert windows(engine) == [(0, 0, 5, False, "committed", 5)]

    def test_who_lost_its_lease_gives_nothing_back(self, engine: Engine) -> None:
        source = meet(engine)
        first = Live(engine, source, "first").take()
        end_leases(engine)
        second = Live(engine, source, "second").take()
        second.land(0, 5)
        first.give_back()
        assert owners(engine) == ["second"]
        assert windows(engine) == [(0, 0, 5, True, "committed", 5)]

    def test_a_partition_that_was_never_observed_is_refused(self, engine: Engine) -> None:
        source = meet(engine)
        with pytest.raises(KeysUnknown, match="partition 7 of the topic 'orders'"):
            take(engine, [(source, 7)], owner="live-1")

    # Where an owner begins

    def test_an_owner_waits_for_what_is_planned_and_is_told_for_whom(self, engine: Engine) -> None:
        source = meet(engine, end=20)
        [first, second] = _planned(engine, source, (0, 5), (5, 10))
        live = Live(engine, source).take()
        assert f"{first} is planned and not landed" in str(live.ready().waits_for)
        attempt = Attempt(engine, [first], run_id="run-7").claim()
        assert f"run run-7 is landing slice {first}" in str(live.ready().waits_for)
        attempt.publish()
        failed = Attempt(engine, [second]).claim()
        record_failure(engine, failed.claims, reason="no such column", max_attempts=1)
        assert f"{second} was given up (no such column)" in str(live.ready().waits_for)
        skip_slices(engine, find_slices(engine, stream=ASSET, asset=ASSET, keys=[second]), reason="never mind")
        assert live.ready() == leases.Ready(10)
        live.land(10, 15)
        assert live.ready() == leases.Ready(15)
        assert committed_through(engine) == 15
        assert whole(engine)

    def test_what_another_group_planned_is_landed_before_an_owner_begins(self, engine: Engine) -> None:
        source = meet(engine, end=20)
        planned = commit_plan(engine, source, 0, expected=0, slices=[NewSlice(0, 5)], asset="another")
        assert planned is not None
        live = Live(engine, source).take()
        assert f"{planned[0]} is planned and not landed" in str(live.ready().waits_for)
        assert due(engine, asset=ASSET, topics=["orders"], limit=9) == []
        add_publications(engine, asset=ASSET, stream=ASSET, gone=False)
        assert [one.key for one in due(engine, asset=ASSET, topics=["orders"], limit=9)] == planned
        Attempt(engine, planned).claim().publish()
        assert live.ready() == leases.Ready(5)

    def test_who_lost_its_lease_is_told_so_when_it_asks_where_to_begin(self, engine: Engine) -> None:
        source = meet(engine)
        first = Live(engine, source, "first").take()
        end_leases(engine)
        Live(engine, source, "second").take()
        with pytest.raises(Fenced, match="take the lease again"):
            first.ready()

    # Windows

    def test_a_window_grows_with_each_commit(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()
        live.land(0, 5)
        assert windows(engine) == [(0, 0, 5, True, "committed", 5)]
        [done] = live.land(5, 12, offsets=[5, 6, 11], bad=[6])
        assert (done.key, done.outcome.landed, done.outcome.quarantined, done.outcome.holes) == (
            live.key(5, 12),
            2,
            1,
            4,
        )
        assert windows(engine) == [(0, 0, 12, True, "committed", 8)]
        counted = "landed, quarantined, holes, rows_written, committed_attempt, run_id, code_version"
        assert rows(engine, f"select {counted} from kafka_publication") == [(7, 1, 4, 7, 1, "live-1", "v1")]
        assert rows(engine, "select kafka_offset, slice_id from kafka_quarantine") == [(6, _slice(engine))]
        assert landed(engine) == [0, 1, 2, 3, 4, 5, 11]
        assert committed_through(engine) == 12
        assert scalar(engine, "select next_offset from kafka_committed_offset") == 12
        assert whole(engine)

    def test_a_window_that_is_over_is_closed_and_the_next_one_begins(self, engine: Engine) -> None:
        live = Live(engine, meet(engine), window=TINY).take()
        for start in (0, 6, 12, 18):
            live.land(start, start + 6)
        assert windows(engine) == [(0, 0, 12, False, "committed", 12), (0, 12, 24, True, "committed", 12)]
        late = Live(engine, live.source, window=WindowPolicy(seconds=0)).take()
        late.land(24, 25)
        assert [one[3] for one in windows(engine)] == [False, False, True]
        assert late.table.close_over(late.leases) == [late.key(24, 25)]
        assert late.table.close_over(late.leases) == []
        late.land(25, 30)
        assert [one[1:4] for one in windows(engine)][2:] == [(24, 25, False), (25, 30, True)]
        assert committed_through(engine) == 30
        assert whole(engine)

    def test_a_batch_may_have_several_partitions_and_several_chunks(self, engine: Engine) -> None:
        live = Live(engine, meet(engine, partitions=2)).take(0, 1)
        whole_ = live.key(0, 6)
        live.publish(
            chunk_of(whole_, offsets=[0, 1, 2]), chunk_of(live.key(0, 2, 1)), chunk_of(whole_, offsets=[3, 4, 5])
        )
        assert windows(engine) == [(0, 0, 6, True, "committed", 6), (1, 0, 2, True, "committed", 2)]
        assert (committed_through(engine), committed_through(engine, 1)) == (6, 2)

    def test_a_batch_is_committed_with_all_of_its_partitions_or_none(self, engine: Engine) -> None:
        source = meet(engine, partitions=2)
        first = Live(engine, source, "first").take(0, 1)
        end_leases(engine)
        Live(engine, source, "second").take(1)
        for looks in (True, False):
            with pytest.raises(Fenced, match="partition 1 of the topic 'orders' is not first's any more"):
                _publish(first, chunk_of(first.key(0, 6)), chunk_of(first.key(0, 2, 1)), looks=looks)
        assert rows_of(engine) == []
        assert windows(engine) == []
        first.land(0, 6)
        assert landed(engine) == [0, 1, 2, 3, 4, 5]

    def test_what_was_not_delivered_is_counted_as_holes_also_where_nothing_was(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()
        live.land(0, 3, offsets=[])
        live.land(3, 5)
        assert rows(engine, "select records_read, landed, holes, fingerprint from kafka_publication") == [
            (2, 2, 3, None)
        ]
        assert committed_through(engine) == 5

    def test_times_and_fingerprints_are_those_of_the_whole_window(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()
        for start, first, last, mark in ((0, 50, 70, 0b1100), (2, 10, 20, 0b1010), (4, 60, 60, -1)):
            chunk = chunk_of(live.key(start, start + 2))
            seen = Seen(read=2, bytes_read=7, first_timestamp=first, last_timestamp=last, fingerprint=mark)
            live.publish(replace(chunk, seen={live.key(start, start + 2): seen}))
        found = rows(engine, "select first_timestamp, last_timestamp, bytes_read, fingerprint from kafka_publication")
        assert found == [(10, 70, 21, f"{(0b0110 ^ -1) & (2**64 - 1):016x}")]
        live.land(6, 8)
        assert scalar(engine, "select fingerprint from kafka_publication") is None

    # Fences

    @pytest.mark.parametrize("looks", [True, False], ids=["", "under its lock"])
    def test_a_batch_that_begins_elsewhere_commits_nothing(self, engine: Engine, looks: bool) -> None:
        live = Live(engine, meet(engine)).take()
        live.land(0, 5)
        for start, end in ((7, 9), (3, 5)):
            batch = chunk_of(live.key(start, end), note="stale", offsets=range(start + 4, end + 4))
            key = live.key(start, end + 4)
            with pytest.raises(Fenced, match=f"it stands at offset 5, and the batch begins at {start}"):
                _publish(live, replace(batch, seen={key: Seen(read=2)}), looks=looks)
        assert landed(engine) == [0, 1, 2, 3, 4]
        assert committed_through(engine) == 5
        assert whole(engine)

    @pytest.mark.parametrize("looks", [True, False], ids=["", "under its lock"])
    def test_a_zombie_commits_nothing_after_a_takeover(self, engine: Engine, looks: bool) -> None:
        source = meet(engine)
        zombie = Live(engine, source, "zombie").take()
        zombie.land(0, 5)
        end_leases(engine)
        heir = Live(engine, source, "heir").take()
        # At the same position: only its name tells them apart.
        with pytest.raises(Fenced, match="its lease had ended"):
            _publish(zombie, chunk_of(zombie.key(5, 8), note="zombie"), looks=looks)
        heir.land(5, 8, note="heir")
        assert {note for _, offset, note in rows_of(engine) if offset >= 5} == {"heir"}
        assert windows(engine) == [(0, 0, 8, True, "committed", 8)]

    def test_rows_of_the_heir_are_not_taken_for_the_fault_of_the_zombies_records(self, engine: Engine) -> None:
        source = meet(engine)
        zombie = Live(engine, source, "zombie").take()
        end_leases(engine)
        Live(engine, source, "heir").take().land(0, 5)
        # It looked before the heir committed, and looks again where the table refuses its rows.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owning, "require_standing", lambda connection, moves: {backend_of(connection)})
            with pytest.raises(Fenced):
                zombie.land(0, 5, note="zombie")
        assert scalar(engine, "select count(*) from kafka_quarantine") == 0
        assert {note for _, _, note in rows_of(engine)} == {"a"}

    def test_an_owner_whose_lease_has_ended_goes_on_while_nobody_came(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()
        live.land(0, 5)
        end_leases(engine)
        live.land(5, 8)
        assert windows(engine) == [(0, 0, 8, True, "committed", 8)]
        assert len(take(engine, [(live.source, 0)], owner="other").refused) == 1, "its commit extends its lease"

    def test_what_kafka_says_after_the_last_record_stops_the_commit(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()

        def gone() -> None:
            raise TopicChanged("another topic by now")

        with pytest.raises(TopicChanged):
            live.publish(chunk_of(live.key(0, 5)), confirm=gone)
        assert rows_of(engine) == []
        live.land(0, 5)

    @pytest.mark.parametrize("committed", [True, False])
    def test_a_commit_without_an_answer_is_asked_about(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, committed: bool
    ) -> None:
        monkeypatch.setattr(retries.time, "sleep", lambda seconds: None)
        live = Live(engine, meet(engine, partitions=2)).take(0, 1)
        live.land(0, 5)
        lose_answers(monkeypatch, committed=committed)
        live.publish(chunk_of(live.key(5, 9)), chunk_of(live.key(0, 3, 1)))
        assert windows(engine) == [(0, 0, 9, True, "committed", 9), (1, 0, 3, True, "committed", 3)]
        assert landed(engine) == list(range(9))
        live.land(9, 12)
        assert whole(engine)

    def test_who_was_taken_over_while_its_commit_gave_no_answer_does_not_guess(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = meet(engine)
        live = Live(engine, source).take()

        def heir() -> None:
            end_leases(engine)
            Live(engine, source, "heir").take()

        lose_answers(monkeypatch, committed=True, then=heir)
        with pytest.raises(Fenced, match="lost during its COMMIT"):
            live.land(0, 5)
        assert landed(engine) == [0, 1, 2, 3, 4]
        assert Live(engine, source, "heir").take().ready() == leases.Ready(5)

    def test_a_busy_database_is_tried_again_with_the_whole_transaction(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retries.time, "sleep", lambda seconds: None)
        live = Live(engine, meet(engine)).take()
        advance, tries = transaction.advance, list[int]()

        def busy_once(*given: Any, **where: Any) -> None:
            advance(*given, **where)
            tries.append(1)
            if len(tries) == 1:
                raise LedgerBusy("busy, once")

        monkeypatch.setattr(transaction, "advance", busy_once)
        live.land(0, 5)
        assert len(tries) == 2
        assert windows(engine) == [(0, 0, 5, True, "committed", 5)]
        assert landed(engine) == [0, 1, 2, 3, 4]

    # Bad records

    def test_bad_records_are_judged_over_the_window_so_far(self, engine: Engine) -> None:
        live = Live(engine, meet(engine, end=20_000), policy=BadPolicy("quarantine", 0.05)).take()
        live.land(0, 1000, bad=range(50))
        live.land(1000, 2000, bad=range(1000, 1050))
        with pytest.raises(SliceFailed, match=r"101 bad records of 2010, more than max_bad_ratio 0\.05"):
            live.land(2000, 2010, bad=[2000])
        assert windows(engine) == [(0, 0, 2000, True, "committed", 2000)]
        assert scalar(engine, "select count(*) from kafka_quarantine") == 100
        live.land(2000, 2100)
        strict = Live(engine, live.source, policy=BadPolicy("fail", 1.0)).take()
        with pytest.raises(SliceFailed, match="on_bad: fail"):
            strict.land(2100, 2110, bad=[2105])
        assert committed_through(engine) == 2100

    def test_a_reason_that_no_text_can_hold_is_kept_as_it_can(self, engine: Engine) -> None:
        Live(engine, meet(engine)).take().land(0, 5, bad=[3], reason="id: \0 and \ud800")
        assert scalar(engine, "select reason from kafka_quarantine") == "id: ␀ and ?"

    @refusals.MODES
    def test_rows_that_the_table_refuses_are_quarantined_with_their_bytes(self, engine: Engine, upsert: Any) -> None:
        table = refusals.target(engine, upsert)
        refusals.declare(engine, "check")
        live = Live(engine, meet(engine), table=table).take()
        live.publish(upserts.chunk_of(live.key(0, 4), *(Put(at, at, at=3 if at == 2 else 1) for at in range(4))))
        live.publish(upserts.chunk_of(live.key(4, 8), *(Put(at, at, at=3 if at == 5 else 1) for at in range(4, 8))))
        assert sorted(upserts.standing(engine)) == [0, 1, 3, 4, 6, 7]
        kept = rows(
            engine, f"select kafka_offset, {quoted(engine, 'key')}, value from kafka_quarantine order by kafka_offset"
        )
        assert kept == [(2, b"k2", b"v"), (5, b"k5", b"v")]
        assert rows(engine, "select records_read, landed, quarantined from kafka_publication") == [(8, 6, 2)]

    def test_a_table_of_whole_slices_is_refused(self, engine: Engine) -> None:
        with pytest.raises(StreamError, match="scope: record"):
            Live(engine, meet(engine), table=replace(target(engine), ordinal=True))

    def test_a_record_with_two_rows_fails_its_batch(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()
        with pytest.raises(RowsRefused, match="two rows"):
            live.publish(chunk_of(live.key(0, 3), offsets=[0, 1, 1], read_count=3))
        assert rows_of(engine) == []
        live.land(0, 3)

    # Upsert

    def test_batches_of_an_upsert_table_merge(self, engine: Engine) -> None:
        live = Live(engine, meet(engine), table=upserts.target(engine), window=TINY).take()
        live.publish(upserts.chunk_of(live.key(0, 4), Put(0, 1), Put(1, 2), Put(2, 1, "b"), Put(3, 3)))
        live.publish(upserts.chunk_of(live.key(4, 8), Gone(4, 2), Put(5, 3, "c"), Put(6, 3, "d"), Gone(7, 9)))
        assert upserts.standing(engine) == {1: "b", 3: "d"}
        assert upserts.tombstones(engine) == ['{"id":2}', '{"id":9}']
        counted = "select records_read, landed, superseded, tombstoned from kafka_publication"
        assert rows(engine, counted) == [(8, 4, 2, 2)]
        live.publish(upserts.chunk_of(live.key(8, 12), Put(8, 2, "e")))
        live.publish(upserts.chunk_of(live.key(12, 14), Gone(12, 1), Put(13, 4)))
        assert upserts.standing(engine) == {2: "e", 3: "d", 4: "a"}
        assert [one[1:4] for one in windows(engine)] == [(0, 12, False), (12, 14, True)]
        buried = "select d.key_text, s.start_offset from kafka_tombstone d join kafka_slice s on s.id = d.slice_id"
        assert sorted(rows(engine, buried)) == [('{"id":1}', 12), ('{"id":9}', 0)]
        assert whole(engine)

    # Beside runs

    def test_an_open_window_is_refused_by_runs_and_skips_which_say_until_when(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()
        live.land(0, 5)
        key = live.key(0, 5)
        with pytest.raises(SliceRefused, match=r"a live consumer is growing it.*live-1 grows it: it is closed when"):
            Attempt(engine, [key], replaces=True).claim().publish()
        listed = find_slices(engine, stream=ASSET, asset=ASSET, keys=[key])
        assert [(one.state, one.reason, one.landed) for one in listed] == [("open", "live-1 grows it", 5)]
        with pytest.raises(SliceRefused, match="live-1 grows it"):
            skip_slices(engine, listed, reason="r")
        end_leases(engine)
        with pytest.raises(SliceRefused, match="the next tick of the sensor closes it"):
            Attempt(engine, [key], replaces=True).claim(force=True).publish()
        assert landed(engine) == [0, 1, 2, 3, 4]
        live.land(5, 9)
        assert whole(engine)

    def test_a_replay_of_a_window_that_has_grown_since_it_was_read_is_refused(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()
        live.land(0, 5)
        late = Attempt(engine, [live.key(0, 5)], replaces=True).claim()
        live.land(5, 9)
        live.give_back()
        with pytest.raises(SliceRefused, match="it was an open window when its records were read, and is orders:0:0-9"):
            late.publish(chunk_of(live.key(0, 5), note="late"))
        assert [note for _, _, note in rows_of(engine)] == ["a"] * 9
        assert windows(engine) == [(0, 0, 9, False, "committed", 9)]

    def test_a_closed_window_is_a_slice_as_any_other(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()
        live.land(0, 5, bad=[3])
        live.land(5, 9)
        live.give_back()
        key = live.key(0, 9)
        [again] = Attempt(engine, [key], replaces=True).claim().publish(chunk_of(key, note="b"))
        assert again.attempt == 2
        assert [note for _, _, note in rows_of(engine)] == ["b"] * 9
        assert scalar(engine, "select count(*) from kafka_quarantine") == 0
        live.take().land(9, 12)
        assert [one[1:4] for one in windows(engine)] == [(0, 9, False), (9, 12, True)]
        assert whole(engine)

    def test_a_downstream_asset_gets_a_window_once_it_is_closed(self, engine: Engine) -> None:
        live = Live(engine, meet(engine)).take()
        live.land(0, 5)
        assert add_publications(engine, asset="below", stream=ASSET) == 0
        live.land(5, 9)
        assert whole(engine)
        live.give_back()
        assert add_publications(engine, asset="below", stream=ASSET) == 1
        assert [str(one.key) for one in due(engine, asset="below", limit=9, upstream=ASSET)] == ["orders:0:0-9"]
        assert due(engine, asset=ASSET, limit=9, topics=["orders"]) == []
        live.take().land(9, 12)
        assert whole(engine)

    # Beside sensors

    def test_a_leased_partition_is_planned_by_its_owner_alone(self, engine: Engine) -> None:
        source = meet(engine)
        live = Live(engine, source).take()
        live.land(0, 5)
        assert _plan(engine, source, 5, NewSlice(5, 10)) is None
        with pytest.raises(LeaseHeld, match="the live consumer live-1 holds it"):
            skip_ahead(engine, source, 0, expected=5, new=[NewSlice(5, 9, "skipped", "r")], asset=ASSET)
        assert _plan(engine, source, 5, NewSlice(5, 8, "lost", "expired"), owner="another") is None
        assert _plan(engine, source, 5, NewSlice(5, 8, "lost", "expired"), owner="live-1") == []
        assert [one[1:5] for one in windows(engine)] == [(0, 5, False, "committed"), (5, 8, False, None)]
        live.land(8, 10)
        assert [one[1:4] for one in windows(engine)] == [(0, 5, False), (5, 8, False), (8, 10, True)]
        assert committed_through(engine) == 10
        assert whole(engine)

    def test_once_the_lease_has_ended_the_sensor_closes_the_window_and_plans(self, engine: Engine) -> None:
        source = meet(engine)
        live = Live(engine, source).take()
        live.land(0, 5)
        assert end_live(engine, log=LOG) == []
        assert owners(engine) == ["live-1"]
        assert windows(engine)[0][3], "its lease stands"
        end_leases(engine)
        assert end_live(engine, log=LOG) == []
        assert windows(engine) == [(0, 0, 5, False, "committed", 5)]
        assert _plan(engine, source, 5, NewSlice(5, 9)) == [live.key(5, 9)]
        with pytest.raises(Fenced):
            live.land(5, 8)
        Attempt(engine, [live.key(5, 9)]).claim().publish()
        live.take()
        assert live.ready() == leases.Ready(9)
        live.land(9, 12)
        assert landed(engine) == list(range(12))
        assert whole(engine)

    def test_whoever_plans_after_an_open_window_closes_it_first(self, engine: Engine) -> None:
        source = meet(engine)
        Live(engine, source).take().land(0, 5)
        end_leases(engine)
        # A second sensor, whose janitor did not come by.
        assert _plan(engine, source, 5, NewSlice(5, 9)) is not None
        assert [one[1:4] for one in windows(engine)] == [(0, 5, False), (5, 9, False)]

    def test_a_sensor_observes_leased_partitions_and_says_whose_they_are(self, engine: Engine) -> None:
        source = meet(engine, partitions=2)
        Live(engine, source).take(1)
        at = {0: Offsets(0, 50, 50), 1: Offsets(0, 60, 60)}
        found = observe(engine, source, offsets=at, origins={}, asset=ASSET)
        assert [found[number].owner for number in (0, 1)] == [None, "live-1"]
        assert rows(engine, "select p.last_stable from kafka_progress p order by p.partition") == [(50,), (60,)]
        end_leases(engine)
        assert observe(engine, source, offsets=at, origins={}, asset=ASSET)[1].owner is None

    def test_a_topic_created_again_is_taken_from_its_owner(self, engine: Engine) -> None:
        source = meet(engine)
        live = Live(engine, source).take()
        live.land(0, 5)
        again = resolve_source(engine, stream=ASSET, topic="orders", topic_id="id-2")
        assert again.incarnation == 2
        assert owners(engine) == [None]
        assert [one[1:5] for one in windows(engine)] == [(0, 5, False, "committed"), (5, 100, False, None)]
        for looks in (True, False):
            with pytest.raises(Fenced):
                _publish(live, chunk_of(live.key(5, 8)), looks=looks)
        with pytest.raises(TopicChanged, match="was deleted and created again"):
            live.take()
        assert landed(engine) == [0, 1, 2, 3, 4]
        assert whole(engine)

    def test_whoever_catches_up_does_not_wait_for_what_is_live(self, engine: Engine) -> None:
        source = meet(engine, end=20)
        planned = _planned(engine, source, (0, 5))
        Live(engine, source).take()
        goal = ends_of(engine, assets=[ASSET])
        left = remaining(engine, goal)
        assert (left.offsets, left.unplanned, left.landable) == (5, 0, 1)
        Attempt(engine, planned).claim().publish()
        assert remaining(engine, goal).offsets == 0
        assert remaining(engine, goal, leased=True).offsets == 15, "whoever holds the lease has it still to land"
        end_leases(engine)
        left = remaining(engine, goal)
        assert (left.offsets, left.unplanned) == (15, 15)

    def test_an_operator_sees_who_lands_a_partition_and_what_is_open(self, engine: Engine) -> None:
        source = meet(engine, partitions=2)
        live = Live(engine, source).take(1)
        live.land(0, 5, 1)
        assert [one.owner for one in lags(engine, assets=[ASSET])] == [None, "live-1"]
        [listed] = list_slices(engine, stream=ASSET, asset=ASSET, state="open")
        assert (listed.key, listed.reason) == (live.key(0, 5, 1), "live-1 grows it")
        end_leases(engine)
        assert [one.owner for one in lags(engine, assets=[ASSET])] == [None, None]

    def test_open_windows_are_no_finding_of_any_check(self, engine: Engine) -> None:
        live = Live(engine, meet(engine, end=20)).take()
        live.land(0, 12, bad=[3])
        assert failing(judged(engine)) == set()
        live.land(12, 20)
        assert failing(judged(engine)) == set()


def lose_answers(monkeypatch: pytest.MonkeyPatch, *, committed: bool, then: Any = lambda: None) -> None:
    """The next live transaction's COMMIT gives no answer: after the server did it, or before."""
    advance, commit, armed = transaction.advance, doors._commit, list[object]()

    def arm(connection: Any, **where: Any) -> None:
        advance(connection, **where)
        if armed != ["fired"]:
            armed[:] = [connection.connection.driver_connection]

    def lose(connection: Any) -> None:
        if not armed or armed[0] is not connection.connection.driver_connection:
            commit(connection)
            return
        armed[:] = ["fired"]
        if committed:
            commit(connection)
        else:
            connection.rollback()
        then()
        raise OutcomeUnknown("the answer was lost, says the test", why="it was to be")

    monkeypatch.setattr(transaction, "advance", arm)
    monkeypatch.setattr(doors, "_commit", lose)


def _publish(live: Live, *chunks: Any, looks: bool) -> None:
    """With or without the plain look at where the partitions stand, which the locks must not rely on."""
    if looks:
        live.publish(*chunks)
        return
    with unlooked():
        live.publish(*chunks)


def _planned(engine: Engine, source: Source, *slices: tuple[int, int]) -> list[SliceKey]:
    found = _plan(engine, source, slices[0][0], *(NewSlice(*one) for one in slices))
    assert found is not None
    return found


def _plan(
    engine: Engine, source: Any, expected: int, *new: NewSlice, owner: str | None = None
) -> list[SliceKey] | None:
    return commit_plan(engine, source, 0, expected=expected, slices=new, asset=ASSET, owner=owner)


def _slice(engine: Engine) -> object:
    return scalar(engine, "select id from kafka_slice")
