"""What fails before a slice is claimed: written into its claim, counted or not, and never into a result."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType
from sqlalchemy import Engine, event

from kafka_assets import kafka_asset
from kafka_assets.assets import land as lands
from kafka_assets.assets import landing as landings
from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.failure import failure_of
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.land import Asking, Unlanded, land
from kafka_assets.assets.landing import Landing, united
from kafka_assets.assets.making import called
from kafka_assets.assets.names import DIGEST_TAG, IO_MANAGER, KAFKA, SPARK, TOKEN_TAG
from kafka_assets.broker.offsets import PartitionOffsets, TopicOffsets
from kafka_assets.errors import (
    KeysUnknown,
    OffsetsExpired,
    SliceFailed,
    SparkUnavailable,
    StreamError,
    TableIncompatible,
)
from kafka_assets.lab.bench.spark_road import publishing_spans
from kafka_assets.ledger.claims import release
from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.publications import find
from kafka_assets.records import BadRecord, Seen
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream
from kafka_assets.testing import Session
from kafka_assets_tests.ledgers import ASSET, Attempt, chunk_of, plan, rows, scalar

NARROW = TableIncompatible("the table is too narrow")
GONE = SparkUnavailable("Spark cannot be reached")


class Raising:
    """Records that are not to be had."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, *given: object) -> Any:
        raise self.error


class Observing(Raising):
    """A topic whose first partition begins here by now."""

    def __init__(self, log_start: int) -> None:
        super().__init__(GONE)
        self.offsets = TopicOffsets("orders", "id-1", {0: PartitionOffsets(log_start, 10, 10)})

    def observe(self, topics: object) -> dict[str, TopicOffsets]:
        return {"orders": self.offsets}


@kafka_asset(name=ASSET, topic="orders", target=ASSET, schema="id BIGINT, note STRING", max_attempts=2)
def orders(records: Any) -> Any:
    return records


@pytest.fixture
def run(engine: Engine) -> Callable[..., dg.ExecuteInProcessResult]:
    """A run over all that is planned, in which `error` is raised before anything is claimed."""

    def run(error: Exception | None = None, **tags: str) -> dg.ExecuteInProcessResult:
        keys = rows(
            engine, "select 'orders:' || partition || ':' || start_offset || '-' || end_offset from kafka_slice"
        )
        names = [key for (key,) in keys]
        with dg.DagsterInstance.ephemeral() as instance:
            instance.add_dynamic_partitions("kafka_orders", names)
            ends = {"start": names[0], "end": names[-1]}
            return dg.materialize(
                [orders],
                instance=instance,
                raise_on_error=False,
                tags={**{f"dagster/asset_partition_range_{end}": key for end, key in ends.items()}, **tags},
                resources={
                    KAFKA: cast("Any", Raising(error or ValueError("no good"))),
                    SPARK: cast("Any", Session(cast("Any", None))),
                    IO_MANAGER: SliceIOManager(database_url=engine.url.render_as_string()),
                },
            )

    return run


def claims(engine: Engine) -> list[Any]:
    return rows(
        engine,
        "select u.state, c.attempt, c.failures_alone, c.failure from kafka_claim c"
        " join kafka_publication u on u.id = c.publication_id order by u.id",
    )


def test_a_function_that_raises_is_recorded_waits_and_is_given_up(engine: Engine, run: Any) -> None:
    plan(engine, slices=[(0, 5)])
    assert not run(**{TOKEN_TAG: "one"}).success
    assert claims(engine) == [("planned", 1, 1, "ValueError: no good")]
    assert scalar(engine, "select not_before > lease_until from kafka_claim") == 1
    run(**{TOKEN_TAG: "two"})
    assert claims(engine) == [("failed", 2, 2, "ValueError: no good")]


def test_slices_that_fail_in_company_are_recorded_and_not_counted(engine: Engine, run: Any) -> None:
    plan(engine, slices=[(0, 5), (5, 9)])
    run()
    assert claims(engine) == [("planned", 1, 0, "ValueError: no good")] * 2


def test_what_passes_by_itself_waits_and_is_never_given_up(engine: Engine, run: Any) -> None:
    plan(engine, slices=[(0, 5)])
    for _ in range(3):
        run(GONE)
    assert claims(engine) == [("planned", 3, 0, "Spark cannot be reached")]
    assert scalar(engine, "select not_before > lease_until from kafka_claim") == 1


