"""What an asset made of another one's slices promises, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlalchemy import Engine, event

from kafka_assets.errors import KeysUnknown, RowsRefused, SliceRefused, UpstreamChanged
from kafka_assets.ledger import derived
from kafka_assets.ledger.claims import claim
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.gone import leave_gone
from kafka_assets.ledger.health import gaps_of
from kafka_assets.ledger.publications import find
from kafka_assets.ledger.requests import due
from kafka_assets.records import Chunk, Refused, Seen
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.committed_rows import CommittedRows, committed_rows
from kafka_assets.sinks.publish import Published, Work, publish
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import ASSET, SCHEMA, Attempt, chunk_of, plan, quoted, rows, scalar
from kafka_assets_tests.ledgers import target as upstream_target
from kafka_assets_tests.tables_contract import LINEAGE

BELOW = "below"


class DownstreamContract:
    def test_what_the_upstream_committed_lands_once_with_counts_of_its_own(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5), (5, 9)])
        upstream(engine, *keys)
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 2
        below(engine, *keys)
        assert landed(engine) == [0, 2, 4, 6, 8]
        assert books(engine) == [(5, 3, 2, 0, "orders@1"), (4, 2, 2, 0, "orders@1")]
        assert through(engine) == 9
        assert gaps_of(engine, stream=ASSET, asset=BELOW) == []
        # A run of the sensor's has nothing to do for what is committed; a replay replaces.
        [again] = below(engine, keys[0], replaces=False)
        assert again.outcome is None
        below(engine, keys[0])
        assert landed(engine) == [0, 2, 4, 6, 8]
        assert scalar(engine, "select max(committed_attempt) from kafka_publication where asset = 'below'") == 3

    def test_offsets_without_a_row_upstream_are_its_holes(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        upstream(engine, key, chunk=chunk_of(key, offsets=[1, 4], read_count=5))
        add_publications(engine, asset=BELOW, stream=ASSET)
        below(engine, key)
        assert books(engine) == [(2, 1, 1, 3, "orders@1")]

    def test_an_upstream_replayed_while_it_is_read_fails_it_and_nothing_is_written(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5), (5, 9)])
        upstream(engine, *keys)
        add_publications(engine, asset=BELOW, stream=ASSET)
        read = source(engine, *keys)
        upstream(engine, keys[1], note="b")
        with pytest.raises(UpstreamChanged, match=r"5-9 of 'orders' was replayed .* attempt 1 was read.* attempt 2"):
            below(engine, *keys, read=read)
        assert landed(engine) == []
        assert through(engine) == 0
        below(engine, *keys)
        assert notes(engine) == {"a", "b"}
        assert [row[4] for row in books(engine)] == ["orders@1", "orders@2"]

    def test_an_upstream_taken_out_while_it_is_read_fails_it(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        upstream(engine, key)
        add_publications(engine, asset=BELOW, stream=ASSET)
        read = source(engine, key)
        undone = "state = 'planned', committed_attempt = null, committed_at = null"
        changed(engine, f"update kafka_publication set {undone} where asset = 'orders'")
        with pytest.raises(UpstreamChanged, match="replayed"):
            below(engine, key, read=read)
        assert landed(engine) == []

    def test_a_replay_of_the_upstream_replays_nothing_below(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        upstream(engine, key)
        add_publications(engine, asset=BELOW, stream=ASSET)
        below(engine, key)
        upstream(engine, key, note="b")
        assert notes(engine) == {"a"}
        assert due(engine, asset=BELOW, limit=10, upstream=ASSET) == []
        # Which attempt it was made of stands beside it, so that one can ask who is behind.
        behind = (
            "select count(*) from kafka_publication d join kafka_publication u on u.slice_id = d.slice_id "
            "and u.asset = 'orders' where d.asset = 'below' and d.fingerprint = 'orders@1' and u.committed_attempt = 2"
        )
        assert scalar(engine, behind) == 1

    def test_fewer_rows_upstream_than_there_were_are_what_a_replay_is_made_of(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        upstream(engine, key)
        add_publications(engine, asset=BELOW, stream=ASSET)
        below(engine, key)
        upstream(engine, key, chunk=chunk_of(key, offsets=[2, 3], read_count=5))
        below(engine, key)
        assert landed(engine) == [2]
        assert books(engine) == [(2, 1, 1, 3, "orders@2")]

    def test_it_is_asked_for_once_the_upstream_committed_and_not_before(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(0, 5), (5, 9)])
        add_publications(engine, asset=BELOW, stream=ASSET)
        assert due(engine, asset=BELOW, limit=10, upstream=ASSET) == []
        upstream(engine, keys[1])
        assert [one.key for one in due(engine, asset=BELOW, limit=10, upstream=ASSET)] == [keys[1]]
        # Slices commit in any order; committed_through says up to where all are.
        below(engine, keys[1])
        assert through(engine) == 0
        upstream(engine, keys[0])
        below(engine, keys[0])
        assert through(engine) == 9

    def test_declared_late_it_gets_all_that_was_planned_some_at_a_time(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(10 * number, 10 * number + 10) for number in range(7)])
        plan(engine, slices=[(0, 10)], partition=1)
        upstream(engine, *keys[:3])
        assert add_publications(engine, asset=BELOW, stream=ASSET, limit=3) == 3 + 1
        assert add_publications(engine, asset=BELOW, stream=ASSET, limit=3) == 3
        assert add_publications(engine, asset=BELOW, stream=ASSET, limit=3) == 1
        assert add_publications(engine, asset=BELOW, stream=ASSET, limit=3) == 0
        assert [one.key for one in due(engine, asset=BELOW, limit=10, upstream=ASSET)] == list(keys[:3])
        assert gaps_of(engine, stream=ASSET, asset=BELOW) == []

    def test_a_tick_that_has_no_time_left_begins_no_further_partition(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for partition in range(3):
            plan(engine, slices=[(0, 10), (10, 20)], partition=partition)
        clock = iter(range(10))
        monkeypatch.setattr(derived, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        assert add_publications(engine, asset=BELOW, stream=ASSET, until=1) == 4
        assert add_publications(engine, asset=BELOW, stream=ASSET, until=1) == 0
        assert add_publications(engine, asset=BELOW, stream=ASSET, until=9) == 2

    def test_a_partition_that_began_late_is_committed_from_there(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(1000, 1010)])
        add_publications(engine, asset=BELOW, stream=ASSET)
        assert through(engine) == 1000
        upstream(engine, key)
        below(engine, key)
        assert through(engine) == 1010

    @pytest.mark.parametrize("kind", ["lost", "skipped"])
    def test_it_steps_over_what_is_lost_wherever_that_lies(self, engine: Engine, kind: str) -> None:
        first, second, third, _ = plan(engine, slices=[(0, 5), (5, 9), (9, 12), (12, 20)])
        gone = f"update kafka_slice set kind = '{kind}', reason = 'gone' where start_offset in (0, 5, 12)"
        for start in (0, 5, 12):
            changed(engine, f"delete from kafka_claim where publication_id in ({_publication_at(start)})")
            changed(engine, f"delete from kafka_publication where start_offset = {start}")
        changed(engine, gone)
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 1
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 0
        for key in (first, second):
            with pytest.raises(KeysUnknown):
                find(engine, asset=BELOW, keys=[key])
        assert through(engine) == 9
        upstream(engine, third)
        below(engine, third)
        assert through(engine) == 20
        assert gaps_of(engine, stream=ASSET, asset=BELOW) == []

    def test_what_became_lost_after_it_was_planned_below_is_refused_and_stepped_over(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        upstream(engine, key)
        add_publications(engine, asset=BELOW, stream=ASSET)
        read = source(engine, key)
        changed(engine, "update kafka_slice set kind = 'lost', reason = 'gone'")
        with pytest.raises(SliceRefused, match="recorded as lost"):
            below(engine, key, read=read)
        assert landed(engine) == []

    def test_of_a_run_in_parts_each_asks_again_for_its_own_slices_alone(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 5), (5, 9)])
        upstream(engine, first, second)
        add_publications(engine, asset=BELOW, stream=ASSET)
        read = source(engine, first, second)
        upstream(engine, second, note="b")
        below(engine, first, read=read.of([first]))
        assert landed(engine) == [0, 2, 4]
        with pytest.raises(UpstreamChanged):
            below(engine, second, read=read.of([second]))

    def test_what_two_add_at_once_stands_once(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        plan(engine, slices=[(0, 5), (5, 9)])
        behind = derived._behind

        def another_was_faster(connection: Any, *asked: Any, **how: Any) -> list[tuple[int, int]]:
            found = behind(connection, *asked, **how)
            monkeypatch.setattr(derived, "_behind", behind)
            connection.rollback()
            assert add_publications(engine, asset=BELOW, stream=ASSET) == 2
            return found

        monkeypatch.setattr(derived, "_behind", another_was_faster)
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 0
        count = "select count(*), count(distinct slice_id) from kafka_publication where asset = 'below'"
        assert rows(engine, count) == [(2, 2)]
        assert scalar(engine, "select count(*) from kafka_committed where asset = 'below'") == 1
        unclaimed = (
            "select count(*) from kafka_publication p left join kafka_claim c on c.publication_id = p.id "
            "where c.publication_id is null"
        )
        assert scalar(engine, unclaimed) == 0

    def test_history_is_not_read_again(self, engine: Engine) -> None:
        keys = plan(engine, slices=[(10 * number, 10 * number + 10) for number in range(6)])
        upstream(engine, *keys)
        add_publications(engine, asset=BELOW, stream=ASSET)
        below(engine, *keys[:4])
        # Below committed_through nothing is looked at: not even what should never be there.
        changed(engine, f"delete from kafka_claim where publication_id in ({_publication_at(0, BELOW)})")
        changed(engine, "delete from kafka_publication where asset = 'below' and start_offset = 0")
        sent = statements(engine)
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 0
        assert [one for one in sent if not one.lstrip().upper().startswith(("SELECT", "BEGIN", "SET", "PRAGMA"))] == []
        [asked] = [one for one in sent if "kafka_slice" in one]
        assert "start_offset >=" in asked

    def test_what_was_looked_through_once_is_not_looked_through_again(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A slice that was given up keeps committed_through: all of later history would be looked at in each tick."""
        monkeypatch.setattr(derived, "LOOK", 4)
        keys = plan(engine, slices=[(10 * number, 10 * number + 10) for number in range(6)])
        upstream(engine, *keys)
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 6
        assert rows(engine, "select published_through from kafka_published") == [(60,)]
        changed(engine, f"delete from kafka_claim where publication_id in ({_publication_at(0, BELOW)})")
        changed(engine, "delete from kafka_publication where asset = 'below' and start_offset = 0")
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 0
        plan(engine, slices=[(60, 70), (70, 80)])
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 2
        assert rows(engine, "select published_through from kafka_published") == [(60,)]

    def test_a_root_under_another_group_gets_what_was_planned_without_it(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 5), (5, 9)])
        upstream(engine, first)
        assert add_publications(engine, asset=BELOW, stream=ASSET, gone=False) == 2
        assert [one.key for one in due(engine, asset=BELOW, topics=["orders"], limit=10)] == [first, second]
        # Each goes on planning, and lands what the other one planned.
        plan(engine, slices=[(9, 12)])
        assert add_publications(engine, asset=BELOW, stream=ASSET, gone=False) == 1
        assert add_publications(engine, asset=ASSET, stream=ASSET, gone=False) == 0
        assert gaps_of(engine, stream=ASSET, asset=BELOW) == []

    def test_of_a_topic_that_is_gone_only_its_rows_can_be_read(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        upstream(engine, key)
        plan(engine, slices=[(0, 3)], topic_id="id-2")
        assert add_publications(engine, asset="root", stream=ASSET, gone=False) == 1
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 2

    def test_nobody_waits_for_what_the_asset_above_cannot_land_of_a_topic_that_is_gone(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        upstream(engine, key)
        assert add_publications(engine, asset="root", stream=ASSET, gone=False) == 1
        assert add_publications(engine, asset=BELOW, stream=ASSET) == 1
        assert leave_gone(engine, asset="root") == 0, "the topic is there"
        plan(engine, slices=[(0, 3)], topic_id="id-2")
        assert leave_gone(engine, asset=BELOW, upstream="root") == 0, "a run of the one above may still commit it"
        assert leave_gone(engine, asset="root") == 1
        assert leave_gone(engine, asset=BELOW, upstream=ASSET) == 0, "its rows are there"
        assert leave_gone(engine, asset=BELOW, upstream="root") == 1
        assert [leave_gone(engine, asset=BELOW, upstream=one) for one in ("root", ASSET)] == [0, 0]
        assert due(engine, asset=BELOW, upstream=ASSET, limit=10) == []

    def test_a_topic_that_goes_meanwhile_gets_no_publications_of_a_root(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [key] = plan(engine, slices=[(0, 5)])
        upstream(engine, key)
        behind = derived._behind

        def gone_then(connection: Any, *asked: Any, **how: Any) -> list[tuple[int, int]]:
            found = behind(connection, *asked, **how)
            connection.rollback()
            plan(engine, slices=[(0, 3)], topic_id="id-2")
            return found

        monkeypatch.setattr(derived, "_behind", gone_then)
        assert add_publications(engine, asset=BELOW, stream=ASSET, gone=False) == 0

    def test_what_its_table_refuses_is_quarantined_as_the_row_above_has_it(self, engine: Engine) -> None:
        first, second = plan(engine, slices=[(0, 6), (6, 10)])
        upstream(engine, first, second, note="\x01\u00e9")
        add_publications(engine, asset=BELOW, stream=ASSET)
        note = "longtext" if engine.dialect.name in {"mysql", "mariadb"} else "text"
        own = f"create table below (id bigint, note {note}, {LINEAGE}"
        with write(engine) as connection:
            connection.exec_driver_sql(
                f"{own}, primary key (kafka_source, kafka_partition, kafka_offset), check (id not in (4, 8)))"
            )
        below(engine, first, second)
        assert landed(engine) == [0, 2, 6]
        kept = rows(
            engine,
            "select asset, kafka_offset, value, headers, reason from kafka_quarantine order by kafka_offset",
        )
        values = ['{"id":4,"note":"\\u0001é"}'.encode(), '{"id":8,"note":"\\u0001é"}'.encode()]
        assert [(row[0], row[1], bytes(row[2]), row[3]) for row in kept] == [
            (BELOW, 4, values[0], None),
            (BELOW, 8, values[1], None),
        ]
        assert "check" in str(kept[0][4]).lower() or "constraint" in str(kept[0][4]).lower()
        assert scalar(engine, "select sum(quarantined) from kafka_publication where asset = 'below'") == 2

    def test_of_two_lives_with_the_same_offset_none_is_taken_for_the_refused_one(self, engine: Engine) -> None:
        [first] = plan(engine, slices=[(0, 3)])
        upstream(engine, first)
        [second] = plan(engine, slices=[(0, 3)], topic_id="id-2")
        upstream(engine, second)
        refused = [Refused(0, 1, "no good", topic="orders")]
        [alone] = source(engine, second).as_records(refused)
        assert (alone.offset, alone.value) == (1, b'{"id":1,"note":"a"}')
        with pytest.raises(RowsRefused, match="which row it is nobody knows"):
            source(engine, first, second).as_records(refused)

    def test_another_downstream_and_a_downstream_of_a_downstream_stand_apart(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 6)])
        for name in (BELOW, "lower"):
            assert add_publications(engine, asset=name, stream=ASSET) == 1
        upstream(engine, key)
        assert due(engine, asset="lower", limit=10, upstream=BELOW) == []
        below(engine, key)
        assert [one.key for one in due(engine, asset="lower", limit=10, upstream=BELOW)] == [key]
        read = committed_rows(engine, asset=BELOW, target=BELOW, keys=[key], declared=SCHEMA)
        assert sum(one.num_rows for one in read.batches(key)) == 3
        assert read.fingerprints() == {key: "below@1"}


def _publication_at(start: int, asset: str = ASSET) -> str:
    # Named anew, or MySQL would read the table that it deletes from.
    return f"select id from (select id from kafka_publication where asset = '{asset}' and start_offset = {start}) x"


def upstream(engine: Engine, *keys: SliceKey, note: str = "a", chunk: Chunk | None = None) -> None:
    """Land, or land again, slices of the asset above."""
    upstream_target(engine)
    for key in keys:
        attempt = Attempt(engine, [key], replaces=True).claim(force=True)
        attempt.publish(chunk or chunk_of(key, note=note))


def source(engine: Engine, *keys: SliceKey) -> CommittedRows:
    return committed_rows(engine, asset=ASSET, target="orders", keys=keys, declared=SCHEMA)


def below(
    engine: Engine,
    *keys: SliceKey,
    read: CommittedRows | None = None,
    replaces: bool = True,
    between: Callable[[], object] = lambda: None,
    confirm: Callable[[], object] = lambda: None,
    checked: Callable[[], object] = lambda: None,
) -> list[Published]:
    """Land what has an even id, as a run of the asset below does it.

    `between` is called after each chunk, `confirm` before the upstream is asked again, `checked` after that.
    """
    given = source(engine, *keys) if read is None else read

    def chunks() -> Iterator[Chunk]:
        for key in keys:
            yield _even(given, key)
            between()

    def recheck(connection: Any) -> None:
        given.recheck(connection)
        checked()

    return publish(
        engine,
        road_for(engine),
        Work(
            claims=claim(engine, _found(engine, keys), run_id="below-run", force=True, lease_ms=60_000),
            table=below_target(engine),
            chunks=chunks,
            confirm=lambda seen: confirm() and None,
            expired={},
            bad_policy=BadPolicy("quarantine", 0.01),
            run_id="below-run",
            code_version="v1",
            replaces=replaces,
            recheck=recheck,
            fingerprints=given.fingerprints(),
            fetch=given.as_records,
        ),
    )


def below_target(engine: Engine) -> Table:
    return ensure_table(engine, road_for(engine), name=BELOW, asset=BELOW, schema=SCHEMA)


def _found(engine: Engine, keys: Sequence[SliceKey]) -> list[Any]:
    return list(find(engine, asset=BELOW, keys=keys).values())


def _even(given: CommittedRows, key: SliceKey) -> Chunk:
    read = pa.concat_tables([given.schema.empty_table(), *given.batches(key)])
    ids: Any = read.column("id")
    return Chunk(
        rows=read.filter(pc.equal(pc.bit_wise_and(ids, 1), 0)).select(SCHEMA.names),
        seen={key: Seen(read=read.num_rows)},
    )


def landed(engine: Engine) -> list[int]:
    below_target(engine)
    return [row[0] for row in rows(engine, "select id from below order by id")]


def notes(engine: Engine) -> set[str]:
    return {row[0] for row in rows(engine, "select note from below")}


def books(engine: Engine) -> list[tuple[Any, ...]]:
    """Of each slice below, in order: read, landed, filtered, holes, and what it was made of."""
    columns = "records_read, landed, filtered, holes, fingerprint"
    return rows(engine, f"select {columns} from kafka_publication where asset = 'below' order by start_offset")


def through(engine: Engine) -> object:
    where = f"asset = 'below' and {quoted(engine, 'partition')} = 0"
    return scalar(engine, f"select committed_through from kafka_committed where {where}")


def changed(engine: Engine, statement: str) -> None:
    with write(engine) as connection:
        connection.exec_driver_sql(statement)


def statements(engine: Engine) -> list[str]:
    """All that is sent from now on."""
    sent: list[str] = []

    def look(connection: Any, cursor: Any, statement: str, *given: Any) -> None:
        sent.append(statement)

    event.listen(engine, "before_cursor_execute", look)
    return sent
