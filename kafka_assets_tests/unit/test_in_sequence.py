"""Async commits in sequence, without a broker: what is on its way, what waits, and what a failure leaves."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from kafka_assets.broker.group_offsets import GroupOffsets
from kafka_assets.broker.in_sequence import InSequence
from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.units import Unit, Where
from kafka_assets.errors import CommitFailed


class Slow(InSequence):
    """Commits wait until the test lets them go; the first `fail` of them fail."""

    def __init__(self, *, fail: int = 0, moved_on: bool = False) -> None:
        super().__init__()
        self.patience = 5.0
        self.fail, self.moved_on = fail, moved_on
        self.asked: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def commit(self, offsets: Mapping[Where, int], *, patience: float | None = None) -> None:
        if not offsets:
            return
        self.asked.append(offsets["t", 0])
        self.begun.set()
        assert self.go.wait(60)
        if self.fail:
            self.fail -= 1
            raise CommitFailed("not now", moved_on=self.moved_on)


def done(offset: int) -> Unit:
    unit = Unit([StoredRecord("t", 0, offset, None, None, 0, ())])
    unit.take()
    unit.settle()
    return unit


def test_one_is_on_its_way_and_only_the_newest_waits() -> None:
    keeper = Slow()
    keeper.done(done(0))
    assert keeper.begun.wait(60)
    for offset in range(1, 10):
        keeper.done(done(offset))
    assert keeper.asked == [1]
    keeper.go.set()
    keeper.close()
    assert keeper.asked == [1, 10]
    assert keeper.committed == keeper.sequence == 10


def test_what_failed_never_overwrites_what_is_newer() -> None:
    keeper = Slow(fail=1)
    keeper.done(done(0))
    assert keeper.begun.wait(60)
    keeper.done(done(1))
    keeper.go.set()
    keeper.close()
    assert keeper.asked == [1, 2]


def test_what_failed_is_taken_along_where_nothing_newer_waits() -> None:
    keeper = Slow(fail=1)
    keeper.go.set()
    keeper.done(done(0))
    assert keeper.begun.wait(60)
    keeper.close()
    assert keeper.asked == [1, 1]


def test_after_a_revocation_nothing_is_on_its_way() -> None:
    keeper = Slow()
    keeper.done(done(0))
    assert keeper.begun.wait(60)
    keeper.done(done(1))
    thread = threading.Thread(target=lambda: keeper.released([("t", 0)]))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive(), "it waits for what is on its way"
    keeper.go.set()
    thread.join(60)
    assert keeper.asked == [1, 2]
    keeper.close()
    assert keeper.asked == [1, 2]


def test_nothing_sets_out_during_a_poll_and_so_a_revocation_has_nothing_to_wait_for() -> None:
    keeper = Slow()
    keeper.go.set()
    with keeper.polling():
        keeper.done(done(0))
        assert not keeper.begun.wait(0.2), "it would wait for the poll, and the poll's revocation for it"
        keeper.released([("t", 0)])
        assert keeper.asked == [1]
    keeper.close()
    assert keeper.asked == [1]


def test_a_poll_begins_after_what_is_on_its_way_and_what_waits_sets_out_behind_it() -> None:
    keeper = Slow()
    keeper.done(done(0))
    assert keeper.begun.wait(60)
    keeper.done(done(1))
    threading.Timer(0.1, keeper.go.set).start()
    with keeper.polling():
        assert keeper.go.is_set(), "it has its answer"
    keeper.idle()
    keeper.close()
    assert keeper.asked == [1, 2]


@pytest.mark.parametrize("moved_on", [False, True])
def test_of_a_lost_partition_nothing_is_committed(moved_on: bool) -> None:
    keeper = Slow(fail=1, moved_on=moved_on)
    keeper.done(done(0))
    assert keeper.begun.wait(60)
    keeper.done(done(1))
    keeper.lost([("t", 0)])
    keeper.go.set()
    keeper.close()
    assert keeper.asked == [1]


def unit(offset: int, partition: int) -> Unit:
    made = Unit([StoredRecord("t", partition, offset, None, None, 0, ())])
    made.take()
    made.settle()
    return made


class All(InSequence):
    """Commits are noted; those in step fail so often."""

    def __init__(self, fail: int) -> None:
        super().__init__()
        self.fail = fail
        self.committed_now: dict[Where, int] = {}

    def _wake(self) -> None:
        """Nothing sets out by itself."""

    def commit(self, offsets: Mapping[Where, int], *, patience: float | None = None) -> None:
        if self.fail:
            self.fail -= 1
            raise CommitFailed("not now")
        self.committed_now |= offsets


def test_what_could_not_be_committed_at_a_revocation_is_at_the_end_but_for_what_was_revoked() -> None:
    keeper = All(fail=1)
    keeper.done(unit(4, 0))
    keeper.done(unit(7, 1))
    with pytest.raises(CommitFailed):
        keeper.released([("t", 0)])
    keeper.close()
    assert keeper.committed_now == {("t", 1): 8}


class Owing(GroupOffsets):
    """Commits in step, which fail so often."""

    def __init__(self, fail: int) -> None:
        super().__init__()
        self.fail = fail
        self.asked: list[dict[Where, int]] = []

    def commit(self, offsets: Mapping[Where, int], *, patience: float | None = None) -> None:
        if self.fail:
            self.fail -= 1
            raise CommitFailed("not now")
        self.asked.append(dict(offsets))


def test_what_was_revoked_uncommitted_is_never_committed_later() -> None:
    keeper = Owing(fail=3)
    for partition in (0, 1):
        with pytest.raises(CommitFailed):
            keeper.done(unit(4, partition))
    with pytest.raises(CommitFailed):
        keeper.released([("t", 0)])
    keeper.idle()
    assert keeper.asked == [{("t", 1): 5}]


def test_failures_that_do_not_pass_are_told() -> None:
    keeper = Slow(fail=1000)
    keeper.patience = 0.0
    keeper.go.set()
    with pytest.raises(CommitFailed):
        for offset in range(100):
            keeper.done(done(offset))
            threading.Event().wait(0.02)
    keeper.fail = 0
    keeper.close()