def test_the_same_holds_after_the_claim(engine: Engine) -> None:
    keys = plan(engine, slices=[(0, 5)])
    for attempt in range(1, 4):
        with pytest.raises(SparkUnavailable):
            land(engine, SchemaRaises(**landing(keys)), None, Asking(replaces=False, force=False))
        assert claims(engine) == [("planned", attempt, 0, "Spark cannot be reached")]


def test_what_no_slice_can_help_is_counted_against_none_and_gone_when_one_lands(engine: Engine) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 9)])
    for attempt in range(1, 4):
        with pytest.raises(TableIncompatible):
            land(engine, SchemaRaises(**landing(keys), error=NARROW), None, Asking(replaces=False, force=False))
        assert claims(engine) == [("planned", attempt, 0, "the table is too narrow")] * 2
    assert rows(engine, "select not_before from kafka_claim") == [(None,)] * 2, "they wait as one"
    assert rows(engine, "select asset, failure, code_version, tries from kafka_stall") == [
        (ASSET, "the table is too narrow", "v1", 1)
    ]
    attempt = Attempt(engine, keys).claim()
    attempt.publish()
    release(engine, attempt.claims)
    assert rows(engine, "select * from kafka_stall") == []


@pytest.mark.slow
@pytest.mark.parametrize("error", [NARROW, StreamError("no such type"), AnalysisException("no such column", "", {})])
def test_what_the_declaration_causes_before_anything_is_claimed_is_no_slices_fault(
    engine: Engine, run: Any, error: Exception
) -> None:
    plan(engine, slices=[(0, 5)])
    for _ in range(3):
        run(error)
    assert [(state, alone) for state, _, alone, _ in claims(engine)] == [("planned", 0)]
    assert scalar(engine, "select count(*) from kafka_stall") == 1


def failure(result: dg.ExecuteInProcessResult) -> Any:
    """What Dagster shows of a run that failed."""
    [failed] = [one for one in result.all_events if one.event_type_value == "STEP_FAILURE"]
    return cast("Any", failed.event_specific_data).user_failure_data


def test_a_failed_run_says_which_slices_how_often_when_next_and_what_cures_it(engine: Engine, run: Any) -> None:
    plan(engine, slices=[(0, 5)])
    said = failure(run())
    assert said.description == "ValueError: no good"
    told = {name: value.value for name, value in said.metadata.items()}
    assert (told["slices"], told["offsets"], told["attempt"]) == ("orders:0:0-5", 5, 1)
    assert told["counts"] == "1 of 2 failures alone, with which a slice is given up"
    assert told["tried_again"] > time.time()
    assert "kafka-assets replay orders --failed" in told["commands"]
    assert failure(run()).metadata["tried_again"].value == "not by itself, unless the stream's code changes"


def test_a_run_that_no_slice_can_help_says_so(engine: Engine, run: Any) -> None:
    plan(engine, slices=[(0, 5), (5, 9)])
    told = {name: value.value for name, value in failure(run(NARROW)).metadata.items()}
    assert told["slices"] == "orders:0:0-5 (+1)"
    assert told["counts"].startswith("no: it is no slice's fault")
    assert "kafka-assets run orders" in told["commands"]


def test_some_of_the_bad_records_are_shown_as_nothing_but_text(engine: Engine) -> None:
    keys = plan(engine, slices=[(0, 5)])
    bad = BadRecord(0, 3, "id: x does not fit", None, b"<img src=http://x> | \xff", (), None)
    stream = stream_of(orders)
    assert stream is not None
    said = failure_of(SliceFailed("too many", bad=[bad]), engine, stream, keys)
    assert "| ` 0:3 ` | ` id: x does not fit ` | ` <img src=http://x> \\| \ufffd ` |" in str(
        said.metadata["bad_records"].value
    )


@pytest.mark.slow
def test_a_committed_result_stands_whatever_fails_later(engine: Engine, run: Any) -> None:
    keys = plan(engine, slices=[(0, 5)])
    Attempt(engine, keys).claim(lease_ms=0).publish()
    run(**{TOKEN_TAG: "late"})
    assert claims(engine) == [("committed", 1, 0, None)]
    for _ in range(3):
        run()  # as a backfill
    assert claims(engine) == [("committed", 4, 3, "ValueError: no good")]
    assert scalar(engine, "select committed_attempt from kafka_publication") == 1
    assert scalar(engine, "select count(*) from orders") == 5


