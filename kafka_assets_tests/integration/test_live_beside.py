"""Live consumers on real servers: frozen, killed, and in the same moment as others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import Fenced, KafkaAssetsError, LedgerBusy, Retryable, SliceRefused
from kafka_assets.ledger import planning
from kafka_assets.ledger.claims import record_failure
from kafka_assets.ledger.janitor import end_expired, end_live
from kafka_assets.ledger.planning import commit_plan
from kafka_assets.ledger.windows import close_left
from kafka_assets.plan import NewSlice, Offsets
from kafka_assets.sinks import live as transaction
from kafka_assets.sinks import publish as publishing
from kafka_assets.sinks.batch import WindowPolicy
from kafka_assets.slices import SliceKey
from kafka_assets_tests import upserts
from kafka_assets_tests.integration.faults import both, lose_in_commit, notes
from kafka_assets_tests.integration.owner import MODULE
from kafka_assets_tests.integration.publisher import Frozen
from kafka_assets_tests.ledgers import ASSET, Attempt, chunk_of, committed_through, rows, rows_of, scalar, target
from kafka_assets_tests.lives import Live, end_leases, landed, meet, owners, whole, windows
from kafka_assets_tests.upserts import Gone, Put

ENCRYPTED = True
"""As users of MySQL speak to it: what a broken connection says is another error there."""
LOG = logging.getLogger(__name__)
FROZEN = SliceKey("orders", 1, 0, 0, 500)


@pytest.mark.parametrize("where", ["copy", "moved", "advanced"])
def test_a_frozen_owner_is_ended_and_its_partition_taken_over(engine: Engine, where: str) -> None:
    target(engine)
    source = meet(engine, end=1000)
    with Frozen(engine, where, [FROZEN], module=MODULE) as frozen:
        heir = Live(engine, source, "heir").take()
        heir.land(0, 500, note="heir")
        assert notes(engine) == {"heir"}
        assert frozen.woken() == "Fenced"
    assert notes(engine) == {"heir"}
    assert windows(engine) == [(0, 0, 500, True, "committed", 500)]
    assert whole(engine)


@pytest.mark.parametrize("where", ["copy", "moved"])
def test_the_sensor_ends_a_frozen_owner_before_it_plans(engine: Engine, where: str) -> None:
    target(engine)
    source = meet(engine, end=1000)
    with Frozen(engine, where, [FROZEN], module=MODULE) as frozen:
        assert end_live(engine, log=LOG) == []
        assert owners(engine) == [None]
        [key] = _plan(engine, source, 0, NewSlice(0, 1000)) or []
        Attempt(engine, [key]).claim().publish()
        assert frozen.woken() == "Fenced"
    assert landed(engine) == list(range(1000))
    assert whole(engine)


def test_what_a_killed_owner_had_inserted_is_gone_and_holds_no_lock(engine: Engine) -> None:
    target(engine)
    source = meet(engine, end=1000)
    with Frozen(engine, "advanced", [FROZEN], module=MODULE) as frozen:
        frozen.kill()
    assert rows_of(engine) == []
    Live(engine, source, "heir").take().land(0, 500)
    assert len(rows_of(engine)) == 500


@pytest.mark.parametrize("committed", [True, False])
def test_a_connection_lost_during_commit_is_asked_about(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    live = Live(engine, meet(engine)).take()
    live.land(0, 5)
    lose_in_commit(engine, monkeypatch, after=committed, last=(transaction, "advance"))
    live.land(5, 9)
    live.land(9, 12)
    assert windows(engine) == [(0, 0, 12, True, "committed", 12)]
    assert landed(engine) == list(range(12))


def test_a_window_that_grows_at_this_moment_is_not_closed(engine: Engine) -> None:
    live = Live(engine, meet(engine)).take()
    live.land(0, 5)
    end_leases(engine)
    with standing_after("lock_window", lambda: live.land(5, 9)):
        assert close_left(engine) == []
    assert windows(engine) == [(0, 0, 9, True, "committed", 9)]
    end_leases(engine)
    assert close_left(engine) == [live.key(0, 9)]


def test_a_window_that_was_closed_since_the_owner_looked_does_not_grow(engine: Engine) -> None:
    live = Live(engine, meet(engine)).take()
    live.land(0, 5)
    end_leases(engine)
    with standing_after("parts_of", lambda: live.land(5, 9)):
        assert close_left(engine) == [live.key(0, 5)]
    assert [one[1:4] for one in windows(engine)] == [(0, 5, False), (5, 9, True)]
    assert landed(engine) == list(range(9))
    assert whole(engine)


def test_a_sensor_does_not_wait_for_a_live_commit(engine: Engine) -> None:
    source = meet(engine, partitions=2)
    live = Live(engine, source).take(0)
    at = dict.fromkeys((0, 1), Offsets(0, 300, 300))
    live.land(0, 5)
    with standing_after("advance", lambda: live.land(5, 9)):
        began = time.monotonic()
        found = planning.observe(engine, source, offsets=at, origins={}, asset=ASSET)
        assert time.monotonic() - began < 1.5, "it waited for the lock, of which it has two seconds"
    assert found[0].owner == "live-1"
    assert rows(engine, "select p.last_stable from kafka_progress p order by p.partition") == [(100,), (300,)]


@pytest.mark.parametrize("owner_first", [False, True])
def test_a_run_and_an_owner_that_commit_at_the_same_time_leave_committed_through_right(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, owner_first: bool
) -> None:
    source = meet(engine)
    [key] = _plan(engine, source, 0, NewSlice(0, 5)) or []
    live = Live(engine, source).take()
    attempt = Attempt(engine, [key]).claim()
    there, locked = threading.Event(), threading.Event()

    def one_after_the_other(module: Any, name: str, *, first: bool) -> None:
        advance = getattr(module, name)

        def then(*given: Any, **where: Any) -> None:
            if first:
                there.wait(10)
                advance(*given, **where)
                locked.set()
                time.sleep(0.7)  # the other one waits for the row by now
            else:
                there.set()
                locked.wait(10)
                advance(*given, **where)

        monkeypatch.setattr(module, name, then)

    one_after_the_other(publishing, "_advance", first=not owner_first)
    one_after_the_other(transaction, "advance", first=owner_first)
    # It need not have waited for what is planned: that is for upsert's sake, and whoever reads in order.
    both(attempt.publish, lambda: live.land(5, 9))
    assert committed_through(engine) == 9
    assert whole(engine)


@pytest.mark.parametrize("upsert", [False, True], ids=["append", "upsert"])
def test_owners_sensors_and_replays_side_by_side_are_exact_and_never_wait_in_a_circle(
    engine: Engine, upsert: bool
) -> None:
    partitions, batches, size = 4, 12, 5
    source = meet(engine, partitions=partitions, end=batches * size)
    table = upserts.target(engine) if upsert else target(engine)
    busy: list[str] = []
    done = threading.Event()

    def batch_of(key: SliceKey, note: str) -> Any:
        if not upsert:
            return chunk_of(key, note=note)
        records = [
            Gone(offset, 100 * key.partition + offset % 4) if offset % 5 == 4 else
            Put(offset, 100 * key.partition + offset % 4, note)
            for offset in range(key.start, key.end)
        ]  # fmt: skip
        return upserts.chunk_of(key, *records)

    def own(*mine: int) -> None:
        live = Live(engine, source, f"live-{mine[0]}", table=table, window=WindowPolicy(3600, 2 * size)).take(*mine)
        for number in range(batches):
            keys = [live.key(number * size, (number + 1) * size, partition) for partition in mine]
            live.publish(*(batch_of(key, "live") for key in keys))
        live.give_back()

    def tick() -> None:
        at = dict.fromkeys(range(partitions), Offsets(0, batches * size, batches * size))
        while not done.wait(0.05):
            with _noting(busy):
                end_expired(engine, log=LOG)
                end_live(engine, log=LOG)
                found = planning.observe(engine, source, offsets=at, origins={}, asset=ASSET)
                for partition, progress in found.items():
                    if progress.owner is None and progress.planned_through < batches * size:
                        commit_plan(
                            engine, source, partition, expected=progress.planned_through,
                            slices=[NewSlice(progress.planned_through, batches * size)], asset=ASSET,
                        )  # fmt: skip

    def replay() -> None:
        while not done.wait(0.05):
            closed = [one[:3] for one in windows(engine) if not one[3] and one[0] < 3]
            for partition, start, end in closed[-2:]:
                key = SliceKey("orders", 1, partition, start, end)
                attempt = Attempt(engine, [key], replaces=True, run_id="replay")
                with _noting(busy):
                    try:
                        attempt.claim(force=True).publish(batch_of(key, "replay"), table=table)
                    except (Fenced, SliceRefused) as error:
                        record_failure(engine, attempt.claims, reason=str(error), max_attempts=99)

    def all_owners() -> None:
        try:
            both(lambda: own(0), lambda: own(1, 2))
        finally:
            done.set()

    # Partition 3 is the sensor's: nobody lands its slice here.
    both(all_owners, tick, replay)
    assert busy == []
    assert [one for one in windows(engine) if one[3]] == []
    for partition in range(3):
        assert committed_through(engine, partition) == batches * size
        if not upsert:
            assert landed(engine, partition) == list(range(batches * size))
    if upsert:
        last = {}
        for partition in range(3):
            for offset in range(batches * size):
                last[100 * partition + offset % 4] = offset % 5 == 4
        assert sorted(upserts.standing(engine)) == sorted(key for key, gone in last.items() if not gone)
    assert (
        scalar(engine, "select sum(records_read) from kafka_publication where state = 'committed'")
        == 3 * batches * size
    )
    assert whole(engine)


@contextmanager
def standing_after(step: str, work: Callable[[], object]) -> Iterator[None]:
    """The live transaction of `work`, in a thread of its own, stands still after a step while the block lasts."""
    there, on = threading.Event(), threading.Event()
    real, errors = getattr(transaction, step), list[BaseException]()

    def then(*given: Any, **more: Any) -> Any:
        result = real(*given, **more)
        if not there.is_set():
            there.set()
            on.wait(20)
        return result

    def run() -> None:
        try:
            work()
        except KafkaAssetsError as error:
            errors.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, step, then)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert there.wait(20)
            yield
        finally:
            on.set()
            thread.join(30)
    assert errors == []


@contextmanager
def _noting(busy: list[str]) -> Iterator[None]:
    """What was given up although it was tried again: somebody waited in a circle, or for too long."""
    try:
        yield
    except LedgerBusy as error:
        busy.append(str(error))
    except Retryable:
        pass


def _plan(engine: Engine, source: Any, expected: int, *new: NewSlice) -> list[SliceKey] | None:
    return commit_plan(engine, source, 0, expected=expected, slices=new, asset=ASSET)
