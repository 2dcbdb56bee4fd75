"""What fails while a consumer reads, and a caller that goes on: no record is passed over, and none is kept undone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kafka_assets import Consumer, InTransaction, Workers, devstack
from kafka_assets.broker import Connection, Producer
from kafka_assets.broker.assignment import Assignment
from kafka_assets.broker.group_offsets import GroupOffsets
from kafka_assets.broker.keepers import Attached, First, Nowhere
from kafka_assets.broker.units import Where
from kafka_assets.errors import BrokerUnavailable, CommitFailed, OffsetsExpired, Retryable, UsageError
from kafka_assets_tests.freezing import frozen
from kafka_assets_tests.integration.consuming import (
    QUICK,
    STEP_BY_STEP,
    committed,
    delete_records,
    expected,
    fill,
    new_topic,
    number,
)


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker, QUICK)


class Away(GroupOffsets):
    """The group's coordinator has no answer, for so many commits."""

    def __init__(self, times: int = 0) -> None:
        super().__init__()
        self.times = times

    def commit(self, offsets: Mapping[Where, int], *, patience: float | None = None) -> None:
        if offsets and self.times:
            self.times -= 1
            raise CommitFailed("not now")
        super().commit(offsets, patience=patience)


def read_on(consumer: Consumer, enough: int, *, meet: Callable[[Any], object] = lambda _: None) -> list[Any]:
    """All records in the order in which they came, by a caller that goes on whatever passes."""
    seen: list[Any] = []
    deadline = time.monotonic() + 120
    while len({number(one) for one in seen}) < enough:
        assert time.monotonic() < deadline, [number(one) for one in seen]
        with suppress(Retryable):
            for record in consumer.records(idle=1):
                seen.append(record)
                meet(record)
                if len({number(one) for one in seen}) == enough:
                    consumer.done()
                    break
    return seen


# ---- a poll that fails after it has read --------------------------------------------------------------


def test_what_was_read_by_a_poll_that_failed_comes_again(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=100)
    keeper = Away()

    def meet(record: Any) -> None:
        if record.offset == 19:
            keeper.times = 3  # the unit's commit, and those of the polls after it

    with Consumer(connection, topic, group=topic, commit=keeper, max_records=20) as consumer:
        seen = read_on(consumer, 100, meet=meet)
    assert keeper.times == 0
    assert [record.offset for record in seen] == list(range(100))
    assert committed(connection, topic, topic) == {0: 100}


class Late(Nowhere):
    """Partition 1 cannot be had before asking for it has failed, which it does when the test says so."""

    def __init__(self) -> None:
        self.fails = self.failed = False

    def begins(self, places: Collection[Where], first: First) -> Mapping[Where, int]:
        if self.fails and not self.failed:
            self.failed = True
            raise BrokerUnavailable("not now")
        return first([place for place in places if self.failed or place[1] == 0])


def test_a_partition_that_cannot_be_had_takes_no_record_of_another_along(connection: Connection) -> None:
    topic = new_topic(connection, partitions=2, records=50)
    keeper = Late()

    def meet(record: Any) -> None:
        if number(record) == (0, 9):
            keeper.fails = True
            time.sleep(0.6)  # after which it is asked for again

    with Consumer(connection, topic, commit=keeper, max_records=10) as consumer:
        seen = read_on(consumer, 100, meet=meet)
    assert keeper.failed
    assert [record.offset for record in seen if record.partition == 0] == list(range(50))
    assert sorted(map(number, seen)) == expected(50)


def test_an_error_of_one_partition_takes_no_record_of_another_along(connection: Connection) -> None:
    topic = new_topic(connection, partitions=2, records=10)
    delete_records(connection, topic, 6)
    assignment = Assignment(connection)
    assignment.start({(topic, 0): 2, (topic, 1): 0})
    assert [message.offset() for message in assignment.consume(100, 3.0)] == list(range(10))
    with pytest.raises(OffsetsExpired, match="partition 0 of the topic"):
        assignment.consume(100, 3.0)
    assert assignment.consume(100, 0.1) == []
    assignment.close()


def test_workers_get_again_what_a_poll_that_failed_had_read(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection, partitions=2, records=20)
    seen: list[tuple[int, int]] = []
    with Workers(connection, topic, group=topic) as workers:
        reader: Any = workers._reader  # pyright: ignore[reportPrivateUsage]
        idle, consume = reader._keeper.idle, reader._reading.consume
        given: list[int] = []

        def counted(count: int, timeout: float) -> Any:
            found = consume(count, timeout)
            given.extend([1] if found else [])
            return found

        def fails_once() -> Any:
            if given == [1]:
                given.append(0)
                raise CommitFailed("not now")
            return idle()

        monkeypatch.setattr(reader._reading, "consume", counted)
        monkeypatch.setattr(reader._keeper, "idle", fails_once)
        with pytest.raises(CommitFailed):
            workers.run(lambda record: seen.append(number(record)), idle=5)
        workers.run(lambda record: seen.append(number(record)), idle=2)
    assert sorted(seen) == expected(20)
    assert committed(connection, topic, topic) == {0: 20, 1: 20}


