"""Many workers on one consumer, and a consumer for each thread, on a real broker."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from kafka_assets import Consumer, Workers, run_in_threads
from kafka_assets.broker import Connection
from kafka_assets.broker.read import StoredRecord
from kafka_assets.errors import UsageError
from kafka_assets_tests.integration.consuming import QUICK, committed, expected, fill, new_topic, number


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker, QUICK)


class Seen:
    """Records as workers saw them; stops whoever is to be stopped when there are enough."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.numbers: list[tuple[int, int]] = []
        self.stop = threading.Event()
        self.lock = threading.Lock()

    def add(self, record: StoredRecord) -> None:
        with self.lock:
            self.numbers.append(number(record))
            if len(self.numbers) >= self.enough:
                self.stop.set()


@pytest.mark.parametrize("commit", ["sync", "async"])
def test_workers_keep_order_and_commit_what_is_done(connection: Connection, commit: Any) -> None:
    topic = new_topic(connection, partitions=3, records=200)
    seen = Seen(600)
    with Workers(
        connection, topic, group=topic, commit=commit, workers=4, queue=20, max_records=50, stop=seen.stop
    ) as workers:
        workers.run(seen.add)
    by_partition: dict[int, list[int]] = defaultdict(list)
    for partition, value in seen.numbers:
        by_partition[partition].append(value)
    assert dict(by_partition) == {partition: list(range(200)) for partition in range(3)}
    assert committed(connection, topic, topic) == dict.fromkeys(range(3), 200)


def test_a_full_queue_bounds_what_waits_and_nothing_that_was_fetched_is_dropped(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=500)
    most = 0
    seen = Seen(500)

    def slow(record: StoredRecord) -> None:
        nonlocal most
        most = max(most, *workers._lanes.waiting().values())  # pyright: ignore[reportPrivateUsage]
        assert not workers._paused, "what is paused is fetched again"  # pyright: ignore[reportPrivateUsage]
        time.sleep(0.0005)
        seen.add(record)

    with Workers(connection, topic, group=topic, queue=20, max_records=10, stop=seen.stop) as workers:
        workers.run(slow)
    assert most <= 30
    assert seen.numbers == expected(500, partitions=1)


def test_a_partition_that_is_slow_is_paused_beside_one_that_is_not(connection: Connection) -> None:
    topic = new_topic(connection, partitions=2, records=200)
    seen, waited = Seen(400), list[int]()
    fast = threading.Event()

    def handle(record: StoredRecord) -> None:
        if record.partition == 0 and record.offset == 0:
            assert fast.wait(60)
            waited.append(workers._lanes.waiting()[topic, 0])  # pyright: ignore[reportPrivateUsage]
        seen.add(record)
        if number(record) == (1, 199):
            fast.set()

    with Workers(connection, topic, group=topic, queue=20, max_records=10, stop=seen.stop) as workers:
        workers.run(handle)
    assert sorted(seen.numbers) == expected(200)
    assert waited[0] <= 30


def test_what_a_worker_raises_reaches_the_caller_and_nothing_after_it_is_committed(connection: Connection) -> None:
    topic = new_topic(connection, partitions=2, records=50)
    seen = Seen(100)
    failing = True

    def handle(record: StoredRecord) -> None:
        if failing and record.partition == 0 and record.offset == 20:
            raise ValueError("at 20")
        seen.add(record)

    with Workers(connection, topic, group=topic, stop=seen.stop) as workers:
        with pytest.raises(ValueError, match="at 20") as raised:
            workers.run(handle)
        assert f"at {topic}:0:20, which is not done" in "".join(raised.value.__notes__)
        assert committed(connection, topic, topic)[0] == 20
        assert (0, 21) not in seen.numbers
        failing = False
        workers.run(handle)
    assert sorted(seen.numbers) == expected(50)
    assert committed(connection, topic, topic) == {0: 50, 1: 50}


