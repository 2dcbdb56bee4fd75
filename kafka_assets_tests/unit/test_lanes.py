"""Lanes and units: order in a partition, and what is done up to where. Without a broker."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict

from kafka_assets.broker.lanes import Lanes
from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.units import Unit, cut


def record(partition: int, offset: int) -> StoredRecord:
    return StoredRecord("t", partition, offset, None, b"", 0, ())


def test_many_workers_keep_the_order_of_each_partition() -> None:
    lanes, lock = Lanes(), threading.Lock()
    seen: dict[int, list[int]] = defaultdict(list)
    at_once: set[int] = set()

    def work() -> None:
        while (taken := lanes.take()) is not None:
            lane, one = taken
            with lock:
                assert one.partition not in at_once, "never two of a partition at a time"
                at_once.add(one.partition)
            time.sleep(random.random() / 2000)
            with lock:
                at_once.discard(one.partition)
                seen[one.partition].append(one.offset)
            lanes.done(lane, one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for offset in range(50):
        lanes.add([record(partition, offset) for partition in range(5)])
    assert lanes.settle(timeout=60)
    lanes.end()
    for thread in threads:
        thread.join()
    assert dict(seen) == {partition: list(range(50)) for partition in range(5)}
    assert {(one.partition, one.offset) for one in lanes.take_done()} == {(partition, 49) for partition in range(5)}
    assert lanes.take_done() == []


def test_what_is_done_never_passes_what_is_in_hand() -> None:
    lanes = Lanes()
    lanes.add([record(0, 0), record(0, 1), record(1, 0)])
    first, other = lanes.take(), lanes.take()
    assert first is not None
    assert other is not None
    assert (first[1].partition, other[1].partition) == (0, 1)
    lanes.done(*other)
    assert [(one.partition, one.offset) for one in lanes.take_done()] == [(1, 0)]


def test_what_is_left_after_a_failure_begins_with_the_record_that_failed() -> None:
    lanes = Lanes()
    lanes.add([record(0, 0), record(0, 1), record(0, 2), record(1, 0), record(1, 1)])
    first, other = lanes.take(), lanes.take()
    assert first is not None
    assert other is not None
    lanes.done(*other)
    lanes.failed(*first, ValueError("no"))
    assert lanes.take_left() == [record(0, 0), record(0, 1), record(0, 2), record(1, 1)]
    assert lanes.take_left() == []


def test_after_a_failure_nothing_is_begun() -> None:
    lanes = Lanes()
    lanes.add([record(0, 0), record(0, 1), record(1, 0)])
    taken = lanes.take()
    assert taken is not None
    lanes.failed(*taken, ValueError("no"))
    assert lanes.take() is None
    assert lanes.failure is not None
    assert lanes.failure.record == record(0, 0)
    assert lanes.take_done() == []


def test_what_is_done_of_a_lost_partition_does_not_count() -> None:
    lanes = Lanes()
    lanes.add([record(0, 0), record(0, 1)])
    taken = lanes.take()
    assert taken is not None
    lanes.close([("t", 0)])
    # It comes back, and its records wait until the old one is out of the worker's hand.
    lanes.add([record(0, 0)])
    assert lanes.waiting() == {("t", 0): 1}
    waiter: list[object] = []
    thread = threading.Thread(target=lambda: waiter.append(lanes.take()))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    lanes.done(*taken)
    thread.join(60)
    assert lanes.take_done() == []
    assert len(waiter) == 1
    lanes.end()


def test_a_unit_says_what_is_done_and_what_is_open() -> None:
    unit = Unit([record(0, 0), record(1, 5), record(0, 1)])
    assert unit.take() == [record(0, 0)]
    assert (unit.ends, unit.open) == ({}, {("t", 0): 0, ("t", 1): 5})
    unit.take(2)
    assert (unit.ends, unit.open, unit.begins) == (
        {("t", 0): 1},
        {("t", 0): 1, ("t", 1): 5},
        {("t", 0): 0, ("t", 1): 5},
    )
    unit.settle()
    assert (unit.ends, unit.open) == ({("t", 0): 2, ("t", 1): 6}, {})


def test_a_fetch_is_cut_by_record_partition_or_not_at_all() -> None:
    fetched = [record(1, 0), record(0, 0), record(1, 1)]
    assert [len(unit.todo) for unit in cut(fetched, "record")] == [1, 1, 1]
    assert [[one.partition for one in unit.todo] for unit in cut(fetched, "partition")] == [[0], [1, 1]]
    assert [len(unit.todo) for unit in cut(fetched, "batch")] == [3]
    assert cut([], "batch") == []
