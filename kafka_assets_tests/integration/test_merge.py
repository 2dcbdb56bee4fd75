"""The merge on real servers: the suite that all databases share, and two publishers at once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from sqlalchemy import Engine, text

from kafka_assets.errors import CountsDisagree
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.sinks.merge import Merge
from kafka_assets_tests.integration.databases import LOCK_SECONDS, emptied, held
from kafka_assets_tests.ledgers import plan, scalar
from kafka_assets_tests.merge_contract import MergeContract
from kafka_assets_tests.upserts import Gone, Put, land, standing, target, tombstones


class TestMergeOnServers(MergeContract):
    """The engine is of each server."""

    # What SQLite goes through exhaustively, in few: every order of three slices, and then each of them again.
    histories: ClassVar[dict[str, list[tuple[int, ...]]]] = {
        "put gone put": [(*order, 0, 1, 2) for order in itertools.permutations(range(3))]
    }

    @pytest.mark.parametrize("locked", [True, False], ids=["", "without the lock it comes back"])
    def test_an_older_row_waits_for_a_tombstone_that_is_not_committed_yet(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, locked: bool
    ) -> None:
        first, second, third = plan(engine, slices=[(0, 1), (1, 2), (2, 3)])
        target(engine)
        merged, both = threading.Event(), threading.Event()
        settle = Merge.settle

        def slowly(self: Merge, *, deletes: bool, topics: Any) -> Generator[Any, None, Any]:
            won = yield from settle(self, deletes=deletes, topics=topics)
            if deletes:
                # The tombstone is written, and not committed: the older row is on its way meanwhile.
                merged.set()
                both.wait(2)
            return won

        monkeypatch.setattr(Merge, "settle", slowly)
        if not locked:
            monkeypatch.setattr(Merge, "lock", lambda self: None)

        def older() -> None:
            merged.wait(10)
            land(engine, first, Put(0, 7, "older"))
            both.set()

        _at_once(lambda: land(engine, second, Gone(1, 7)), older)
        if not locked:
            assert standing(engine) == {7: "older"}
            return
        assert standing(engine) == {}
        assert tombstones(engine) == ['{"id":7}']
        land(engine, third, Put(2, 7, "back"))
        assert standing(engine) == {7: "back"}

    def test_a_row_that_somebody_else_brings_meanwhile_is_overwritten(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Elsewhere than on PostgreSQL only where all keys are new: one statement is enough to write them then."""
        both = engine.dialect.name == "postgresql"
        for stands in (False, True) if both else (False,):
            emptied(engine)
            before, later = plan(engine, slices=[(0, 1), (1, 3)])
            target(engine)
            if stands:
                land(engine, before, Put(0, 7, "old"))
            with monkeypatch.context() as patch:
                _bring_before_insert(patch, engine)
                land(engine, later, Put(1, 7, "new"), Put(2, 9, "newer"))
            assert standing(engine) == {7: "new", 9: "newer"}
            assert scalar(engine, "select count(*) from kafka_quarantine") == 0

    def test_many_publishers_of_one_key_leave_its_last_version(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(number, number + 1) for number in range(6)])
        target(engine)
        records = [Put(0, 7, "0"), Gone(1, 7), Put(2, 7, "2"), Gone(3, 7), Put(4, 7, "4"), Gone(5, 7)]
        ready = threading.Barrier(len(keys))

        def publish(number: int) -> Callable[[], object]:
            return lambda: land(engine, keys[number], records[number], confirm=lambda seen: ready.wait(20) and None)

        _at_once(*(publish(number) for number in reversed(range(6))))
        assert standing(engine) == {}
        land(engine, keys[4], records[4])
        assert standing(engine) == {}

    def test_only_the_merge_takes_the_asset_s_lock(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 1)])
        target(engine)
        asked = threading.Event()
        with held(engine, "select table_name from kafka_target for update") as other:
            late = threading.Thread(
                target=lambda: land(engine, key, Put(0, 7), confirm=lambda seen: asked.set())  # and then it waits
            )
            late.start()
            assert asked.wait(10)
            # Longer than any other lock is waited for here: the records are not read again.
            time.sleep(LOCK_SECONDS + 0.5)
            asked.clear()
            assert standing(engine) == {}
            other.rollback()
            late.join()
        assert standing(engine) == {7: "a"}
        assert not asked.is_set()


QUIET = (
    "create function nothing() returns trigger language plpgsql as 'begin return null; end'",
    "create trigger quiet before insert on orders for each row when (new.id = 8) execute function nothing()",
    "create trigger kept before delete on orders for each row when (old.id = 7) execute function nothing()",
)


def test_a_row_that_a_trigger_leaves_as_it_is_without_a_word_is_missed(postgresql_url: str) -> None:
    engine = make_engine(postgresql_url)
    ensure_schema(engine)
    first, second, third = plan(engine, slices=[(0, 1), (1, 3), (3, 4)])
    land(engine, first, Put(0, 7, "old"))
    with write(engine) as connection:
        for statement in QUIET:
            connection.exec_driver_sql(statement)
    with pytest.raises(CountsDisagree, match="2 rows were sent to the table 'orders', and 1 arrived"):
        land(engine, second, Put(1, 7, "new"), Put(2, 8, "new"))
    with pytest.raises(CountsDisagree, match="deletes a row of the table 'orders', and it is still there"):
        land(engine, third, Gone(3, 7))
    assert standing(engine) == {7: "old"}


def _at_once(*todo: Callable[[], object]) -> None:
    with ThreadPoolExecutor(len(todo)) as pool:
        for one in [pool.submit(one) for one in todo]:
            one.result()


def _bring_before_insert(patch: pytest.MonkeyPatch, engine: Engine) -> None:
    """Somebody who knows nothing of the asset's lock commits a row just before the merge inserts its own."""
    run, done = Merge._run, list[bool]()

    def meanwhile(self: Merge, statement: str) -> int:
        if statement.strip().startswith("INSERT INTO") and not done:
            done.append(True)
            with write(engine) as other:
                other.execute(
                    text(
                        "insert into orders (id, note, kafka_source, kafka_incarnation, kafka_partition, kafka_offset)"
                        " values (9, 'theirs', 1, 1, 0, 0)"
                    )
                )
        return run(self, statement)

    patch.setattr(Merge, "_run", meanwhile)
