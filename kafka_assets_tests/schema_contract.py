"""What the ledger's schema promises, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `connection`: a transaction on a migrated ledger, rolled back afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Table, delete, insert, select, update
from sqlalchemy.exc import DBAPIError

from kafka_assets.ledger import tables as t
from kafka_assets.ledger import views
from kafka_assets.ledger.constructs import now_ms, now_ts
from kafka_assets.ledger.rendering import split
from kafka_assets.ledger.schema import dialect_name

QUERIES = Path(__file__).parents[1] / "sql" / "queries.sql"

LONG_AGO = datetime(2001, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
COUNTS = (
    "records_read", "landed", "superseded", "filtered", "quarantined", "tombstoned", "holes", "expired", "rows_written",
    "bytes_read",
)  # fmt: skip
DONE = {"state": "committed", "committed_attempt": 1, "committed_at": LONG_AGO}


@contextmanager
def refused(connection: Connection, by: str) -> Iterator[None]:
    """What happens inside is refused by this constraint; the transaction goes on."""
    with pytest.raises(DBAPIError) as caught, connection.begin_nested():
        yield
    said = str(caught.value.orig)
    # SQLite names the CHECK that failed, but not the reference, and of a key only its columns.
    if dialect_name(connection) != "sqlite" or "CHECK" in said:
        assert by in said, said
    else:
        assert "constraint failed" in said


@dataclass
class Crafted:
    """A ledger made by hand, on which everything can be said, true or not."""

    connection: Connection
    source_id: int = 0

    def insert(self, table: Table, **values: Any) -> int:
        key = self.connection.execute(insert(table).values(**values)).inserted_primary_key
        assert key is not None
        return key[0]

    def source(self, **values: Any) -> int:
        given = {
            "stream": "shop",
            "topic": "orders",
            "topic_id": "a",
            "incarnation": 1,
            "first_seen": now_ts(),
            **values,
        }
        return self.insert(t.source, **given)

    def partition(self, number: int = 0, *, origin: int = 0, planned_through: int = 20, **values: Any) -> None:
        given = {"log_start": 0, "last_stable": 30, "high_watermark": 40, "observed_at": now_ts(), **values}
        self.insert(
            t.progress,
            source_id=self.source_id, partition=number, origin=origin, planned_through=planned_through, **given,
        )  # fmt: skip

    def slice(self, start: int, end: int, *, first: bool = False, **values: Any) -> int:
        link = {"is_first": 1} if first else {"prior_end": start}
        given = {"source_id": self.source_id, "partition": 0, "created_at": now_ts(), **link, **values}
        return self.insert(t.slice_, start_offset=start, end_offset=end, **given)

    def publication(self, slice_id: int, start: int, end: int, *, asset: str = "orders", **values: Any) -> int:
        return self.insert(t.publication, slice_id=slice_id, start_offset=start, end_offset=end, asset=asset, **values)

    def publish(self, slice_id: int, start: int, end: int, *, asset: str = "orders") -> int:
        return self.publication(slice_id, start, end, asset=asset, records_read=end - start, landed=end - start, **DONE)

    def committed(self, through: int, *, asset: str = "orders", partition: int = 0) -> None:
        self.insert(
            t.committed,
            asset=asset, source_id=self.source_id, partition=partition, committed_through=through, updated_at=now_ts(),
        )  # fmt: skip

    def set(self, table: Table, **values: Any) -> None:
        self.connection.execute(update(table).values(**values))

    def without_references(self) -> None:
        """Let damage in that the references would refuse, as an operator's own hand might."""
        self.connection.exec_driver_sql(
            {
                "sqlite": "PRAGMA defer_foreign_keys = ON",
                "postgresql": "SET LOCAL session_replication_role = replica",
            }.get(dialect_name(self.connection), "SET SESSION foreign_key_checks = 0")
        )

    def gaps(self) -> list[tuple[str | None, int, int, str]]:
        g = views.gap.table.c
        rows = self.connection.execute(
            select(g.asset, g.start_offset, g.end_offset, g.problem).order_by(g.start_offset, g.end_offset)
        )
        return [tuple(row) for row in rows]


