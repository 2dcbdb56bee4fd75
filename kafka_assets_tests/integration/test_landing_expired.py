"""Records that go before they are landed: real deletions, between any two looks at the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import dagster as dg
import pytest

from kafka_assets.assets import land, reading
from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.broker.produce import Record, transaction
from kafka_assets.broker.topics import delete_topic
from kafka_assets.ledger.engine import make_engine, parse_url
from kafka_assets.ledger.planning import commit_plan
from kafka_assets.ledger.sources import known_sources
from kafka_assets.plan import NewSlice
from kafka_assets_tests.integration.consuming import delete_records
from kafka_assets_tests.integration.project import Landing, failure_of

Declare = Callable[..., Landing]
BOOKS = "select records_read, landed, holes, expired, expired_start, expired_end from kafka_publication"


@pytest.fixture(name="landing", params=["sqlite", "postgresql"])
def on_both(request: pytest.FixtureRequest, tmp_path: Any, broker: str, spark_remote: str) -> Iterator[Declare]:
    """SQLite reads everything before its transaction begins; in PostgreSQL's, Kafka is asked among the rows."""
    url = f"sqlite:///{tmp_path / 'warehouse.db'}"
    if request.param != "sqlite":
        url = request.getfixturevalue("postgresql_database")
    engine = make_engine(parse_url(url))
    with dg.DagsterInstance.ephemeral() as instance:

        def declare(name: str, **attributes: Any) -> Landing:
            return Landing(
                name=f"{name}_{request.param}",
                broker=broker,
                spark_remote=spark_remote,
                database_url=url,
                engine=engine,
                instance=instance,
                attributes=attributes,
            )

        yield declare
    engine.dispose()


def test_what_expires_between_tick_and_run_fails_it_or_is_recorded(landing: Declare) -> None:
    stream = landing("expired_waiting")
    stream.topic()
    stream.produce_ids(0, 20)
    [request] = stream.tick().requests
    delete_records(stream.connection, stream.name, 12)
    said = failure_of(stream.run(request))
    assert f"{stream.name}:0:0-20: offsets 0 to 12 expired before they were read" in said
    assert "on_expired: record" in said
    assert stream.rows("select state from kafka_publication") == [("planned",)]
    recording = stream.declared_again(on_expired="record")
    assert recording.run(request).success
    assert stream.rows(BOOKS) == [(8, 8, 0, 12, 0, 12)]
    assert stream.sql(f"select min(id) from {stream.name}") == 12
    assert stream.sql("select count(*) from kafka_gap") == 0


@pytest.mark.parametrize("scope", ["record", "slice"])
def test_a_slice_that_expired_as_a_whole_has_its_books_and_no_rows(landing: Declare, scope: str) -> None:
    stream = landing(f"expired_{scope}", on_expired="record", scope=scope)
    stream.topic()
    stream.produce_ids(0, 20)
    [request] = stream.tick().requests
    stream.produce_ids(20, 25)
    delete_records(stream.connection, stream.name, 22)
    assert stream.run(request).success
    assert stream.rows(BOOKS) == [(0, 0, 0, 20, 0, 20)]
    assert stream.sql(f"select count(*) from {stream.name}") == 0
    # What was not planned yet when it expired has no books: it is a slice of its own, which is lost.
    stream.land()
    books = f"{BOOKS} where state = 'committed' order by start_offset"
    assert stream.rows(books) == [(0, 0, 0, 20, 0, 20), (3, 3, 0, 0, None, None)]
    assert stream.rows("select start_offset, end_offset from kafka_slice where kind = 'lost'") == [(20, 22)]
    assert stream.sql("select next_offset from kafka_committed_offset") == 25
    assert stream.sql("select count(*) from kafka_gap") == 0


