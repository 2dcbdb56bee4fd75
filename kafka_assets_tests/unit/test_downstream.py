"""Assets made of another one's slices on SQLite: the suite that all databases share, and how their rows are chunked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from kafka_assets.assets import downstream
from kafka_assets.assets.downstream import DerivedLanding
from kafka_assets.records import OFFSET
from kafka_assets.sinks import committed_rows
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Derived
from kafka_assets_tests.downstream_contract import DownstreamContract, source, upstream
from kafka_assets_tests.ledgers import ASSET, plan


@pytest.mark.slow
class TestDownstreamOnSQLite(DownstreamContract):
    """The engine is the unit tests' own."""


class WithoutSpark(DerivedLanding):
    """Gives the rows and counts of each chunk as they are, where a landing would call the function."""

    def _chunk(self, rows: Any, seen: Any) -> Any:
        offsets = [offset for one in rows for offset in one.column(OFFSET).to_pylist()]
        return {str(key): part.read for key, part in seen.items()}, offsets


def chunks(engine: Engine, *keys: SliceKey, wanted: Sequence[SliceKey] | None = None) -> list[Any]:
    stream = Derived(
        name="below", topic="orders", target="below", schema="id BIGINT", upstream=ASSET, upstream_target="orders",
        root=ASSET,
    )  # fmt: skip
    unused = cast("Any", None)
    landing = WithoutSpark(
        stream=stream, keys=keys, spark=unused, records=unused, transform=unused, code_version="", tags={}, run_id="",
        tell=unused, rows=source(engine, *keys),
    )  # fmt: skip
    return list(landing.chunks({key: key.start for key in (keys if wanted is None else wanted)}, pa.schema([]))())


def test_chunks_are_bounded_and_each_row_is_counted_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 9)])
    upstream(engine, *keys)
    monkeypatch.setattr(committed_rows, "BATCH", 2)
    monkeypatch.setattr(downstream, "CHUNK_OFFSETS", 4)
    first, second = map(str, keys)
    assert chunks(engine, *keys) == [
        ({first: 4}, [0, 1, 2, 3]),
        ({first: 1, second: 4}, [4, 5, 6, 7, 8]),
        ({second: 0}, []),
    ]


def test_chunks_of_wide_rows_are_bounded_by_their_bytes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    [key] = plan(engine, slices=[(0, 5)])
    upstream(engine, key)
    monkeypatch.setattr(committed_rows, "BATCH", 2)
    monkeypatch.setattr(downstream, "CHUNK_BYTES", 1)
    name = str(key)
    assert chunks(engine, key) == [({name: 2}, [0, 1]), ({name: 2}, [2, 3]), ({name: 1}, [4]), ({name: 0}, [])]


def test_what_another_run_committed_meanwhile_is_not_read(engine: Engine) -> None:
    first, second = plan(engine, slices=[(0, 5), (5, 9)])
    upstream(engine, first, second)
    assert chunks(engine, first, second, wanted=[second]) == [({str(second): 4}, [5, 6, 7, 8])]


def test_two_lives_of_a_topic_never_share_a_chunk(engine: Engine) -> None:
    # Their rows carry the same partitions and offsets: together, each slice would get those of both.
    [first] = plan(engine, slices=[(0, 3)])
    upstream(engine, first)
    [second] = plan(engine, slices=[(0, 3)], topic_id="id-2")
    upstream(engine, second)
    found = [({str(first): 3}, [0, 1, 2]), ({str(second): 3}, [0, 1, 2])]
    assert sorted(chunks(engine, first, second), key=str) == sorted(found, key=str)