def test_stop_drains_what_was_taken(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=100)
    seen: list[int] = []
    with Workers(connection, topic, group=topic, workers=2, max_records=30) as workers:

        def handle(record: StoredRecord) -> None:
            workers.stop()
            time.sleep(0.002)
            seen.append(record.offset)

        workers.run(handle)
    assert seen == list(range(len(seen)))
    assert len(seen) > 1, "what had been taken was done"
    assert committed(connection, topic, topic) == {0: len(seen)}


def test_idle_ends_it_and_run_goes_on_later(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    seen: list[int] = []
    with Workers(connection, topic, start=3) as workers:
        workers.run(lambda record: seen.append(record.offset), idle=1)
        fill(connection, topic, [10], partitions=1)
        workers.run(lambda record: seen.append(record.offset), idle=1)
    assert seen == list(range(3, 11))


def test_workers_in_a_group_lose_and_repeat_nothing_when_members_come_and_go(connection: Connection) -> None:
    topic = new_topic(connection, partitions=4, records=300)
    seen = Seen(1200)
    stays, goes, comes = seen.stop, threading.Event(), threading.Event()
    members: dict[threading.Event, Workers] = {}

    def slow(record: StoredRecord) -> None:
        time.sleep(0.01)
        seen.add(record)

    def work(stop: threading.Event) -> None:
        with Workers(connection, topic, group=topic, queue=50, workers=2, stop=stop) as workers:
            members[stop] = workers
            workers.run(slow)

    def joined(stop: threading.Event) -> threading.Thread:
        """One more member, with the partitions that it has got."""
        thread = threading.Thread(target=work, args=(stop,))
        thread.start()
        until(lambda: stop in members and members[stop].assigned)
        return thread

    def until(true: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not true() and not seen.stop.is_set():
            assert time.monotonic() < deadline, len(set(seen.numbers))
            time.sleep(0.02)

    # Who leaves while the group is arranged anew may find no generation to commit in, and leaves that to the others:
    # nobody does here before all have settled.
    first, second = joined(stays), joined(goes)
    until(lambda: len(seen.numbers) > 400)
    time.sleep(1)
    goes.set()
    second.join()
    third = joined(comes)
    assert seen.stop.wait(120), len(set(seen.numbers))
    first.join()
    time.sleep(3)
    comes.set()
    third.join()
    assert sorted(seen.numbers) == expected(300, partitions=4)
    assert committed(connection, topic, topic) == dict.fromkeys(range(4), 300)


def test_a_consumer_for_each_thread_shares_the_partitions(connection: Connection) -> None:
    topic = new_topic(connection, partitions=4, records=100)
    seen = Seen(400)
    names: set[str] = set()

    def work(stop: threading.Event) -> None:
        with Consumer(connection, topic, group=topic, stop=stop, max_records=20) as consumer:
            for record in consumer.records():
                seen.add(record)
                names.add(threading.current_thread().name)
                time.sleep(0.005)

    run_in_threads(work, threads=2, stop=seen.stop)
    assert sorted(seen.numbers) == expected(100, partitions=4)
    assert len(names) == 2
    assert committed(connection, topic, topic) == dict.fromkeys(range(4), 100)


def test_what_one_thread_raises_ends_all_and_reaches_the_caller(connection: Connection) -> None:
    topic = new_topic(connection, partitions=2, records=50)
    stop = threading.Event()

    def work(stop: threading.Event) -> None:
        with Consumer(connection, topic, group=topic, stop=stop, each="record") as consumer:
            for record in consumer.records():
                if number(record) == (1, 30):
                    raise ValueError("at 30")

    with pytest.raises(ValueError, match="at 30"):
        run_in_threads(work, threads=2, stop=stop)
    assert committed(connection, topic, topic)[1] == 30


def test_a_mode_that_passes_what_is_not_done_is_not_for_workers(connection: Connection) -> None:
    with pytest.raises(UsageError, match="is not for workers"):
        Workers(connection, "t", group="g", commit="auto")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="without a worker"):
        Workers(connection, "t", group="g", workers=0)
    with pytest.raises(UsageError, match="without a thread"):
        run_in_threads(print, threads=0, stop=threading.Event())