def test_what_was_read_lands_though_it_expires_before_the_commit(
    landing: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = landing("expired_read")
    stream.topic()
    stream.produce_ids(0, 20)
    [request] = stream.tick().requests
    expires_before(monkeypatch, "_confirm", stream, 12)
    assert stream.run(request).success
    assert stream.rows(BOOKS) == [(20, 20, 0, 0, None, None)]


def test_a_hole_that_may_be_what_expired_meanwhile_is_not_taken_for_one(
    landing: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = landing("expired_hole", on_expired="record")
    stream.topic()
    stream.produce_ids(0, 20)
    with transaction(stream.connection, stream.name, transactional_id=stream.name) as writing:
        writing.produce([Record(value=b'{"id": 20, "note": "n"}', partition=0)])
        writing.commit()
    stream.settle()
    [request] = stream.tick().requests
    with monkeypatch.context() as patch:
        expires_before(patch, "_confirm", stream, 12)
        assert "expired before they were read" in failure_of(stream.run(request))
    assert stream.rows("select state from kafka_publication") == [("planned",)]
    assert stream.sql(f"select count(*) from {stream.name}") == 0
    # The next attempt sees where the log begins before it reads.
    assert stream.run(request).success
    assert stream.rows(BOOKS) == [(9, 9, 1, 12, 0, 12)]


def test_what_expires_before_spark_reads_it_is_never_a_hole(landing: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = landing("expired_reading", on_expired="record")
    stream.topic()
    stream.produce_ids(0, 20)
    [request] = stream.tick().requests
    with monkeypatch.context() as patch:
        first_do(patch, "Begun", lambda: delete_records(stream.connection, stream.name, 12), of=reading)
        assert not stream.run(request).success
    assert stream.rows("select state from kafka_publication") == [("planned",)]
    assert stream.run(request).success
    assert stream.rows(BOOKS) == [(8, 8, 0, 12, 0, 12)]


def test_what_expires_after_it_was_read_ahead_is_recorded_and_does_not_land(
    landing: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = landing("expired_ahead", on_expired="record", slices={"max_records": 10})
    stream.topic()
    stream.produce_ids(0, 20)
    [request] = stream.tick().requests
    looks = count()
    monkeypatch.setattr(land, "MAX_OFFSETS", 10)
    first_do(
        monkeypatch,
        "_readable_from",
        lambda: next(looks) and delete_records(stream.connection, stream.name, 15),  # of the second transaction
    )
    assert stream.run(request).success
    assert stream.rows(f"{BOOKS} order by start_offset") == [(10, 10, 0, 0, None, None), (5, 5, 0, 5, 10, 15)]
    assert stream.rows(f"select min(id), max(id), count(*) from {stream.name} where id >= 10") == [(15, 19, 5)]


def test_a_topic_that_ends_below_what_was_planned_is_an_error(landing: Declare) -> None:
    stream = landing("truncated")
    stream.topic()
    stream.produce_ids(0, 20)
    stream.land()
    [source] = known_sources(stream.engine, [stream.name])[stream.name]
    # As by a broker whose followers then lost what they had not copied yet.
    [key] = commit_plan(stream.engine, source, 0, expected=20, slices=[NewSlice(20, 30)], asset=stream.name) or []
    stream.instance.add_dynamic_partitions(f"kafka_{stream.name}", [str(key)])
    assert f"slice {key} ends beyond its partition, which ends at 20" in failure_of(stream.replay(str(key)))
    assert stream.sql(f"select count(*) from {stream.name}") == 20


@pytest.mark.parametrize("when", ["waiting", "reading"])
def test_a_topic_created_again_between_tick_and_run_or_commit_lands_nothing_of_the_new_one(
    landing: Declare, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    stream = landing(f"again_{when}")
    stream.topic()
    stream.produce_ids(0, 20)
    [request] = stream.tick().requests
    if when == "waiting":
        created_again(stream)
        said = failure_of(stream.run(request))
    else:
        with monkeypatch.context() as patch:
            first_do(patch, "_confirm", lambda: created_again(stream))
            said = failure_of(stream.run(request))
    assert f"slice {stream.name}:0:0-20 belongs to a topic that was deleted" in said
    assert stream.rows("select state from kafka_publication") == [("planned",)]
    stream.land()
    assert stream.rows(f"select id from {stream.name} order by id") == [(at,) for at in range(100, 125)]
    lost = stream.rows("select start_offset, end_offset from kafka_slice where kind = 'lost'")
    assert lost == [(0, 20)]
    assert stream.sql("select count(*) from kafka_gap") == 0


def expires_before(patch: pytest.MonkeyPatch, step: str, stream: Landing, before: int) -> None:
    """What lies below this offset goes right before this step of the run."""
    first_do(patch, step, lambda: delete_records(stream.connection, stream.name, before))


def first_do(patch: pytest.MonkeyPatch, step: str, work: Callable[[], object], *, of: Any = land) -> None:
    goes_on = getattr(of, step)

    def after_it(*given: Any, **more: Any) -> Any:
        work()
        return goes_on(*given, **more)

    patch.setattr(of, step, after_it)


def created_again(stream: Landing) -> None:
    delete_topic(stream.connection, stream.name)
    stream.topic()
    stream.produce_ids(100, 125)
    found = observe(stream.connection, [stream.name])[stream.name]
    assert isinstance(found, TopicOffsets)
    assert found.partitions[0].last_stable == 25