# ---- a unit that cannot be given up in order ------------------------------------------------------------


def test_what_a_body_left_undone_comes_again_though_the_rest_of_its_unit_cannot_be_committed(
    connection: Connection,
) -> None:
    topic = new_topic(connection, partitions=1, records=20)
    keeper = Away()
    with Consumer(connection, topic, group=topic, commit=keeper) as consumer:
        seen: list[int] = []
        with pytest.raises(ValueError, match="at 12"):
            for record in consumer.records():
                seen.append(record.offset)
                if record.offset == 12:
                    raise ValueError("at 12")
        keeper.times = 1
        with pytest.raises(CommitFailed):
            next(consumer.records())
        seen += [record.offset for record in read_on(consumer, 8)]
    assert seen == [*range(13), *range(12, 20)]
    assert committed(connection, topic, topic) == {0: 20}


@pytest.mark.parametrize("commit", ["sync", "async", "transaction", "none"])
def test_what_a_body_left_undone_comes_again_from_memory(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    """Asked of Kafka again, each try would cost as long as a Fetch waits for records."""
    topic = new_topic(connection, partitions=1, records=20)
    with ExitStack() as stack:
        producer = stack.enter_context(Producer(connection, transactional_id=topic))
        keeper: Any = InTransaction(producer) if commit == "transaction" else commit
        group = None if commit == "none" else topic
        consumer = stack.enter_context(Consumer(connection, topic, group=group, commit=keeper))
        assert [len(batch) for batch in islice(consumer.batches(), 1)] == [20]
        reading: Any = consumer._reader._reading  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(reading, "start", lambda offsets: pytest.fail(f"{offsets} are fetched again"))
        seen: list[int] = []
        for stops in (5, 5, 12, 20):
            for record in consumer.records(idle=1):
                seen.append(record.offset)
                if record.offset == stops:
                    break
    if commit == "transaction":
        # What was sent of the others is aborted with it; from then on it is tried alone.
        assert seen == [*range(6), *range(6), *range(5, 13), *range(6, 20)]
    else:
        assert seen == [*range(6), 5, *range(5, 13), *range(12, 20)]
    if group:
        assert committed(connection, topic, topic) == {0: 20}


class Refusing(GroupOffsets):
    """Does not take the consumer, after the group has given it partitions."""

    def attach(self, consumer: Attached) -> None:
        time.sleep(5)
        raise UsageError("not this one")

    def begins(self, places: Collection[Where], first: First) -> Mapping[Where, int]:
        raise AssertionError("it knows of no consumer")

    released = begins  # type: ignore[assignment]


def test_why_a_keeper_does_not_take_its_consumer_is_told_though_the_group_has_given_partitions(
    connection: Connection,
) -> None:
    topic = new_topic(connection, partitions=1, records=1)
    with pytest.raises(UsageError, match="not this one"):
        Consumer(connection, topic, group=topic, commit=Refusing())


# ---- the end -------------------------------------------------------------------------------------------


def test_a_broker_that_says_nothing_is_not_an_end(breakable: Path) -> None:
    connection = Connection(devstack.up(breakable, ["kafka"]).bootstrap_servers or "", QUICK)
    [pid] = [one.pid for one in devstack.status(breakable) if one.name == "kafka-1"]
    topic = new_topic(connection, partitions=1, records=5)
    seen: list[int] = []
    with Consumer(connection, topic) as consumer:
        assert len(list(consumer.records(idle=0.1))) == 5
        reading = threading.Thread(target=lambda: seen.extend(one.offset for one in consumer.records(idle=0.1)))
        with frozen(pid):
            reading.start()
            time.sleep(1.5)
            still_reading = reading.is_alive()
        reading.join()
    assert still_reading
    assert seen == []


def test_what_is_tried_again_for_long_is_not_an_end(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=3)
    seen: list[int] = []
    with Consumer(connection, topic, group=topic) as consumer:
        for _ in range(3):
            for record in consumer.records(idle=0.1):
                seen.append(record.offset)
                break
            time.sleep(0.3)
        seen += [record.offset for record in consumer.records(idle=0.1)]
    assert seen == [0, 0, 0, 0, 1, 2]


# ---- offsets that go while they are read ----------------------------------------------------------------


@pytest.mark.parametrize("commit", ["sync", "async", "none"])
def test_who_goes_on_after_offsets_have_expired_hears_of_it_again(broker: str, commit: Any) -> None:
    connection = Connection(broker, STEP_BY_STEP)
    topic = new_topic(connection, partitions=1)
    for count in range(20):
        fill(connection, topic, [count], partitions=1)
    group = None if commit == "none" else topic
    seen: list[int] = []
    with Consumer(connection, topic, group=group, commit=commit, each="record", max_records=1) as consumer:
        for _ in range(2):
            with pytest.raises(OffsetsExpired, match="cannot be read on"):
                for record in consumer.records(idle=20):
                    seen.append(record.offset)
                    if record.offset == 2:
                        delete_records(connection, topic, 15)
    assert seen == list(range(len(seen)))
    assert len(seen) < 15
