"""Planning, pure: what is known and what the broker says become slices."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_assets.errors import OffsetsExpired, Truncated
from kafka_assets.plan import (
    SKIP_REASON,
    Backlog,
    NewSlice,
    Offsets,
    Policy,
    Progress,
    SkipPolicy,
    in_turns,
    jump,
    plan_partition,
)


def policy(*, max_records: int = 100, max_slices: int = 20, on_expired: str = "fail") -> Policy:
    return Policy(
        max_records=max_records,
        max_delay=timedelta(seconds=10),
        on_expired=on_expired,  # pyright: ignore[reportArgumentType]
        max_slices=max_slices,
    )


def planned(
    at: int, offsets: tuple[int, int, int], *, waited_ms: int | None = 60_000, **limits: object
) -> list[NewSlice]:
    return plan_partition("orders:0", Progress(at, waited_ms), Offsets(*offsets), policy(**limits))  # pyright: ignore[reportArgumentType]


def test_nothing_is_planned_when_nothing_is_new() -> None:
    assert planned(50, (0, 50, 50)) == []


def test_a_few_records_wait_until_the_delay_is_over() -> None:
    assert planned(0, (0, 5, 5), waited_ms=9_000) == []
    assert planned(0, (0, 5, 5), waited_ms=10_000) == [NewSlice(0, 5)]


def test_a_full_slice_does_not_wait() -> None:
    assert planned(0, (0, 100, 100), waited_ms=0) == [NewSlice(0, 100)]


def test_a_backlog_is_cut_into_few_equal_slices() -> None:
    assert planned(0, (0, 120, 120)) == [NewSlice(0, 60), NewSlice(60, 120)]


def test_a_long_backlog_is_planned_over_several_ticks() -> None:
    assert planned(0, (0, 1000, 1000), max_slices=2) == [NewSlice(0, 100), NewSlice(100, 200)]


def test_records_of_an_open_transaction_wait() -> None:
    assert planned(0, (0, 5, 99)) == [NewSlice(0, 5)]


def test_expired_offsets_are_never_jumped_over() -> None:
    with pytest.raises(OffsetsExpired, match="0 to 30"):
        planned(0, (30, 50, 50))


def test_expired_offsets_are_recorded_as_lost_where_the_policy_says_so() -> None:
    first, second = planned(0, (30, 50, 50), on_expired="record")
    assert (first.start, first.end, first.kind) == (0, 30, "lost")
    assert first.reason
    assert (second.start, second.end, second.kind) == (30, 50, "normal")


def test_an_end_below_what_was_planned_is_an_error() -> None:
    with pytest.raises(Truncated):
        planned(50, (0, 40, 40))


@settings(deadline=None)  # a busy machine stands still for longer than that
@given(
    at=st.integers(0, 1000),
    start=st.integers(0, 1500),
    more=st.integers(0, 5000),
    max_records=st.integers(1, 400),
    max_slices=st.integers(1, 30),
)
def test_slices_follow_each_other_without_gap_or_overlap(
    at: int, start: int, more: int, max_records: int, max_slices: int
) -> None:
    end = max(at, start) + more
    slices = planned(at, (start, end, end), max_records=max_records, max_slices=max_slices, on_expired="record")
    reached = at
    for one in slices:
        assert one.start == reached
        assert one.end > one.start
        assert one.kind == "lost" or one.end - one.start <= max_records
        reached = one.end
    assert reached <= end
    if len(slices) < max_slices:
        assert reached == end or (start > at and reached >= start)


@settings(deadline=None)  # a busy machine stands still for longer than that
@given(
    lengths=st.dictionaries(st.integers(0, 9), st.lists(st.integers(1, 50), max_size=8), max_size=6),
    max_slices=st.integers(0, 12),
    max_records=st.integers(1, 200),
)
def test_partitions_take_turns_and_nothing_is_jumped_over(
    lengths: dict[int, list[int]], max_slices: int, max_records: int
) -> None:
    plans = {
        where: [NewSlice(at * 100, at * 100 + size) for at, size in enumerate(mine)] for where, mine in lengths.items()
    }
    taken = in_turns(plans, max_slices=max_slices, max_records=max_records)
    assert all(mine == plans[where][: len(mine)] and mine for where, mine in taken.items())
    count = sum(map(len, taken.values()))
    assert count <= max_slices
    assert count <= 1 or sum(new.end - new.start for mine in taken.values() for new in mine) <= max_records
    assert bool(taken) == (max_slices > 0 and any(plans.values()))
    most = max(map(len, taken.values()), default=0)
    cut_short = [len(taken.get(where, [])) for where, mine in plans.items() if len(mine) > len(taken.get(where, []))]
    assert most - min(cut_short, default=most) <= 1


def too_far(*, records: int | None = 500, age_s: int | None = None, keep: int = 100, every_s: int = 900) -> SkipPolicy:
    age = None if age_s is None else timedelta(seconds=age_s)
    return SkipPolicy(records=records, age=age, keep=keep, every=timedelta(seconds=every_s))


def test_nothing_is_jumped_over_while_it_is_not_too_far_behind() -> None:
    assert jump(0, 500, Backlog(), too_far()) is None
    assert jump(0, 500, Backlog(waiting=1), too_far()) is not None, "what is planned and not landed is unread, too"


def test_all_but_the_newest_are_jumped_over_and_the_reason_says_how_many() -> None:
    assert jump(1000, 1501, Backlog(), too_far()) == NewSlice(
        1000,
        1401,
        "skipped",
        "skip_when_behind: 401 offsets jumped over, for 501 were unread, more than 500",
    )


def test_what_is_planned_is_never_jumped_over() -> None:
    jumped = jump(1000, 1150, Backlog(waiting=900, oldest=100), too_far())
    assert jumped is not None
    assert (jumped.start, jumped.end) == (1000, 1050)
    assert jump(1000, 1100, Backlog(waiting=900, oldest=100), too_far()) is None, "no more than what is kept"


def test_it_jumps_once_in_so_long() -> None:
    assert jump(0, 9000, Backlog(skipped_ms=899_999), too_far()) is None
    assert jump(0, 9000, Backlog(skipped_ms=900_000), too_far()) is not None


def test_a_record_that_is_too_old_is_reason_enough_and_a_young_one_is_not() -> None:
    old = too_far(records=None, age_s=600)
    assert jump(50, 200, Backlog(young_from=50), old) is None
    jumped = jump(50, 200, Backlog(young_from=51), old)
    assert jumped is not None
    assert (jumped.start, jumped.end) == (50, 100)
    assert str(jumped.reason).endswith("150 were unread, the oldest for longer than 600 s")
    assert jump(50, 200, Backlog(waiting=9, oldest=20, young_from=30), old) is not None, "the oldest waits for its run"
    assert jump(50, 200, Backlog(), old) is None, "nobody asked how old they are"


def test_after_a_jump_the_rest_is_cut_as_ever() -> None:
    wanted = replace(policy(max_records=60), skip=too_far())
    offsets = Offsets(0, 1000, 1000)
    skipped, *rest = plan_partition("orders:0", Progress(0, 60_000), offsets, wanted, Backlog())
    assert (skipped.start, skipped.end, skipped.kind) == (0, 900, "skipped")
    assert rest == [NewSlice(900, 950), NewSlice(950, 1000)]
    assert plan_partition("orders:0", Progress(0, 60_000), offsets, policy(), Backlog())[0].kind == "normal", "off"


def test_what_expired_is_lost_and_not_skipped() -> None:
    wanted = replace(policy(on_expired="record"), skip=too_far())
    lost, skipped, _ = plan_partition("orders:0", Progress(0, 60_000), Offsets(30, 1000, 1000), wanted, Backlog())
    assert (lost.end, lost.kind) == (30, "lost")
    assert (skipped.start, skipped.end, skipped.kind) == (30, 900, "skipped")


@settings(deadline=None)  # a busy machine stands still for longer than that
@given(
    at=st.integers(0, 1000),
    more=st.integers(0, 5000),
    waiting=st.integers(0, 3000),
    records=st.integers(1, 2000),
    kept=st.integers(0, 2000),
    skipped_ms=st.none() | st.integers(0, 2_000_000),
    max_records=st.integers(1, 400),
)
def test_nothing_but_what_is_declared_is_jumped_over(
    at: int, more: int, waiting: int, records: int, kept: int, skipped_ms: int | None, max_records: int
) -> None:
    keep = min(kept, records)
    wanted = replace(policy(max_records=max_records, max_slices=10_000), skip=too_far(records=records, keep=keep))
    end = at + more
    found = Backlog(waiting=waiting, oldest=at - waiting if waiting else None, skipped_ms=skipped_ms)
    slices = plan_partition("orders:0", Progress(at, 60_000), Offsets(0, end, end), wanted, found)
    reached = at
    for one in slices:
        assert one.start == reached < one.end
        reached = one.end
    assert reached == end or more == 0
    skipped = [one for one in slices if one.kind == "skipped"]
    assert all(one.reason is not None and one.reason.startswith(SKIP_REASON) for one in skipped)
    due = waiting + more > records and more > keep and (skipped_ms is None or skipped_ms >= 900_000)
    assert [(one.start, one.end) for one in skipped] == ([(at, end - keep)] if due else [])


def test_what_is_lost_counts_as_a_slice_and_as_no_record() -> None:
    plan = [NewSlice(0, 10**9, "lost", "expired"), NewSlice(10**9, 10**9 + 5)]
    assert in_turns({0: plan}, max_slices=9, max_records=10) == {0: plan}