def test_a_live_lease_of_another_run_is_left_alone(engine: Engine, run: Any) -> None:
    keys = plan(engine, slices=[(0, 5)])
    other = Attempt(engine, keys, run_id="other").claim()
    assert not run().success
    assert claims(engine) == [("planned", 1, 0, None)]
    other.publish()
    assert claims(engine)[0][0] == "committed"


def test_a_run_with_other_keys_than_those_it_was_meant_for_records_nothing(engine: Engine, run: Any) -> None:
    plan(engine, slices=[(0, 5), (5, 9)])
    run(**{DIGEST_TAG: "another"})
    assert claims(engine) == [("planned", 0, 0, None)] * 2


def test_a_reversed_range_is_refused_before_anything_is_read(run: Any, engine: Engine) -> None:
    plan(engine, slices=[(0, 5), (5, 9)])
    ends = {"dagster/asset_partition_range_start": "orders:0:5-9", "dagster/asset_partition_range_end": "orders:0:0-5"}
    [failed] = [one for one in run(**ends).all_events if one.event_type_value == "STEP_FAILURE"]
    said: Any = failed.event_specific_data
    assert "the run has no slice" in str(said.error)
    assert KeysUnknown.__name__ in str(said.error)


def test_without_a_ledger_the_error_is_the_functions_own() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("kafka_orders", ["orders:0:0-5"])
        with pytest.raises(ValueError, match="no good"):
            dg.materialize_to_memory(
                [orders],
                partition_key="orders:0:0-5",
                instance=instance,
                resources={
                    KAFKA: cast("Any", Raising(ValueError("no good"))),
                    SPARK: cast("Any", Session(cast("Any", None))),
                },
            )


def test_a_forgotten_return_is_named() -> None:
    stream = stream_of(orders)
    assert stream is not None
    with pytest.raises(StreamError, match=r"'orders' returned None, which is no DataFrame .* end it with `return`"):
        called(lambda records: None, stream, None)(cast("Any", "records"))  # type: ignore[arg-type, return-value]


def test_many_slices_are_united_by_halves() -> None:
    class Frame:
        def __init__(self, leaves: int = 1, depth: int = 0) -> None:
            self.leaves, self.depth = leaves, depth

        def unionByName(self, other: Frame) -> Frame:  # noqa: N802 - Spark's
            return Frame(self.leaves + other.leaves, max(self.depth, other.depth) + 1)

    found: Any = united(cast("Any", [Frame() for _ in range(700)]))
    assert (found.leaves, found.depth) == (700, 10)


def test_of_many_whole_slices_spark_is_asked_for_the_columns_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def landed(frame: Any, *, stream: Stream) -> Any:
        asked.append(frame)
        return SimpleNamespace(schema=StructType())

    monkeypatch.setattr(landings, "landed_columns", landed)
    monkeypatch.setattr(landings, "to_arrow_schema", lambda schema, timezone: schema)
    stream = stream_of(orders)
    assert stream is not None
    keys = [SliceKey("orders", 1, 0, at, at + 1) for at in range(300)]
    whole = {**landing(keys), "stream": stream.model_copy(update={"scope": "slice"}), "transform": lambda some: some}
    Undecoded(**whole).schema(cast("Any", "all of them"))
    [[[piece]]] = asked
    assert piece.slices == (keys[0],)


def test_slices_that_another_run_has_committed_meanwhile_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = [SliceKey("orders", 1, 0, at, at + 5) for at in (0, 5)]
    monkeypatch.setattr(landings, "stream_chunks", lambda plan, fetch, sizes: plan)
    [[piece]] = Landing(**landing([first, second])).chunks({second: 7}, NO_COLUMNS)()
    assert (piece.slices, piece.start, piece.end) == ((second,), 7, 10)


def test_what_expired_of_a_slice_that_another_run_committed_fails_nothing(engine: Engine) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 10)])
    held = list(find(engine, asset=ASSET, keys=keys).values())
    readable = {key: key.start for key in keys}
    mine = Landing(**{**landing(keys), "records": Observing(log_start=5)})
    lands._confirm(mine, held, readable, {keys[1]: Seen(read=5)})
    with pytest.raises(OffsetsExpired, match="orders:0:0-5"):
        lands._confirm(mine, held, readable, {keys[0]: Seen(), keys[1]: Seen(read=5)})


