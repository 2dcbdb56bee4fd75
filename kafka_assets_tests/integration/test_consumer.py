"""The consumer on a real broker: what each commit mode keeps, when, and where reading begins."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from kafka_assets import Consumer
from kafka_assets.broker import Connection
from kafka_assets.broker.group_offsets import GroupOffsets
from kafka_assets.broker.in_sequence import InSequence
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.units import Where
from kafka_assets.errors import BrokerRefused, CommitFailed, OffsetsExpired, TopicMissing, UsageError
from kafka_assets_tests.integration.consuming import (
    QUICK,
    committed,
    delete_records,
    expected,
    fill,
    new_topic,
    number,
    read,
)

MODES = ["sync", "async", "auto"]
EACH = ["record", "batch", "partition"]


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker, QUICK)


# ---- what is done is kept ---------------------------------------------------------------------------


@pytest.mark.parametrize("commit", MODES)
@pytest.mark.parametrize("each", EACH)
def test_what_was_read_to_its_end_is_committed_and_does_not_come_again(
    connection: Connection, commit: Any, each: Any
) -> None:
    topic = new_topic(connection, records=50)
    group = f"{topic}-{commit}-{each}"
    with Consumer(connection, topic, group=group, commit=commit, each=each) as consumer:
        first = [number(record) for record in read(consumer, 100)]
    assert sorted(first) == expected(50)
    assert committed(connection, group, topic) == {0: 50, 1: 50}
    fill(connection, topic, [50])
    with Consumer(connection, topic, group=group, commit=commit, each=each) as consumer:
        assert sorted(number(record) for record in read(consumer, 2)) == [(0, 50), (1, 50)]


@pytest.mark.parametrize(("each", "after"), [("record", 9), ("batch", 0), ("partition", 0)])
def test_a_commit_comes_after_each_unit_and_not_before(connection: Connection, each: Any, after: int) -> None:
    topic = new_topic(connection, partitions=1, records=20)
    with Consumer(connection, topic, group=topic, each=each) as consumer:
        for record in consumer.records():
            if record.offset == 9:
                break
        assert committed(connection, topic, topic).get(0, 0) == after
    # At the end, too, the record in hand is not done: its loop was left.
    assert committed(connection, topic, topic) == {0: 9}


def test_a_record_that_raised_comes_again_and_those_before_it_do_not(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    with pytest.raises(ValueError, match="at 6"), Consumer(connection, topic, group=topic) as consumer:
        for record in consumer.records():
            if record.offset == 6:
                raise ValueError("at 6")
    with Consumer(connection, topic, group=topic) as consumer:
        assert [record.offset for record in read(consumer, 4)] == [6, 7, 8, 9]


def test_a_loop_that_was_left_goes_on_with_the_record_that_was_in_hand(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    with Consumer(connection, topic, group=topic) as consumer:
        seen: list[int] = []
        for record in consumer.records():
            seen.append(record.offset)
            if record.offset == 3:
                break
        for record in consumer.records():
            seen.append(record.offset)
            if record.offset == 6:
                consumer.done()
                break
        seen += [record.offset for record in read(consumer, 3)]
    assert seen == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]


def test_batches_are_what_one_commit_is_for(connection: Connection) -> None:
    topic = new_topic(connection, records=100)
    with Consumer(connection, topic, group=topic, each="partition", max_records=30) as consumer:
        sizes: list[int] = []
        for batch in consumer.batches():
            assert len({record.partition for record in batch}) == 1
            sizes.append(len(batch))
            if sum(sizes) >= 200:
                consumer.stop()
    assert sum(sizes) == 200
    assert max(sizes) <= 30


def test_offset_first_commits_before_it_hands_over(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=20)
    with Consumer(connection, topic, group=topic, each="record", offset_first=True) as consumer:
        for record in consumer.records():
            assert committed(connection, topic, topic) == {0: record.offset + 1}
            if record.offset == 5:
                break
    with Consumer(connection, topic, group=topic, each="record", offset_first=True) as consumer:
        # 5 was in hand, and nobody did it: that is what at most once means.
        assert [record.offset for record in read(consumer, 14)] == list(range(6, 20))


def test_auto_commits_what_was_given_out_done_or_not(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=20)
    with Consumer(connection, topic, group=topic, commit="auto", auto_interval=0.05) as consumer:
        for record in consumer.records():
            if record.offset == 2:
                deadline = time.monotonic() + 120
                while committed(connection, topic, topic) != {0: 20}:
                    assert time.monotonic() < deadline
                break


def test_stop_ends_the_loop_after_the_record_in_hand(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=20)
    with Consumer(connection, topic, group=topic) as consumer:
        for record in consumer.records():
            if record.offset == 4:
                consumer.stop()
    assert committed(connection, topic, topic) == {0: 5}


def test_a_closed_consumer_says_so(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=1)
    consumer = Consumer(connection, topic)
    consumer.close()
    with pytest.raises(UsageError, match="is closed"):
        next(consumer.records())


# ---- async: in sequence -------------------------------------------------------------------------------


class Slow(InSequence):
    """Commits take as long as the test wants, and fail when it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[Where, int]] = []
        self.go = threading.Event()
        self.fail = 0

    def commit(self, offsets: Any, *, patience: float | None = None) -> None:
        if not offsets:
            return
        self.asked.append(dict(offsets))
        if threading.current_thread().name == "commits":
            assert self.go.wait(60)
            if self.fail:
                self.fail -= 1
                raise CommitFailed("not now")
        super().commit(offsets, patience=patience)


