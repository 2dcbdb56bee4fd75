"""What becomes of rows that only the database refuses, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import RowsRefused, SliceFailed
from kafka_assets.ledger.engine import write
from kafka_assets.records import BadRecord
from kafka_assets.sinks import rounds
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.publish import Published
from kafka_assets.sinks.refusals import not_again
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Upsert
from kafka_assets_tests import ledgers
from kafka_assets_tests.ledgers import ASSET, Attempt, plan, quoted, rows, scalar
from kafka_assets_tests.upserts import BY_OFFSET, SCHEMA, Gone, Put, chunk_of, counts, standing

GOOD, BAD = 1, 3
"""Values of `rank`: what each rule takes, and what it refuses."""
RULES = {
    "check": "(?i)check|constraint",
    "foreign key": "(?i)foreign key",
    "deferred foreign key": "(?i)foreign key",
    "trigger": "no threes",
}
MODES = pytest.mark.parametrize("upsert", [None, BY_OFFSET], ids=["append", "upsert"])


class RefusalsContract:
    @pytest.fixture(autouse=True)
    def _dropped(self, engine: Engine) -> Iterator[None]:
        """Tables that refer to each other are dropped in order; the next test may not know it."""
        yield
        run(engine, "drop table if exists children", "drop table if exists orders", "drop table if exists parents")

    @MODES
    @pytest.mark.parametrize("rule", list(RULES))
    def test_culprits_are_quarantined_and_the_rest_lands(
        self, engine: Engine, rule: str, upsert: Upsert | None
    ) -> None:
        if rule.startswith("deferred") and engine.dialect.name not in {"postgresql", "sqlite"}:
            return  # the others know no such thing
        [key] = plan(engine, slices=[(0, 60)])
        target(engine, upsert)
        declare(engine, rule)
        culprits = [0, 17, 18, 40, 59]
        records = [Put(offset, offset, at=BAD if offset in culprits else GOOD) for offset in range(60)]
        land(engine, key, *records, upsert=upsert)
        assert sorted(standing(engine)) == [offset for offset in range(60) if offset not in culprits]
        assert counts(engine) == [(60, 55, 0, 0, 5, 0)]
        kept = rows(
            engine,
            f"select kafka_offset, {quoted(engine, 'key')}, value, headers, kafka_timestamp, reason"
            " from kafka_quarantine order by kafka_offset",
        )
        headers = '[{"key": "h", "base64": "/w=="}]'
        assert [row[:5] for row in kept] == [(at, b"k%d" % at, b"v", headers, at) for at in culprits]
        for *_, reason in kept:
            assert re.search(RULES[rule], reason)
        # What was bad may be good under a corrected rule.
        lift(engine, rule)
        land(engine, key, *records, upsert=upsert)
        assert sorted(standing(engine)) == list(range(60))
        assert scalar(engine, "select count(*) from kafka_quarantine") == 0
        assert counts(engine) == [(60, 60, 0, 0, 0, 0)]

    @MODES
    @pytest.mark.parametrize("deferred", [False, True], ids=["", "deferred"])
    def test_of_two_rows_that_exclude_each_other_the_earlier_one_stays(
        self, engine: Engine, upsert: Upsert | None, deferred: bool
    ) -> None:
        if deferred and engine.dialect.name != "postgresql":
            return
        first, second = plan(engine, slices=[(0, 5), (5, 9)])
        target(engine, upsert)
        name = quoted(engine, "rank")
        constrain(engine, f"constraint one_rank unique ({name})" + " deferrable initially deferred" * deferred)
        land(engine, first, *(Put(at, at, at=rank) for at, rank in enumerate([1, 2, 2, 3, 1])), upsert=upsert)
        assert sorted(standing(engine)) == [0, 1, 3]
        land(engine, second, Put(5, 5, at=3), Put(6, 6, at=4), upsert=upsert)
        assert sorted(standing(engine)) == [0, 1, 3, 6]
        assert rows(engine, "select kafka_offset from kafka_quarantine order by kafka_offset") == [(2,), (4,), (5,)]

    @MODES
    def test_any_culprit_fails_a_slice_that_may_have_none(self, engine: Engine, upsert: Upsert | None) -> None:
        [key] = plan(engine, slices=[(0, 4)])
        target(engine, upsert)
        declare(engine, "check")
        records = [Put(0, 0, at=GOOD), Put(1, 1, at=BAD)]
        with pytest.raises(SliceFailed, match=r"on_bad: fail.*(?i:constraint|check)"):
            land(engine, key, *records, upsert=upsert, policy=BadPolicy("fail", 1.0))
        assert standing(engine) == {}
        assert scalar(engine, "select count(*) from kafka_quarantine") == 0

    @MODES
    def test_too_many_culprits_fail_the_slice_and_no_more_are_looked_for(
        self, engine: Engine, upsert: Upsert | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [key] = plan(engine, slices=[(0, 500)])
        target(engine, upsert)
        declare(engine, "check")
        asked: list[object] = []
        monkeypatch.setattr(ledgers, "fetch", asked.append)
        with pytest.raises(SliceFailed, match="has 100 bad records of 500, more than max_bad_ratio"):
            land(engine, key, *(Put(at, at, at=BAD if at % 2 else GOOD) for at in range(500)), upsert=upsert)
        assert standing(engine) == {}
        assert asked == []

    @MODES
    def test_what_comes_bad_and_what_the_table_refuses_count_together(
        self, engine: Engine, upsert: Upsert | None
    ) -> None:
        [key] = plan(engine, slices=[(0, 300)])
        target(engine, upsert)
        declare(engine, "check")
        spoiled = tuple(BadRecord(0, at, "no good", None, None, (), 1) for at in range(60))
        records = [Put(at, at, at=BAD if at < 100 else GOOD) for at in range(60, 300)]
        chunk = chunk_of(key, *records, read=300)
        chunk = replace(chunk, bad=spoiled, seen={key: replace(chunk.seen[key], bad=len(spoiled))})
        for ratio, lands in ((0.3, False), (0.4, True)):
            attempt = Attempt(engine, [key]).claim(force=True)
            try:
                attempt.publish(chunk, table=target(engine, upsert), policy=BadPolicy("quarantine", ratio))
            except SliceFailed:
                assert not lands
            assert len(standing(engine)) == (200 if lands else 0)
        assert counts(engine) == [(300, 200, 0, 0, 100, 0)]
        assert scalar(engine, "select count(*) from kafka_quarantine") == 100

    @MODES
    def test_a_record_that_became_two_rows_is_no_culprit(self, engine: Engine, upsert: Upsert | None) -> None:
        [key] = plan(engine, slices=[(0, 4)])
        target(engine, upsert)
        declare(engine, "check")
        for twice in ([Put(1, 1, at=GOOD), Put(1, 2, at=GOOD)], [Put(1, 1, at=BAD), Put(1, 2, at=GOOD)]):
            if upsert is not None and twice[0].at == BAD:
                continue  # only the merge would look at the rule, and the record's two rows fail before
            with pytest.raises(RowsRefused, match="one row per record"):
                land(engine, key, Put(0, 0, at=GOOD), *twice, Put(2, 3, at=BAD), upsert=upsert)
            assert standing(engine) == {}
            assert scalar(engine, "select count(*) from kafka_quarantine") == 0

    def test_a_row_of_a_record_in_another_chunk_is_no_culprit(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 4)])
        chunks = [chunk_of(key, Put(0, 0), Put(1, 1)), chunk_of(key, Put(1, 2), Put(3, 3))]
        with pytest.raises(RowsRefused, match="one row per record"):
            Attempt(engine, [key]).claim().publish(*chunks, table=target(engine, None))
        assert standing(engine) == {}

    def test_a_refused_version_lets_the_one_before_it_win(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 6)])
        target(engine, BY_OFFSET)
        declare(engine, "check")
        versions = [Put(0, 7, "first", at=GOOD), *(Put(at, 7, "no", at=BAD) for at in range(1, 4)), Put(4, 8, at=GOOD)]
        land(engine, key, *versions, upsert=BY_OFFSET)
        assert standing(engine) == {7: "first", 8: "a"}
        assert counts(engine) == [(5, 2, 0, 0, 3, 0)]

    def test_a_refused_version_leaves_the_row_that_stands(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 2), (2, 4)])
        target(engine, BY_OFFSET)
        declare(engine, "check")
        land(engine, first, Put(0, 7, "first", at=GOOD), Put(1, 8, "first", at=GOOD), upsert=BY_OFFSET)
        land(engine, second, Put(2, 7, "no", at=BAD), Put(3, 8, "second", at=GOOD), upsert=BY_OFFSET)
        assert standing(engine) == {7: "first", 8: "second"}

    def test_a_delete_that_the_table_refuses_is_quarantined(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 3), (3, 6)])
        target(engine, BY_OFFSET)
        land(engine, first, *(Put(at, at) for at in range(3)), upsert=BY_OFFSET)
        run(
            engine,
            "create table children (id bigint primary key, foreign key (id) references orders (id))",
            "insert into children values (1)",
        )
        land(engine, second, *(Gone(at + 3, at) for at in range(3)), upsert=BY_OFFSET)
        assert sorted(standing(engine)) == [1]
        assert counts(engine)[1] == (3, 0, 0, 0, 1, 2)
        assert rows(engine, "select kafka_offset from kafka_quarantine") == [(4,)]

    def test_a_replay_of_rows_that_others_refer_to_is_refused_with_the_cure(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 3)])
        target(engine, None)
        land(engine, key, *(Put(at, at) for at in range(3)), upsert=None)
        place = "kafka_source, kafka_partition, kafka_offset"
        kinds = "kafka_source bigint, kafka_partition integer, kafka_offset bigint"
        refers = f"foreign key ({place}) references orders ({place})"
        fill = f"insert into children select {place} from orders where id = 1"
        run(engine, f"create table children ({kinds}, {refers})", fill)
        with pytest.raises(
            RowsRefused, match=r"(?s)orders:0:0-3 cannot be replaced.*(?i:foreign key).*ON DELETE CASCADE"
        ):
            land(engine, key, *(Put(at, at, "again") for at in range(3)), upsert=None)
        assert standing(engine) == dict.fromkeys(range(3), "a")
        run(engine, "drop table children", f"create table children ({kinds}, {refers} on delete cascade)", fill)
        land(engine, key, *(Put(at, at, "again") for at in range(3)), upsert=None)
        assert standing(engine) == dict.fromkeys(range(3), "again")

    def test_a_key_whose_versions_are_all_refused_ends_in_the_end(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rounds, "ROUNDS", 3)
        [key] = plan(engine, slices=[(0, 9)])
        target(engine, BY_OFFSET)
        declare(engine, "check")
        with pytest.raises(RowsRefused, match="ever more records"):
            land(engine, key, *(Put(at, 7, at=BAD) for at in range(9)), upsert=BY_OFFSET)
        assert standing(engine) == {}

    @MODES
    def test_a_culprit_that_kafka_does_not_give_again_fails_the_slice(
        self, engine: Engine, upsert: Upsert | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [key] = plan(engine, slices=[(0, 4)])
        target(engine, upsert)
        declare(engine, "check")
        monkeypatch.setattr(ledgers, "fetch", not_again)
        with pytest.raises(RowsRefused, match="at offset 1 of partition 0"):
            land(engine, key, Put(0, 0, at=GOOD), Put(1, 1, at=BAD), upsert=upsert)
        assert standing(engine) == {}


def target(engine: Engine, upsert: Upsert | None) -> Table:
    return ensure_table(engine, road_for(engine), name="orders", asset=ASSET, schema=SCHEMA, upsert=upsert)


def land(
    engine: Engine,
    key: SliceKey,
    *records: Put | Gone,
    upsert: Upsert | None,
    policy: BadPolicy | None = None,
) -> Sequence[Published]:
    attempt = Attempt(engine, [key], replaces=True).claim(force=True)
    return attempt.publish(chunk_of(key, *records), table=target(engine, upsert), policy=policy)


def constrain(engine: Engine, clause: str) -> None:
    """Add a constraint to the table; SQLite has none added, so there the table is made anew."""
    if engine.dialect.name != "sqlite":
        run(engine, f"alter table orders add {clause}")
        return
    made = str(scalar(engine, "select sql from sqlite_master where name = 'orders'"))
    head, _, tail = made.rpartition("\n)")
    _remade(engine, f"{head},\n  {clause}\n){tail}")


def declare(engine: Engine, rule: str) -> None:
    """A rule that refuses a `rank` of 3."""
    rank = quoted(engine, "rank")
    if rule == "check":
        constrain(engine, f"constraint no_threes check ({rank} <> {BAD})")
    elif rule == "trigger":
        run(engine, *TRIGGERS[engine.dialect.name])
    else:
        run(engine, "create table parents (id integer primary key)", f"insert into parents values ({GOOD})")
        deferred = " deferrable initially deferred" if rule.startswith("deferred") else ""
        constrain(engine, f"constraint no_threes foreign key ({rank}) references parents (id){deferred}")


def lift(engine: Engine, rule: str) -> None:
    """What somebody does who finds records in quarantine that are good."""
    if rule == "trigger":
        run(engine, "drop trigger no_threes" + (" on orders" if engine.dialect.name == "postgresql" else ""))
    elif rule.endswith("key"):
        run(engine, f"insert into parents values ({BAD})")
    elif engine.dialect.name == "sqlite":
        made = str(scalar(engine, "select sql from sqlite_master where name = 'orders'"))
        _remade(engine, made.replace("<>", "is not null or 0 <>"))
    else:
        run(engine, "alter table orders drop constraint no_threes")


TRIGGERS = {
    "sqlite": [
        "create trigger no_threes before insert on orders when new.rank = 3 begin select raise(abort, 'no threes'); end"
    ],
    "postgresql": [
        "create or replace function no_threes() returns trigger language plpgsql as"
        " $$ begin if new.rank = 3 then raise exception 'no threes'; end if; return new; end $$",
        "create trigger no_threes before insert on orders for each row execute function no_threes()",
    ],
}
TRIGGERS["mysql"] = TRIGGERS["mariadb"] = [
    "create trigger no_threes before insert on orders for each row begin if new.`rank` = 3 then"
    " signal sqlstate '45000' set message_text = 'no threes'; end if; end"
]


def _remade(engine: Engine, statement: str) -> None:
    # Its rows go along: only what is empty, or replayed, is made anew.
    run(engine, "drop table orders", statement)


def run(engine: Engine, *statements: str) -> None:
    for statement in statements:
        with write(engine) as connection:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
