"""Locks are taken in one order, whatever order a run has its slices in, and none of them is held for ever."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from sqlalchemy import Engine, text

from kafka_assets.ledger import claims, publishing, sources
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets.ledger.fences import verify_attempts
from kafka_assets.ledger.publications import find, lock
from kafka_assets.sinks import merge
from kafka_assets_tests.integration.databases import held
from kafka_assets_tests.integration.faults import counted_tries
from kafka_assets_tests.ledgers import ASSET, Attempt, committed_through, plan, rows, rows_of, target
from kafka_assets_tests.upserts import Put, land, standing


@pytest.mark.parametrize("step", ["lock", "claim", "verify", "register"])
def test_whoever_waits_for_the_first_of_two_slices_does_not_hold_the_second(engine: Engine, step: str) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 9)])
    backwards = list(reversed(find(engine, asset=ASSET, keys=keys).values()))
    assert backwards[0].id > backwards[1].id
    mine = list(reversed(Attempt(engine, keys).claim().claims))
    name, column = ("kafka_publication", "id") if step == "lock" else ("kafka_claim", "publication_id")

    def wait() -> None:
        if step == "claim":
            claims.claim(engine, backwards, run_id="late", force=True)
        elif step == "register":
            claims.register_backend(engine, mine, "mine")
        else:
            with write(engine) as connection:
                if step == "lock":
                    lock(connection, [one.id for one in backwards])
                else:
                    verify_attempts(connection, mine)

    first = f"select 1 from {name} where {column} = {backwards[1].id} for update"
    second = f"select 1 from {name} where {column} = {backwards[0].id} for update nowait"
    with held(engine, first) as other:
        late = threading.Thread(target=wait)
        late.start()
        time.sleep(0.7)  # it waits by now
        assert late.is_alive()
        with write(engine) as connection:
            connection.execute(text(second))
        other.rollback()
        late.join()


def test_a_publisher_that_is_frozen_in_its_merge_does_not_keep_the_asset_s_lock(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    [key] = plan(engine, slices=[(0, 1)])
    tries = counted_tries(monkeypatch)
    settle = merge.Merge.settle

    def slowly_once(self: merge.Merge, **given: Any) -> Any:
        if len(tries) == 1:
            time.sleep(2.5)
        return settle(self, **given)

    monkeypatch.setattr(merge.Merge, "settle", slowly_once)
    monkeypatch.setattr(merge, "IDLE_SECONDS", 1)
    monkeypatch.setattr(merge, "_LOCK_SECONDS", 2)
    impatient = make_engine(engine.url, lock_seconds=2, idle_seconds=1)
    land(impatient, key, Put(0, 7))
    assert len(tries) == 2
    assert standing(engine) == {7: "a"}


def test_a_result_is_asked_for_under_the_lock_that_a_backend_in_its_commit_holds(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain read would see the row as it was, while the old backend commits."""
    keys = plan(engine, slices=[(0, 5)])
    mine = Attempt(engine, keys).claim().claims
    monkeypatch.setattr(publishing, "terminate", lambda *given: True)
    answers: list[bool] = []
    late = threading.Thread(target=lambda: answers.append(publishing._committed(engine, mine, "its backend")))
    with held(engine, "select id from kafka_publication for update") as other:
        late.start()
        time.sleep(0.7)
        assert answers == []
        other.rollback()
        late.join()
    assert answers == [False]


def test_what_commits_while_its_topic_is_retired_never_becomes_lost(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at what is not committed and its lock there is time for a publisher."""
    committing, left = plan(engine, slices=[(0, 5), (5, 8)])
    attempt = Attempt(engine, [committing]).claim()
    target(engine)
    lock_them = sources.lock_rows

    def after_a_commit(*given: Any, **how: Any) -> None:
        attempt.publish()
        lock_them(*given, **how)

    monkeypatch.setattr(sources, "lock_rows", after_a_commit)
    sources.make_sources(engine, stream=ASSET, topics={"orders": "id-2"})
    kinds = rows(engine, "select start_offset, kind from kafka_slice order by start_offset")
    assert kinds == [(committing.start, "normal"), (left.start, "lost")]
    assert len(rows_of(engine)) == 5
    assert committed_through(engine) == 8
    assert rows(engine, "select * from kafka_gap") == []