class SchemaContract:
    """Every constraint refuses what it should, and every view tells the truth."""

    @pytest.fixture
    def empty(self, connection: Connection) -> Crafted:
        return Crafted(connection)

    @pytest.fixture
    def one(self, empty: Crafted) -> Crafted:
        """A source with partition 0, planned from 0 through 20 in two slices, the first of them committed."""
        empty.source_id = empty.source()
        empty.partition()
        empty.publish(empty.slice(0, 10, first=True), 0, 10)
        empty.publication(empty.slice(10, 20), 10, 20)
        empty.committed(10)
        return empty

    # The chain of slices

    def test_a_slice_never_overlaps_the_one_before_it(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_slice_prior"):
            one.slice(15, 25)

    def test_a_slice_never_leaves_a_gap(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_slice_prior"):
            one.slice(21, 30)

    def test_two_slices_never_start_together(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_slice_start"):
            one.slice(10, 15)

    def test_two_slices_never_end_together(self, one: Crafted) -> None:
        one.without_references()
        with refused(one.connection, "kafka_slice_end"):
            one.slice(15, 20)

    def test_the_first_slice_starts_at_the_origin(self, one: Crafted) -> None:
        one.partition(1, origin=100, planned_through=100)
        with refused(one.connection, "kafka_slice_first"):
            one.slice(101, 110, first=True, partition=1)
        one.slice(100, 110, first=True, partition=1)

    def test_no_second_slice_is_the_first(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_slice_first"):
            one.slice(20, 30, first=True)

    def test_the_origin_stays_where_the_first_slice_starts(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_slice_first"):
            one.set(t.progress, origin=1)

    @pytest.mark.parametrize(
        "link",
        [
            {"prior_end": None, "is_first": None},
            {"prior_end": None, "is_first": 0},
            {"prior_end": 10, "is_first": None},
            {"prior_end": 20, "is_first": 1},
            {"prior_end": 20, "is_first": 0},
        ],
    )
    def test_no_slice_stands_outside_the_chain(self, one: Crafted, link: dict[str, int | None]) -> None:
        with refused(one.connection, "kafka_slice_chain"):
            one.slice(20, 30, **link)

    @pytest.mark.parametrize("end", [20, 19, -1])
    def test_no_slice_is_empty_or_runs_backwards(self, one: Crafted, end: int) -> None:
        with refused(one.connection, "kafka_slice_not_empty"):
            one.slice(20, end)

    def test_a_slice_of_an_unknown_partition_is_refused(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_slice_first"):
            one.slice(0, 10, first=True, partition=7)
        with refused(one.connection, "kafka_slice_prior"):
            one.slice(20, 30, partition=7)

    def test_a_slice_is_normal_lost_or_skipped(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_slice_kind"):
            one.slice(20, 30, kind="odd", reason="none")

    @pytest.mark.parametrize("kind", ["lost", "skipped"])
    def test_nothing_is_lost_or_skipped_without_a_reason(self, one: Crafted, kind: str) -> None:
        with refused(one.connection, "kafka_slice_reason"):
            one.slice(20, 30, kind=kind)
        one.slice(20, 30, kind=kind, reason="retention took it")

    def test_what_is_lost_is_no_open_window(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_slice_open"):
            one.slice(20, 30, kind="lost", reason="gone", is_open=True)

    # Live windows

    def test_an_open_window_grows_with_its_publication(self, one: Crafted) -> None:
        window = one.slice(20, 25, is_open=True)
        held = one.publish(window, 20, 25)
        row = t.publication.c.id == held
        undone = {"state": "planned", "committed_attempt": None, "committed_at": None, "end_offset": None}
        one.connection.execute(update(t.publication).where(row).values(**undone))
        one.connection.execute(update(t.slice_).where(t.slice_.c.id == window).values(end_offset=30))
        one.connection.execute(
            update(t.publication).where(row).values(end_offset=30, records_read=10, landed=10, **DONE)
        )
        assert one.connection.scalar(select(t.publication.c.end_offset).where(row)) == 30

    def test_a_window_never_grows_away_from_its_publication(self, one: Crafted) -> None:
        window = one.slice(20, 25, is_open=True)
        one.publish(window, 20, 25)
        with refused(one.connection, "kafka_publication_range"):
            one.connection.execute(update(t.slice_).where(t.slice_.c.id == window).values(end_offset=30))

    def test_a_window_that_another_slice_follows_cannot_grow_into_it(self, one: Crafted) -> None:
        window = one.slice(20, 25, is_open=True)
        one.slice(25, 30)
        with refused(one.connection, "kafka_slice_prior"):
            one.connection.execute(update(t.slice_).where(t.slice_.c.id == window).values(end_offset=26))

    # Results

    @pytest.mark.parametrize("column", COUNTS)
    def test_no_count_is_negative(self, one: Crafted, column: str) -> None:
        with refused(one.connection, "kafka_publication_"):
            one.set(t.publication, **{column: -1})

    @pytest.mark.parametrize("column", [*COUNTS, "state", "asset", "slice_id", "start_offset"])
    def test_no_part_of_the_accounting_is_null(self, one: Crafted, column: str) -> None:
        # By its column, or by a CHECK that comes first: what a CHECK finds NULL it would let pass.
        with pytest.raises(DBAPIError), one.connection.begin_nested():
            one.set(t.publication, **{column: None})

    @pytest.mark.parametrize(
        ("constraint", "wrong"),
        [
            ("kafka_publication_records", {"landed": 9}),
            ("kafka_publication_records", {"filtered": 1}),
            ("kafka_publication_records", {"superseded": 1}),
            ("kafka_publication_records", {"quarantined": 1}),
            ("kafka_publication_records", {"tombstoned": 1}),
            ("kafka_publication_offsets", {"records_read": 9, "landed": 9}),
            ("kafka_publication_offsets", {"holes": 1}),
            ("kafka_publication_", {"end_offset": None}),
            ("kafka_publication_expired", {"records_read": 8, "landed": 8, "expired": 2}),
            ("kafka_publication_expired", {"expired_start": 0, "expired_end": 2}),
            ("kafka_publication_expired", {"records_read": 8, "landed": 8, "expired": 2, "expired_start": 0}),
            ("kafka_publication_expired", {"records_read": 8, "landed": 8, "expired": 2, "expired_end": 2}),
            (
                "kafka_publication_expired",
                {"records_read": 8, "landed": 8, "expired": 2, "expired_start": 0, "expired_end": 3},
            ),
            (
                "kafka_publication_expired",
                {"records_read": 8, "landed": 8, "expired": 2, "expired_start": 9, "expired_end": 11},
            ),
            ("kafka_publication_commit", {"committed_attempt": None}),
            ("kafka_publication_commit", {"committed_at": None}),
            ("kafka_publication_commit", {"state": "planned"}),
            ("kafka_publication_commit", {"state": "failed"}),
            ("kafka_publication_state", {"state": "odd", "committed_attempt": None, "committed_at": None}),
            ("kafka_publication_end", {
                "state": "failed", "committed_attempt": None, "committed_at": None, "end_offset": None
            }),
        ],
    )  # fmt: skip
    def test_a_committed_result_never_contradicts_itself(
        self, one: Crafted, constraint: str, wrong: dict[str, Any]
    ) -> None:
        with refused(one.connection, constraint):
            one.connection.execute(update(t.publication).where(t.publication.c.start_offset == 0).values(**wrong))

    @pytest.mark.parametrize(
        "counts",
        [
            {
                "records_read": 7,
                "landed": 3,
                "superseded": 1,
                "filtered": 1,
                "quarantined": 1,
                "tombstoned": 1,
                "holes": 3,
            },
            {"records_read": 6, "landed": 6, "holes": 1, "expired": 3, "expired_start": 0, "expired_end": 3},
            {"records_read": 0, "landed": 0, "holes": 10, "rows_written": 0},
        ],
    )
    def test_a_result_that_adds_up_is_taken(self, one: Crafted, counts: dict[str, Any]) -> None:
        one.connection.execute(update(t.publication).where(t.publication.c.start_offset == 0).values(**counts))

    def test_what_is_planned_claims_no_commit(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_publication_commit"):
            one.connection.execute(
                update(t.publication).where(t.publication.c.start_offset == 10).values(committed_attempt=1)
            )

    def test_a_publication_has_its_slice_s_range(self, one: Crafted) -> None:
        planned = one.slice(20, 30)
        with refused(one.connection, "kafka_publication_range"):
            one.publication(planned, 20, 29)

    def test_no_result_is_of_an_unknown_slice(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_publication_of"):
            one.insert(t.publication, slice_id=10**9, start_offset=20, end_offset=None, asset="orders")

    def test_an_asset_publishes_a_slice_once(self, one: Crafted) -> None:
        planned = one.slice(20, 30)
        one.publication(planned, 20, 30)
        one.publication(planned, 20, 30, asset="downstream")
        with refused(one.connection, "kafka_publication_slice"):
            one.publication(planned, 20, 30)

    def test_a_slice_with_a_result_is_not_deleted(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_publication_"):
            one.connection.execute(delete(t.slice_).where(t.slice_.c.start_offset == 10))

    # Claims

    def test_two_holders_meet_at_one_claim(self, one: Crafted) -> None:
        held = one.publication(one.slice(20, 30), 20, 30)
        one.insert(t.claim, publication_id=held)
        with refused(one.connection, "PRIMARY" if _is_mysql(one.connection) else "kafka_claim_pk"):
            one.insert(t.claim, publication_id=held)

    def test_nothing_cannot_be_claimed(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_claim_of"):
            one.insert(t.claim, publication_id=10**9)

    @pytest.mark.parametrize("column", ["attempt", "requests", "failures_alone"])
    def test_a_claim_counts_up_from_0(self, one: Crafted, column: str) -> None:
        held = one.publication(one.slice(20, 30), 20, 30)
        one.insert(t.claim, publication_id=held)
        with refused(one.connection, "kafka_claim_counts"):
            one.set(t.claim, **{column: -1})
        assert one.connection.scalar(select(t.claim.c[column])) == 0

    # Sources, progress, committed_through

    @pytest.mark.parametrize(
        ("constraint", "again"),
        [
            ("kafka_source_topic_id", {"incarnation": 2}),
            ("kafka_source_incarnation", {"topic_id": "b"}),
            ("kafka_source_incarnation_from_1", {"incarnation": 0, "topic_id": "b"}),
        ],
    )
    def test_a_topic_s_incarnations_are_told_apart(self, one: Crafted, constraint: str, again: dict[str, Any]) -> None:
        with refused(one.connection, constraint):
            one.source(**again)
        one.source(topic_id="b", incarnation=2)

    def test_names_that_differ_by_case_are_different(self, one: Crafted) -> None:
        one.source(topic="Orders")
        one.source(stream="Shop")
        one.committed(0, asset="Orders")
        assert one.connection.scalar(select(t.source.c.topic).where(t.source.c.topic == "ORDERS")) is None

    @pytest.mark.parametrize(
        ("constraint", "wrong"),
        [
            ("kafka_progress_order", {"planned_through": -1}),
            ("kafka_progress_offsets", {"log_start": -1}),
            ("kafka_progress_offsets", {"last_stable": -1001}),
            ("kafka_progress_offsets", {"high_watermark": -1}),
            ("kafka_progress_owner", {"owner": "live"}),
            ("kafka_progress_owner", {"owner_lease_until": 1}),
            ("kafka_progress_owner", {"owner_backend": "pid"}),
        ],
    )
    def test_progress_never_contradicts_itself(self, one: Crafted, constraint: str, wrong: dict[str, Any]) -> None:
        with refused(one.connection, constraint):
            one.set(t.progress, **wrong)
        one.set(t.progress, owner="live", owner_lease_until=1, owner_backend="pid")

    def test_progress_belongs_to_a_known_source(self, one: Crafted) -> None:
        one.source_id = 10**9
        with refused(one.connection, "kafka_progress_source"):
            one.partition()

    def test_no_partition_is_negative(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_progress_partition_known"):
            one.partition(-1)

    def test_committed_through_belongs_to_a_known_partition(self, one: Crafted) -> None:
        with refused(one.connection, "kafka_committed_partition"):
            one.committed(0, partition=9)
        with refused(one.connection, "kafka_committed_not_negative"):
            one.committed(-1, asset="another")

    # What landing fills beside the rows

    def test_a_table_has_one_owner_and_an_asset_one_table(self, one: Crafted) -> None:
        own: dict[str, Any] = {"mode": "append", "created_at": now_ts()}
        one.insert(t.target, table_name="orders", asset="orders", **own)
        with refused(one.connection, "PRIMARY" if _is_mysql(one.connection) else "kafka_target_pk"):
            one.insert(t.target, table_name="orders", asset="another", **own)
        with refused(one.connection, "kafka_target_asset"):
            one.insert(t.target, table_name="another", asset="orders", **own)

    def test_an_upsert_names_its_key(self, one: Crafted) -> None:
        own: dict[str, Any] = {"table_name": "orders", "asset": "orders", "created_at": now_ts()}
        with refused(one.connection, "kafka_target_key"):
            one.insert(t.target, mode="upsert", **own)
        with refused(one.connection, "kafka_target_mode"):
            one.insert(t.target, mode="odd", key_columns="[]", **own)
        one.insert(t.target, mode="upsert", key_columns='["id"]', **own)

    def test_a_record_is_quarantined_once_with_all_its_bytes(self, one: Crafted) -> None:
        slice_id = one.connection.scalars(select(t.slice_.c.id)).first()
        row: dict[str, Any] = {
            "asset": "orders", "kafka_source": one.source_id, "kafka_partition": 0, "kafka_offset": 3,
            "slice_id": slice_id, "reason": "no JSON · ☠", "quarantined_at": now_ts(), "key": b"\x00\xff",
            "value": bytes(range(256)) * 400, "headers": "x" * 70_000,
        }  # fmt: skip
        one.insert(t.quarantine, **row)
        kept = one.connection.execute(select(t.quarantine)).one()
        assert (kept.key, kept.value, kept.headers, kept.reason) == (
            row["key"],
            row["value"],
            row["headers"],
            row["reason"],
        )
        with refused(one.connection, "PRIMARY" if _is_mysql(one.connection) else "kafka_quarantine_pk"):
            one.insert(t.quarantine, **row)
        with refused(one.connection, "kafka_quarantine_slice"):
            one.insert(t.quarantine, **{**row, "kafka_offset": 4, "slice_id": 10**9})
        with refused(one.connection, "kafka_quarantine_place"):
            one.set(t.quarantine, kafka_offset=-1)

    def test_a_key_is_deleted_by_one_version(self, one: Crafted) -> None:
        row: dict[str, Any] = {
            "asset": "orders", "key_digest": "0" * 64, "key_text": '["ü"]', "incarnation": 1, "kafka_partition": 0,
            "kafka_offset": 3, "slice_id": 1,
        }  # fmt: skip
        one.insert(t.tombstone, **row)
        with refused(one.connection, "PRIMARY" if _is_mysql(one.connection) else "kafka_tombstone_pk"):
            one.insert(t.tombstone, **row)
        with refused(one.connection, "kafka_tombstone_version"):
            one.set(t.tombstone, kafka_offset=-1)

    # The clock

    def test_the_clock_is_the_database_s_and_moves_within_a_transaction(self, connection: Connection) -> None:
        before = connection.execute(select(now_ms(), now_ts())).one()
        time.sleep(0.05)
        after = connection.execute(select(now_ms(), now_ts())).one()
        assert 0 < after[0] - before[0] < 60_000
        assert abs(after[1] - datetime.fromtimestamp(after[0] / 1000, UTC)) < timedelta(seconds=1)
        assert abs(after[1] - datetime.now(UTC)) < timedelta(minutes=1)

    def test_a_timestamp_comes_back_as_the_same_moment_in_utc(self, one: Crafted) -> None:
        moment = datetime(2031, 7, 1, 1, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
        one.set(t.source, retired_at=moment)
        back = one.connection.scalar(select(t.source.c.retired_at))
        assert back == moment
        assert back is not None
        assert back.utcoffset() == timedelta(0)

    # Views

    def test_committed_offset_is_the_classic_offset_table(self, one: Crafted) -> None:
        o = views.committed_offset.table
        row = one.connection.execute(select(o)).one()
        assert tuple(row)[:4] == ("orders", "orders", 0, 10)
        assert abs(row.updated_at - datetime.now(UTC)) < timedelta(minutes=1)

    def test_a_topic_created_again_shows_the_offsets_of_the_new_one_only(self, one: Crafted) -> None:
        one.set(t.source, retired_at=now_ts())
        one.source_id = one.source(topic_id="b", incarnation=2)
        one.partition(origin=0, planned_through=0, last_stable=7, high_watermark=9)
        one.committed(0)
        assert [row.next_offset for row in one.connection.execute(select(views.committed_offset.table))] == [0]
        (row,) = one.connection.execute(select(views.lag.table)).all()
        assert (row.asset, row.stream, row.topic, row.topic_partition) == ("orders", "shop", "orders", 0)
        assert (row.committed_through, row.planned_through, row.last_stable, row.high_watermark) == (0, 0, 7, 9)
        assert (row.lag, row.hanging) == (7, 2)

    def test_lag_is_never_negative(self, one: Crafted) -> None:
        one.set(t.progress, last_stable=5, high_watermark=4)
        row = one.connection.execute(select(views.lag.table)).one()
        assert (row.lag, row.hanging) == (0, 0)

    def test_a_row_s_lineage_leads_to_its_run(self, one: Crafted) -> None:
        one.insert(t.target, table_name="orders_table", asset="orders", mode="append", created_at=now_ts())
        one.connection.execute(
            update(t.publication).where(t.publication.c.start_offset == 0).values(run_id="run-1", code_version="v7")
        )
        y = views.lineage.table.c
        found = one.connection.execute(
            select(views.lineage.table).where(
                y.table_name == "orders_table", y.kafka_source == one.source_id, y.kafka_partition == 0,
                y.start_offset <= 9, y.end_offset > 9,
            )
        ).one()  # fmt: skip
        assert (found.stream, found.topic, found.incarnation, found.kind) == ("shop", "orders", 1, "normal")
        assert (found.state, found.attempt, found.run_id, found.code_version) == ("committed", 1, "run-1", "v7")
        assert found.committed_at == LONG_AGO

    def test_there_is_no_gap_when_all_is_well(self, one: Crafted) -> None:
        assert one.gaps() == []
        one.slice(20, 30, kind="lost", reason="retention")
        one.publish(one.slice(30, 40), 30, 40)
        one.set(t.progress, planned_through=40)
        one.partition(1, origin=7, planned_through=7)
        one.committed(7, partition=1)
        assert one.gaps() == []  # a lost slice in between, a committed one after an open one, an empty partition
        one.connection.execute(
            update(t.publication).where(t.publication.c.start_offset == 10).values(records_read=10, landed=10, **DONE)
        )
        one.connection.execute(update(t.committed).where(t.committed.c.partition == 0).values(committed_through=40))
        assert one.gaps() == []

    DAMAGE: tuple[tuple[Callable[[Crafted], Any], tuple[str | None, int, int, str]], ...] = (
        (lambda one: one.set(t.progress, planned_through=25), (None, 20, 25, "no slice covers these offsets")),
        (lambda one: one.set(t.progress, planned_through=15), (None, 15, 20, "a slice ends beyond planned_through")),
        (
            lambda one: (one.slice(23, 30), one.set(t.progress, planned_through=30)),
            (None, 20, 23, "no slice covers these offsets"),
        ),
        (
            lambda one: (one.slice(15, 30), one.set(t.progress, planned_through=30)),
            (None, 15, 20, "two slices cover these offsets"),
        ),
        (lambda one: one.slice(3, 6, kind="lost", reason="r"), (None, 3, 6, "two slices cover these offsets")),
        (
            lambda one: one.connection.execute(delete(t.slice_).where(t.slice_.c.start_offset == 0)),
            (None, 0, 10, "no slice covers these offsets"),
        ),
        (lambda one: one.set(t.progress, origin=4), (None, 0, 4, "a slice starts below the origin")),
        (
            lambda one: one.set(t.committed, committed_through=20),
            ("orders", 10, 20, "committed_through is beyond what is committed"),
        ),
        (
            lambda one: one.set(t.committed, committed_through=0),
            ("orders", 0, 10, "committed_through is behind what is committed"),
        ),
        (
            lambda one: one.set(t.publication, state="failed", committed_attempt=None, committed_at=None),
            ("orders", 0, 10, "committed_through is beyond what is committed"),
        ),
        (lambda one: one.connection.execute(delete(t.committed)), ("orders", 0, 20, "committed_through is missing")),
    )  # fmt: skip

    @pytest.mark.parametrize("case", range(len(DAMAGE)))
    def test_every_damage_shows_as_a_gap(self, one: Crafted, case: int) -> None:
        damage, shown = self.DAMAGE[case]
        one.without_references()
        damage(one)
        assert shown in one.gaps()
        row = one.connection.execute(select(views.gap.table)).first()
        assert row is not None
        assert (row.stream, row.topic, row.incarnation, row.kafka_source, row.kafka_partition) == (
            "shop", "orders", 1, one.source_id, 0,
        )  # fmt: skip

    def test_a_window_grown_in_one_transaction_leaves_no_gap(self, one: Crafted) -> None:
        one.slice(20, 30, is_open=True)
        one.set(t.progress, planned_through=30)
        assert one.gaps() == []

    # The operator's queries

    def test_every_query_of_the_operator_runs(self, one: Crafted) -> None:
        one.connection.exec_driver_sql(
            "CREATE TEMPORARY TABLE orders (kafka_source BIGINT, kafka_partition INTEGER, kafka_offset BIGINT)"
        )
        queries = split(QUERIES.read_text(encoding="utf-8"))
        assert len(queries) >= 12
        for query in queries:
            assert query.startswith("-- ")
            one.connection.exec_driver_sql(query).all()


def _is_mysql(connection: Connection) -> bool:
    return dialect_name(connection) in {"mysql", "mariadb"}
