"""Messages become columns, as they come: by partition, in order, and few of them however small the portions are."""

from __future__ import annotations

import random
from typing import Any

from confluent_kafka import Message

from kafka_assets.decode.contract import Reason
from kafka_assets.decode.messages import joined
from kafka_assets.live.batch import Batch, by_place, columns_of

WHY = Reason("json", "no")
_message: Any = Message  # its stubs know no arguments


def message(partition: int, offset: int, *, topic: str = "orders", **more: Any) -> Message:
    given = {"key": None, "value": b"{}", "headers": None, "timestamp": (1, 42)} | more
    return _message(topic=topic, partition=partition, offset=offset, error=None, **given)


def test_messages_are_grouped_by_partition_once_and_stay_in_order() -> None:
    given = [(0, 5), (0, 6), (1, 9), (0, 7), (1, 10)]
    found = by_place([message(*one) for one in given])
    assert {place: [one.offset() for one in some] for place, some in found.items()} == {
        ("orders", 0): [5, 6, 7],
        ("orders", 1): [9, 10],
    }
    both = by_place([message(0, 5), message(0, 8, topic="shop"), message(0, 6)])
    assert {place: len(some) for place, some in both.items()} == {("orders", 0): 2, ("shop", 0): 1}
    assert by_place([]) == {}


def test_columns_have_what_the_messages_had() -> None:
    given = [
        message(3, 11, key=b"k", value=b"abc", headers=[("h", b"v")], timestamp=(2, 7)),
        message(3, 14, key=b"", value=None, timestamp=(0, 0)),
        message(3, 15, key=None, value=b"", timestamp=(1, 2**63 - 1)),
    ]
    found = columns_of(given)
    assert (found.partition, found.offsets.tolist(), len(found), found.bytes) == (3, [11, 14, 15], 3, 4)
    assert (found.keys.to_pylist(), found.values.to_pylist()) == ([b"k", b"", None], [b"abc", None, b""])
    times, timed = found.times
    assert (times[timed].tolist(), timed.tolist()) == ([7], [True, False, False])
    bad = [found.bad(at, WHY) for at in range(3)]
    assert [(one.partition, one.offset, one.key, one.value) for one in bad] == [
        (3, 11, b"k", b"abc"), (3, 14, b"", None), (3, 15, None, b"")
    ]  # fmt: skip
    assert [(one.headers, one.timestamp) for one in bad] == [((("h", b"v"),), 7), ((), None), ((), None)]


def test_headers_are_kept_for_those_that_have_some() -> None:
    without, have = columns_of([message(0, 1)]), columns_of([message(0, 2, headers=[("h", None)])])
    assert without.headers is None
    both = joined([without, have])
    assert both.headers == [None, [("h", None)]]
    assert joined([without, without]).headers is None
    assert both.bad(1, WHY).headers == (("h", None),)


def test_a_trickle_makes_few_parts_and_no_record_changes_its_place() -> None:
    draw, made, at = random.Random(4), Batch(), 0
    for _ in range(300):
        count = draw.choice([1, 1, 1, 2, 30])
        size = made.extend([message(0, at + more, value=b"%d" % (at + more)) for more in range(count)])
        assert size == sum(len(str(at + more)) for more in range(count))
        at += count
        assert len(made.parts) <= at.bit_length()
    assert len(made) == at and made.ends == (0, at - 1)
    values = [value for part in made.parts for value in part.values.to_pylist()]
    assert values == [b"%d" % number for number in range(at)]
    assert [offset for part in made.parts for offset in part.offsets.tolist()] == list(range(at))


def test_what_is_being_decoded_is_not_joined_with_more() -> None:
    made = Batch()
    made.extend([message(0, 0)])
    made.begun = 1
    made.extend([message(0, 1), message(0, 2)])
    made.extend([message(0, 3), message(0, 4)])
    assert [len(part) for part in made.parts] == [1, 4]


def test_a_part_of_a_column_counts_its_own_bytes() -> None:
    whole = columns_of([message(0, at, key=b"k" * at, value=b"v" * at) for at in range(5)])
    assert whole.bytes == 20
    part = joined([whole, whole])
    assert part.bytes == 40
