"""Slices, their keys, and how they are cut into reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_assets.errors import KeysUnknown
from kafka_assets.slices import SliceKey, digest, pieces


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("orders:3:120000-130000", SliceKey("orders", 1, 3, 120000, 130000)),
        ("shop.orders_v2-x:0:0-1:2", SliceKey("shop.orders_v2-x", 2, 0, 0, 1)),
    ],
)
def test_a_key_reads_as_it_is_written(text: str, key: SliceKey) -> None:
    assert SliceKey.parse(text) == key
    assert str(key) == text


@pytest.mark.parametrize(
    "text", ["", "orders", "orders:1", "orders:1:5-5", "orders:1:9-5", "a b:1:0-5", "orders:1:0-5:0"]
)
def test_what_is_no_key_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(KeysUnknown, match="orders:3:120000-130000"):
        SliceKey.parse(text)


def test_a_digest_knows_a_set_of_keys_in_any_order_and_no_other() -> None:
    assert digest(["a", "b"]) == digest(["b", "a"])
    assert digest(["a", "b"]) != digest(["a", "b", "c"])


def test_neighbours_share_one_read() -> None:
    keys = [SliceKey("t", 1, 0, 0, 10), SliceKey("t", 1, 0, 10, 20), SliceKey("t", 1, 1, 0, 5)]
    [chunk] = pieces(keys, max_offsets=100, max_slices=10)
    assert [(one.partition, one.start, one.end) for one in chunk] == [(0, 0, 20), (1, 0, 5)]


def test_two_ranges_of_one_partition_never_share_a_read() -> None:
    keys = [SliceKey("t", 1, 0, 0, 10), SliceKey("t", 1, 0, 50, 60)]
    assert len(pieces(keys, max_offsets=100, max_slices=10)) == 2


def test_two_topics_never_share_a_read_since_their_offsets_look_alike() -> None:
    keys = [SliceKey(topic, 1, partition, 0, 10) for partition in (0, 1) for topic in ("a", "b")]
    chunks = pieces(keys, max_offsets=100, max_slices=10)
    assert [[(one.topic, one.partition) for one in chunk] for chunk in chunks] == [
        [("a", 0), ("a", 1)],
        [("b", 0), ("b", 1)],
    ]


def test_a_slice_is_read_from_where_its_records_begin_now() -> None:
    key = SliceKey("t", 1, 0, 0, 10)
    [[piece]] = pieces([key], max_offsets=100, max_slices=10, read_from={key: 4})
    assert (piece.start, piece.end) == (4, 10)


@settings(deadline=None)  # a busy machine stands still for longer than that
@given(
    bounds=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 30)), max_size=12),
    max_offsets=st.integers(1, 40),
    max_slices=st.integers(1, 5),
)
def test_every_offset_is_read_once_whatever_the_limits(
    bounds: list[tuple[int, int, int]], max_offsets: int, max_slices: int
) -> None:
    keys: list[SliceKey] = []
    reached: dict[int, int] = {}
    for partition, gap, size in bounds:
        start = reached.get(partition, 0) + gap
        keys.append(SliceKey("t", 1, partition, start, start + size))
        reached[partition] = start + size
    read: list[tuple[int, int]] = []
    for chunk in pieces(keys, max_offsets=max_offsets, max_slices=max_slices):
        assert sum(one.end - one.start for one in chunk) <= max_offsets
        assert len({one.partition for one in chunk}) == len(chunk)
        assert sum(len(one.slices) for one in chunk) <= max_slices
        read += [(one.partition, offset) for one in chunk for offset in range(one.start, one.end)]
    wanted = [(key.partition, offset) for key in keys for offset in range(key.start, key.end)]
    assert sorted(read) == sorted(wanted)