@pytest.mark.slow
def test_more_slices_than_a_statement_takes_values_land_in_one_run(engine: Engine) -> None:
    keys = plan(engine, slices=[(at, at + 1) for at in range(550)])
    few = make_engine(engine.url.render_as_string())

    def limited(connection: sqlite3.Connection, record: object) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 520)

    event.listen(few, "connect", limited)
    Attempt(few, keys).claim().publish()
    few.dispose()
    assert scalar(engine, "select count(*) from kafka_publication where state = 'committed'") == 550


NO_COLUMNS = pa.schema([])


def landing(keys: list[SliceKey]) -> dict[str, Any]:
    return {
        "stream": stream_of(orders), "keys": tuple(keys), "spark": None, "records": Raising(GONE), "transform": None,
        "code_version": "v1", "tags": {}, "run_id": "run", "tell": None,
    }  # fmt: skip


@dataclass(frozen=True)
class Crafted(Landing):
    """Gives rows without Spark; of one slice none are to be had."""

    bad: SliceKey | None = None

    def schema(self, frame: Any) -> Any:
        return chunk_of(self.keys[0]).rows.schema

    def chunks(self, read_from: Any, schema: Any) -> Any:
        def read() -> Any:
            for key in self.keys:
                if key == self.bad:
                    raise SliceFailed("too many bad records")
                yield chunk_of(key)

        return read


@pytest.mark.slow
def test_a_run_of_many_slices_is_cut_into_transactions_and_one_that_fails_stops_no_other(engine: Engine) -> None:
    keys = plan(engine, slices=[(at, at + 1) for at in range(250)])
    said: list[str] = []
    asking = Asking(replaces=False, force=False, say=said.append)
    with pytest.raises(Unlanded, match="1 of the run's transactions failed, 150 slices have landed") as failed:
        land(engine, Crafted(**landing(keys), bad=keys[120]), None, asking)
    [(mine, error)] = failed.value.failed
    assert (list(mine), str(error)) == (keys[100:200], "too many bad records")
    assert rows(engine, "select start_offset from kafka_publication where state = 'committed' order by 1") == [
        (at,) for at in (*range(100), *range(200, 250))
    ]
    assert scalar(engine, "select count(*) from kafka_claim where failure is not null and failures_alone = 0") == 100
    assert said[0] == "claimed orders:0:0-1 (+99): 100 slices, 100 offsets, attempt 1"
    assert said[1].startswith("read chunk 1, orders:0:0-1: 1 records")
    assert "committed 100 slices: 100 records landed" in said
    assert len(land(engine, Crafted(**landing(keys)), None, asking)) == 250
    assert scalar(engine, "select count(*) from orders") == 250


@dataclass(frozen=True)
class Slow(Crafted):
    """One of its slices takes a while."""

    def chunks(self, read_from: Any, schema: Any) -> Any:
        read = super().chunks(read_from, schema)
        if self.bad not in self.keys:
            return read
        time.sleep(0.5)
        return replace(self, bad=None).chunks(read_from, schema)


@pytest.mark.slow
def test_the_seconds_of_a_transaction_are_its_own(engine: Engine) -> None:
    keys = plan(engine, slices=[(at, at + 1) for at in range(201)])
    landed = land(engine, Slow(**landing(keys), bad=keys[0]), None, Asking(replaces=False, force=False))
    took = {one.publication.key.start: sum(one.seconds.values()) for one in landed}
    assert took[0] == took[99] > 0.5
    assert took[200] < took[99]
    spans = publishing_spans(engine, asset=ASSET)
    assert len(spans) == 3
    assert sorted(spans) == spans and all(one[1] <= two[0] for one, two in pairwise(spans))


class Undecoded(Landing):
    """Gives the places of the records, where a landing would decode them."""

    def decoded(self, some: Any) -> Any:
        return [some]


@dataclass(frozen=True)
class SchemaRaises(Landing):
    """Spark is gone when it is asked for the columns, or something else is wrong."""

    error: Exception = field(default=GONE, compare=False)

    def schema(self, frame: Any) -> Any:
        raise self.error
