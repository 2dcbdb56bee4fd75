"""The one transaction on SQLite: the suite that all databases share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import SliceFailed
from kafka_assets.ledger import retries
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets.records import BadRecord, Chunk
from kafka_assets.sinks.sqlite import bad_of, table_of
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import Attempt, chunk_of, plan, rows_of, target
from kafka_assets_tests.publish_contract import PublishContract


class TestPublishOnSQLite(PublishContract):
    """The engine is the unit tests' own."""


def test_bad_records_wait_on_disk_as_they_are() -> None:
    bad = (
        BadRecord(0, 1, "no \udc80 number", b"\xff", None, (("h", b"\x00"), ("", None)), -1),
        BadRecord(2, 2**62, "", None, b"", (), None),
    )
    assert bad_of(table_of(bad)) == (replace(bad[0], reason="no ? number"), bad[1])
    assert table_of(bad).column_names == [one.name for one in fields(BadRecord)]


def test_a_slice_that_fails_for_certain_is_read_no_further(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 1_000)])
    read: list[int] = []

    def chunk(first: int) -> Chunk:
        part = SliceKey(key.topic, key.incarnation, key.partition, first, first + 200)
        made = chunk_of(part, bad=range(first, first + 110), reason="no number")
        return replace(made, seen={key: made.seen[part]})

    with pytest.raises(SliceFailed, match=r"more than max_bad_ratio 0.01 · .*: no number") as failed:
        Attempt(engine, [key]).claim().publish(
            *(chunk(first) for first in range(0, 1_000, 200)), between=lambda: read.append(1)
        )
    assert len(read) == 0
    assert "110 bad records of 1000" in str(failed.value)


def test_an_error_that_is_kept_keeps_nobody_reading(engine: Engine) -> None:
    [key] = plan(engine, slices=[(0, 1_000)])
    closed: list[int] = []

    def read() -> Iterator[Chunk]:
        try:
            for first in range(0, 1_000, 200):
                part = SliceKey(key.topic, key.incarnation, key.partition, first, first + 200)
                made = chunk_of(part, bad=range(first, first + 110), reason="no number")
                yield replace(made, seen={key: made.seen[part]})
        finally:
            closed.append(1)

    with pytest.raises(SliceFailed) as failed:
        Attempt(engine, [key]).claim().publish(read=read)
    assert closed == [1] and failed.tb is not None


def test_a_busy_file_is_tried_again_with_the_whole_transaction(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = plan(engine, slices=[(0, 5)])
    table = target(engine)
    impatient = make_engine(engine.url, lock_seconds=0)
    attempt = Attempt(impatient, keys).claim()
    tries: list[object] = []

    def slept(seconds: float) -> None:
        tries.append(seconds)
        other.rollback()

    monkeypatch.setattr(retries.time, "sleep", slept)
    with write(engine) as other:
        attempt.publish(table=table)
    assert len(tries) == 1
    assert len(rows_of(engine)) == 5