def test_an_older_async_commit_never_overwrites_a_newer_one(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=30)
    keeper = Slow()
    with Consumer(connection, topic, group=topic, commit=keeper, each="record") as consumer:
        for record in consumer.records():
            if record.offset == 20:
                deadline = time.monotonic() + 120
                while not keeper.asked:
                    assert time.monotonic() < deadline
                assert len(keeper.asked) == 1, "one is on its way, and the others wait"
                keeper.go.set()
            if record.offset == 29:
                break
    offsets = [one[topic, 0] for one in keeper.asked]
    assert offsets == sorted(offsets)
    assert len(offsets) < 15, "what waits is sent as one"
    assert committed(connection, topic, topic) == {0: 29}
    assert keeper.committed == keeper.sequence == 29


def test_an_async_commit_that_failed_is_followed_by_the_newest(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    keeper = Slow()
    keeper.go.set()
    keeper.fail = 2
    with Consumer(connection, topic, group=topic, commit=keeper, each="record") as consumer:
        assert len(read(consumer, 10)) == 10
    offsets = [one[topic, 0] for one in keeper.asked]
    assert offsets == sorted(offsets)
    assert committed(connection, topic, topic) == {0: 10}


# ---- rebalances ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", ["sync", "async"])
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_a_rebalance_in_mid_batch_repeats_and_loses_nothing(connection: Connection, commit: Any, assignor: str) -> None:
    topic = new_topic(connection, partitions=4, records=60)
    stop = threading.Event()
    seen: list[tuple[int, int]] = []
    rebalanced = threading.Event()

    failed: list[BaseException] = []

    def consume(late: bool) -> None:
        try:
            consume_all(late)
        except BaseException as error:
            failed.append(error)
            raise

    def consume_all(late: bool) -> None:
        with Consumer(
            connection, topic, group=Membership(topic, assignor=assignor), commit=commit, stop=stop, max_records=500
        ) as consumer:
            for record in consumer.records():
                seen.append(number(record))
                time.sleep(0.02)
                if late:
                    rebalanced.set()

    threads = [threading.Thread(target=consume, args=(late,)) for late in (False, True)]
    threads[0].start()
    deadline = time.monotonic() + 120
    while len(seen) < 20:
        time.sleep(0.01)
        assert time.monotonic() < deadline
    threads[1].start()
    while len(set(seen)) < 240:
        time.sleep(0.01)
        assert time.monotonic() < deadline
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
    assert rebalanced.is_set(), "the first had a batch of all in hand, and gave partitions away before its end"
    assert sorted(seen) == expected(60, partitions=4)
    assert committed(connection, topic, topic) == dict.fromkeys(range(4), 60)


def test_who_was_too_slow_for_the_group_commits_nothing(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    slow = Consumer(connection, topic, group=Membership(topic, max_poll_interval=6), each="batch")
    batches = slow.batches()
    assert len(next(batches)) == 10
    time.sleep(7)  # longer than the group waits
    with Consumer(connection, topic, group=topic) as other:
        assert [record.offset for record in read(other, 10)] == list(range(10))
        fill(connection, topic, range(10, 20), partitions=1)
        assert [record.offset for record in read(other, 10)] == list(range(10, 20))
        with pytest.raises(CommitFailed, match="moved on"):
            next(batches)
        assert committed(connection, topic, topic) == {0: 20}
    slow.close()


# ---- where it begins ----------------------------------------------------------------------------------


@pytest.fixture
def dated(connection: Connection) -> str:
    """A topic of ten records, an hour apart, in each of two partitions; the first two are gone."""
    topic = new_topic(connection, partitions=2)
    start = 1_700_000_000_000
    produce(
        connection,
        topic,
        (
            Record(value=b"%d" % count, partition=part, timestamp_ms=start + count * 3_600_000)
            for part in (0, 1)
            for count in range(10)
        ),
    )
    return topic


@pytest.mark.parametrize(
    ("start", "partitions", "offsets"),
    [
        ("earliest", None, {0: 0, 1: 0}),
        ("latest", None, {}),
        (7, None, {0: 7, 1: 7}),
        (7, [1], {1: 7}),
        ({0: 3, 1: 9}, None, {0: 3, 1: 9}),
        ({1: 9}, None, {1: 9}),
        (datetime.fromtimestamp(1_700_000_000 + 3600 * 4 - 1, UTC), None, {0: 4, 1: 4}),
        (datetime(2099, 1, 1, tzinfo=UTC), None, {}),
        (10, None, {}),
    ],
)
def test_it_begins_where_it_is_told_to(
    connection: Connection, dated: str, start: Any, partitions: Any, offsets: dict[int, int]
) -> None:
    with Consumer(connection, dated, start=start, partitions=partitions) as consumer:
        wanted = [(part, offset) for part, first in sorted(offsets.items()) for offset in range(first, 10)]
        found = read(consumer, len(wanted)) if wanted else list(consumer.records(idle=0.5))
    assert sorted((record.partition, record.offset) for record in found) == wanted


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"partitions": [0, 2]}, UsageError, "has no partition 2 · it has 2, from 0 to 1"),
        ({"start": 11}, BrokerRefused, "is not there yet"),
        ({"start": {0: 1, 1: 12}}, BrokerRefused, "offset 12 of partition 1"),
        ({"start": {0: 1}, "partitions": [0, 1]}, UsageError, "no offset says where partition 1"),
        ({"start": -1}, UsageError, "no place to begin"),
        ({"start": "beginning"}, UsageError, "no place to begin"),
        ({"commit": "sync"}, UsageError, "needs a group"),
        ({"commit": "soon"}, UsageError, "no commit mode"),
        ({"each": "hour"}, UsageError, "no commit with each"),
        ({"group": "g", "partitions": [0]}, UsageError, "does not choose its partitions"),
        ({"group": "g", "commit": "async", "offset_first": True}, UsageError, "offset_first needs commit='sync'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(
    connection: Connection, dated: str, given: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        Consumer(connection, dated, **given)


def test_a_topic_that_is_not_there_is_named(connection: Connection) -> None:
    with pytest.raises(TopicMissing, match="'nowhere'"):
        Consumer(connection, "nowhere")


def test_a_group_goes_on_where_it_was_whatever_start_says(connection: Connection, dated: str) -> None:
    with Consumer(connection, dated, group=dated, start="latest") as consumer:
        assert list(consumer.records(idle=0.5)) == []
    fill(connection, dated, [10])
    with Consumer(connection, dated, group=dated, start="latest") as consumer:
        assert sorted(number(record) for record in read(consumer, 2)) == [(0, 10), (1, 10)]


def test_offsets_that_expired_are_an_error_and_never_a_jump(connection: Connection) -> None:
    topic = new_topic(connection, partitions=1, records=10)
    with Consumer(connection, topic, group=topic) as consumer:
        for record in consumer.records():
            if record.offset == 3:
                break
    delete_records(connection, topic, 6)
    with Consumer(connection, topic, group=topic) as consumer, pytest.raises(OffsetsExpired, match="cannot be read on"):
        next(consumer.records(idle=5))
    with pytest.raises(OffsetsExpired, match="is not there any more"):
        Consumer(connection, topic, start=3)


def test_a_group_needs_no_offset_of_its_own_to_begin(connection: Connection) -> None:
    """What the group has not committed begins by `start`, and is committed at once: a restart does not jump."""
    topic = new_topic(connection, partitions=1, records=5)
    keeper = GroupOffsets()
    with Consumer(connection, topic, group=topic, start=2, commit=keeper) as consumer:
        next(consumer.records())
        assert committed(connection, topic, topic) == {0: 2}
