"""One pass over records gives all that becomes of them, and stops where there is no more room."""

from __future__ import annotations

import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyspark.util
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors.exceptions import captured

from kafka_assets.decode import batches, packets
from kafka_assets.decode.fingerprints import fingerprint
from kafka_assets.decode.names import HEADERS, VALUE
from kafka_assets.decode.passage import HEADER_TYPE, column_of, rows_schema
from kafka_assets.errors import SparkUnavailable
from kafka_assets.records import BadRecord, Chunk, Seen
from kafka_assets.schema import declared, landed_schema
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.chunks import (
    IN_FLIGHT,
    PROBE,
    TASK_BYTES,
    Arriving,
    Opened,
    Sizes,
    TaskEnd,
    fetch_landed,
    left,
    part_of,
    plain_schema,
    slices_of,
    stream_chunks,
    tasks_of,
    upsert_of,
)
from kafka_assets.spark.transport import arriving, bounded
from kafka_assets.streams import Stream, declare

APPEND = declare(name="orders", topic="orders", target="orders", schema="id BIGINT, note STRING")
SLICES = [SliceKey("orders", 1, 0, 0, 3), SliceKey("orders", 1, 0, 3, 10)]
Given = tuple[bytes | None, bytes | None]
"""A record's key and value."""


def raw(records: Sequence[Given], *, first: int = 0, partition: int = 0, stamps: Sequence[int | None] = ()) -> Any:
    """Records as a source gives them."""
    count = len(records)
    offsets = list(range(first, first + count))
    return pa.record_batch({
        "key": pa.array([key for key, _ in records], pa.binary()),
        "value": pa.array([value for _, value in records], pa.binary()),
        "headers": pa.array([[{"key": "h", "value": b"\xff"}]] * count, HEADER_TYPE),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestampType": pa.array([0] * count, pa.int32()),
        "timestamp": pa.array(list(stamps) or [1000 + at for at in offsets], pa.int64()),
    })  # fmt: skip


def marked(records: Sequence[Given], *, first: int = 0, partition: int = 0) -> int:
    """The fingerprint of these records."""
    keys, values = (pa.array([one[at] for one in records], pa.binary()) for at in (0, 1))
    return fingerprint(partition, np.arange(first, first + len(records)), keys, values)


def passed(
    stream: Stream, *tasks: Sequence[Any], slices: Sequence[SliceKey] = SLICES, room: int | None = None
) -> Opened:
    """What tasks, each with its batches, give together."""
    schema = plain_schema(stream)
    upsert = upsert_of(stream, schema)
    carried = [name for name in schema.names if name.startswith("kafka_")]
    places = [(one.partition, one.start, one.end) for one in slices]
    needed = () if upsert is None else upsert[0]
    made = [
        batch
        for task in tasks
        for batch in batches.landed(
            task, declared(stream.schema_, stream.format), None, stream.format, carried, needed, places, upsert, room
        )
    ]
    return Opened(pa.Table.from_batches(made, schema=packets.PACKETS), slices, rows=schema, upsert=upsert)


def note(number: int, size: int = 1) -> Given:
    return b"k%d" % number, b'{"id":%d,"note":"%s"}' % (number, b"x" * size)


def test_rows_bad_records_and_counts_come_out_of_one_pass() -> None:
    given = [note(0), note(1), (b"k", b'{"id":"x"}'), note(3), (None, None)]
    chunk = passed(APPEND, [raw(given[:4]), raw(given[4:], first=4)]).chunk()
    assert chunk.rows.to_pydict() == {
        "id": [0, 1, 3], "note": ["x"] * 3, "kafka_partition": [0] * 3, "kafka_offset": [0, 1, 3],
    }  # fmt: skip
    headers = (("h", b"\xff"),)
    said = 'id: "x" does not fit BIGINT: it is a text in quotes, not a number'
    assert chunk.bad == (
        BadRecord(0, 2, said, b"k", b'{"id":"x"}', headers, 1002, "does_not_fit", "id"),
        BadRecord(0, 4, "the value is null (a tombstone)", None, None, headers, 1004, "tombstone"),
    )
    sizes = [len(key or b"") + len(value or b"") for key, value in given]
    assert chunk.seen == {
        SLICES[0]: Seen(3, 1, 0, sum(sizes[:3]), 1000, 1002, marked(given[:3])),
        SLICES[1]: Seen(2, 1, 0, sum(sizes[3:]), 1003, 1004, marked(given[3:], first=3)),
    }
    assert chunk.deletes is None


def test_records_of_several_partitions_in_one_batch_are_hashed_as_by_themselves() -> None:
    given = [note(at, 3_000 if at == 2 else 1) for at in range(4)]
    other = SliceKey("orders", 1, 1, 0, 10)
    both: Any = pa.concat_batches([raw(given[:3]), raw(given[3:], partition=1)])
    seen = passed(APPEND, [both], slices=[*SLICES, other]).seen()
    assert seen[SLICES[0]].fingerprint == marked(given[:3])
    assert seen[other].fingerprint == marked(given[3:], partition=1)


def test_the_rows_in_packets_become_columns_for_a_function_and_nothing_else_does() -> None:
    stream = declare(name="orders", topic="orders", target="orders", schema="id BIGINT", mode="upsert", key=["id"])
    given: list[Given] = [(b"1", b'{"id":1}'), (b"k", b"{"), (b"3", None), (None, b'{"id":4}')]
    fields, carried = declared(stream.schema_, "json"), ["kafka_key", "kafka_offset", VALUE]
    upsert = upsert_of(stream, plain_schema(stream))
    tasks = [[raw(given[:2]), raw(given[2:], first=2)], [raw([(b"5", b'{"id":5}')], first=7)]]
    made = [
        batch
        for task in tasks
        for batch in batches.landed(task, fields, None, "json", carried, (), [(0, 0, 10)], upsert, None)
    ]
    found = pa.Table.from_batches(made, schema=packets.PACKETS)
    rows = found.filter(pa.compute.equal(found.column(packets.KIND), packets.ROWS))
    asked = batches.unpacked(rows.to_batches(), rows_schema(landed_schema(fields), carried), ["kafka_offset", "id"])
    assert pa.Table.from_batches(list(asked)).to_pydict() == {"kafka_offset": [0, 3, 7], "id": [1, 4, 5]}
    told = Opened(found.filter(pa.compute.not_equal(found.column(packets.KIND), packets.ROWS)), SLICES, upsert=upsert)
    assert [one.offset for one in told.bad()] == [1]
    assert sum(told.seen().values(), Seen()).deleted == 1


def test_of_a_function_s_records_no_column_is_needed_yet() -> None:
    stream = declare(name="orders", topic="orders", target="orders", schema="id BIGINT", mode="upsert", key=["id"])
    upsert = upsert_of(stream, plain_schema(stream))
    fields = declared(stream.schema_, "json")
    for needed, bad in ((["id"], [0]), ([], [])):
        made = list(
            batches.landed([raw([(b"1", b"{}")])], fields, None, "json", [], needed, [(0, 0, 10)], upsert, None)
        )
        told = Opened(pa.Table.from_batches(made), SLICES, rows=rows_schema(landed_schema(fields), []), upsert=upsert)
        assert [one.offset for one in told.bad()] == bad
        assert told.chunk().rows.num_rows == 1 - len(bad)


@pytest.mark.parametrize("cuts", [[100], [1] * 100, [30, 0, 70], [7] * 14 + [2]])
def test_what_arrives_is_given_in_tables_of_bounded_size_however_it_arrives(cuts: list[int]) -> None:
    whole = pa.record_batch({"id": pa.array(range(100), pa.int64())})
    starts = np.cumsum([0, *cuts[:-1]]).tolist()
    parts = [whole.slice(start, length) for start, length in zip(starts, cuts, strict=True)]
    found = list(bounded(iter(parts), whole.schema, room=160))
    assert [one for part in found for one in part.column("id").to_pylist()] == list(range(100))
    assert all(0 < part.nbytes <= 160 for part in found)
    assert len(found) <= 14, "and not smaller than they must be"
    assert [part.num_rows for part in bounded(iter(parts), whole.schema, room=1)] == [1] * 100


def test_a_few_large_rows_among_many_small_ones_come_in_tables_of_bounded_size_too() -> None:
    part = pa.record_batch({"note": ["x"] * 990 + ["y" * 1_000] * 10})
    found = list(bounded([part], part.schema, room=2_000))
    assert [one for table in found for one in table.column("note").to_pylist()] == part.column(0).to_pylist()
    assert max(table.nbytes for table in found) <= 2 * 2_000
    assert len(found) <= 20


def test_of_nothing_that_arrives_there_is_one_table_with_its_columns() -> None:
    schema = pa.schema([pa.field("id", pa.int64())])
    assert list(bounded(iter([]), schema, room=100)) == [schema.empty_table()]
    assert list(bounded(iter([pa.record_batch({"id": pa.array([], pa.int64())})]), schema, room=100)) == [
        schema.empty_table()
    ]


def test_a_table_that_its_reader_is_done_with_is_held_by_nobody() -> None:
    parts = (pa.record_batch({"id": pa.array([at] * 10, pa.int64())}) for at in range(5))
    made: list[weakref.ref[pa.Table]] = []
    for table in bounded(parts, pa.schema([pa.field("id", pa.int64())]), room=80):
        assert all(one() is None for one in made)
        made.append(weakref.ref(table))
        del table
    assert len(made) == 5


def test_a_slice_without_records_is_counted_as_that() -> None:
    assert passed(APPEND, []).chunk().seen == dict.fromkeys(SLICES, Seen(fingerprint=0))


@pytest.mark.parametrize("order_by", ["offset", "kafka_timestamp"])
def test_records_that_delete_and_rows_without_a_key_are_told_apart(order_by: str) -> None:
    stream = declare(
        name="orders", topic="orders", target="orders", schema="id BIGINT", mode="upsert", key=["id"], order_by=order_by
    )
    given: list[Given] = [(b"1", b'{"id":1}'), (b"1", None), (b"x", None), (b"k", b"{}"), (None, None), (b"7", None)]
    stamps = [1, 2, 3, 4, 5, None]
    chunk = passed(stream, [raw(given, stamps=stamps)]).chunk()
    assert chunk.rows.column("id").to_pylist() == [1]
    timed = order_by == "kafka_timestamp"
    assert chunk.deletes is not None
    assert chunk.deletes.select(["id", "kafka_offset"]).to_pydict() == (
        {"id": [1], "kafka_offset": [1]} if timed else {"id": [1, 7], "kafka_offset": [1, 5]}
    )
    assert ("kafka_timestamp" in chunk.deletes.column_names) == timed
    bad = {one.offset: (one.code, one.field) for one in chunk.bad}
    assert bad.pop(5, None) == (("tombstone_key", None) if timed else None)
    assert bad == {2: ("tombstone_key", None), 3: ("no_key", "id"), 4: ("tombstone_key", None)}
    seen = sum(chunk.seen.values(), Seen())
    assert (seen.read, seen.bad, seen.deleted) == (6, 3 + timed, 2 - timed)


def test_a_timestamp_past_every_calendar_is_a_number_on_its_way() -> None:
    far = 9_000_000_000_000_000
    chunk = passed(APPEND, [raw([(b"k", b"{")], stamps=[far])]).chunk()
    assert [one.timestamp for one in chunk.bad] == [far]
    assert chunk.seen[SLICES[0]].last_timestamp == far


def test_large_rows_travel_in_packets_that_are_bounded() -> None:
    size = packets.PACKET_BYTES // 3
    found = passed(APPEND, [raw([note(at, size) for at in range(10)])])
    assert len(found._of[packets.ROWS]) >= 3  # pyright: ignore[reportPrivateUsage]
    assert found.chunk().rows.column("id").to_pylist() == list(range(10))


PIECES = [Piece("orders", 0, 0, 10, tuple(SLICES))]


def test_a_task_stops_at_the_record_that_no_room_is_left_for() -> None:
    given = [note(at, 100) for at in range(10)]
    room = 3 * len(b"".join(part for part in given[0] if part)) + 50
    found = passed(APPEND, [raw(given[:2]), raw(given[2:], first=2)], room=room)
    assert found.chunk().rows.column("kafka_offset").to_pylist() == [0, 1, 2]
    assert left(PIECES, found.ends()) == [[Piece("orders", 0, 3, 10, (SLICES[1],))]]


def test_a_record_that_is_larger_than_the_room_is_read_all_the_same() -> None:
    found = passed(APPEND, [raw([note(0, 1000), note(1, 1000)])], room=10)
    assert found.chunk().rows.column("kafka_offset").to_pylist() == [0]
    assert left(PIECES, found.ends()) == [[Piece("orders", 0, 1, 10, tuple(SLICES))]]


def test_what_is_made_of_records_takes_room_too() -> None:
    wide = declare(
        name="orders", topic="orders", target="orders", schema=", ".join(f"c{at} BIGINT" for at in range(200))
    )
    found = passed(wide, [raw([(None, b"{}")] * 5), raw([(None, b"{}")] * 5, first=5)], room=2_000)
    assert found.chunk().rows.num_rows == 5


def test_nothing_is_left_where_every_task_came_to_its_end() -> None:
    found = passed(APPEND, [raw([note(0)])], [raw([note(7)], first=7)], room=1 << 20)
    assert left(PIECES, found.ends()) == []


def test_what_several_tasks_left_is_each_read_once() -> None:
    other = SliceKey("orders", 1, 1, 0, 10)
    pieces = [*PIECES, Piece("orders", 1, 0, 10, (other,))]
    given = [note(at, 100) for at in range(4)]
    found = passed(
        APPEND,
        [raw(given)],
        [raw(given, first=5)],
        [raw(given, partition=1)],
        slices=slices_of(pieces),
        room=len(b"".join(part for part in given[0] if part)) + 5,
    )
    assert left(pieces, found.ends()) == [
        [Piece("orders", 0, 1, 5, tuple(SLICES)), Piece("orders", 1, 1, 10, (other,))],
        [Piece("orders", 0, 6, 10, (SLICES[1],))],
    ]


def test_a_partition_without_records_beside_a_task_that_stopped_was_read() -> None:
    empty = Piece("orders", 1, 0, 10, (SliceKey("orders", 1, 1, 0, 10),))
    assert left([*PIECES, empty], [TaskEnd(0, 0, 4, True)]) == [part_of(PIECES[0], 4, 10)]


def test_what_lies_before_a_task_s_first_record_was_read() -> None:
    ends = [TaskEnd(0, 2, 4, True), TaskEnd(0, 6, 9, True)]
    assert left(PIECES, ends) == [part_of(PIECES[0], 4, 6), part_of(PIECES[0], 9, 10)]


def test_headers_take_room_too() -> None:
    given = raw([note(at) for at in range(6)])
    large: Any = pa.array([[{"key": "h", "value": b"x" * 1_000}]] * 6, HEADER_TYPE)
    found = passed(APPEND, [given.set_column(given.schema.get_field_index("headers"), "headers", large)], room=2_500)
    assert found.chunk().rows.column("kafka_offset").to_pylist() == [0, 1]
    assert sum(found.seen().values(), Seen()).bytes_read == 2 * len(b"".join(part for part in note(0) if part))
    assert left(PIECES, found.ends()) == [part_of(PIECES[0], 2, 10)]


def test_each_task_ends_with_its_last_packet_however_its_packets_arrive() -> None:
    kinds = [packets.ROWS, packets.COUNTS, packets.ENDS, packets.ROWS, packets.ENDS]
    whole = pa.record_batch(
        [pa.array(kinds, pa.int32()), pa.array([b"%d" % at for at in range(5)])], schema=packets.PACKETS
    )
    for cuts in ([5], [1, 4], [3, 2], [4, 1], [1] * 5, [2, 3]):
        starts = np.cumsum([0, *cuts[:-1]]).tolist()
        parts = [whole.slice(start, length) for start, length in zip(starts, cuts, strict=True)]
        found = [task.column(1).to_pylist() for task in tasks_of(parts)]
        assert found == [[b"0", b"1", b"2"], [b"3", b"4"]]


def test_what_a_task_has_posted_is_claimed_by_its_name_in_its_turn() -> None:
    posted = pa.table({"kind": [packets.ROWS, packets.ENDS], "packet": [b"posted", b"end"]})
    kinds = [packets.ROWS, packets.ENDS, packets.POSTED, packets.ROWS, packets.ENDS]
    names = [b"0", b"1", b"name", b"3", b"4"]
    whole = pa.record_batch([pa.array(kinds, pa.int32()), pa.array(names)], schema=packets.PACKETS)
    for cuts in ([5], [2, 1, 2], [3, 2], [1] * 5, [4, 1]):
        starts = np.cumsum([0, *cuts[:-1]]).tolist()
        parts = [whole.slice(start, length) for start, length in zip(starts, cuts, strict=True)]
        found = [task.column(1).to_pylist() for task in tasks_of(parts, {b"name": posted}.__getitem__)]
        assert found == [[b"0", b"1"], [b"posted", b"end"], [b"3", b"4"]]


@pytest.mark.slow
def test_a_query_that_fails_fails_the_chunks_behind_what_it_gave_and_ends_the_others() -> None:
    closed: list[int] = []

    def ask(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        try:
            yield Chunk(pa.table({"offset": [pieces[0].start]}), {})
            if pieces[0].start == 1:
                raise ValueError("Spark is gone")
            yield Chunk(pa.table({"offset": [-1]}), {})
        finally:
            closed.append(pieces[0].start)
        return []

    given: list[int] = []
    with pytest.raises(ValueError, match="Spark is gone"):
        for chunk in stream_chunks([[Piece("orders", 0, at, at + 1, ())] for at in range(9)], ask):
            given += chunk.rows.column("offset").to_pylist()
    assert given == [0, -1, 1]
    assert {0, 1} <= set(closed) and len(closed) <= 4


def test_whoever_takes_no_more_chunks_ends_the_queries() -> None:
    closed: list[int] = []

    def ask(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        try:
            while True:
                yield Chunk(pa.table({}), {})
        finally:
            closed.append(pieces[0].start)

    chunks = stream_chunks([[Piece("orders", 0, at, at + 1, ())] for at in range(9)], ask)
    next(chunks)
    chunks.close()
    assert sorted(closed) == [0, 1]


def test_spark_that_is_gone_before_it_is_asked_says_so() -> None:
    def gone(pieces: Sequence[Piece]) -> Any:
        raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(SparkUnavailable):
        next(fetch_landed(PIECES, read=gone, stream=APPEND))


def test_tasks_are_cut_when_it_is_known_how_large_records_are() -> None:
    asked: list[int | None] = []

    def ask(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        asked.append(at_once)
        count = sum(piece.end - piece.start for piece in pieces)
        yield Chunk(pa.table({}), {SLICES[0]: Seen(read=count, bytes_read=count * 1_000)})
        return []

    list(stream_chunks([[Piece("orders", 0, 0, 1_000_000, ())]], ask, sizes=Sizes(1 << 30)))
    assert asked[:2] == [None, None] and asked[2] == int(0.9 * TASK_BYTES / 1_000)


def test_what_was_read_and_what_was_made_of_it_come_in_chunks_of_their_own_and_count_once() -> None:
    asked: list[int | None] = []

    def ask(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        asked.append(at_once)
        count = sum(piece.end - piece.start for piece in pieces)
        rows = pa.table({"a": pa.array(np.zeros(count, dtype=np.int64))})
        yield Chunk(rows.slice(0, 0), {SLICES[0]: Seen(read=count, bytes_read=count * 10)})
        yield Chunk(rows, {SLICES[0]: Seen()})
        return []

    list(stream_chunks([[Piece("orders", 0, 0, 5_000_000, ())]], ask, sizes=Sizes(1 << 24)))
    assert asked[2] == int(0.9 * TASK_BYTES / 10)


def test_what_a_chunk_leaves_is_read_next_and_nothing_twice() -> None:
    def fetch(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        [piece] = pieces
        cut = min(piece.end, piece.start + 3)
        yield Chunk(pa.table({"offset": list(range(piece.start, cut))}), {})
        return [] if cut == piece.end else [[replace(piece, start=cut)]]

    plan = [[Piece("orders", 0, 0, 10, ())], [Piece("orders", 0, 10, 12, ())]]
    found = [chunk.rows.column("offset").to_pylist() for chunk in stream_chunks(plan, fetch)]
    assert sorted(offset for part in found for offset in part) == list(range(12))
    assert max(map(len, found)) == 3


def test_parts_are_cut_so_that_a_chunk_has_room_for_them() -> None:
    asked: list[list[Piece]] = []

    def fetch(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        asked.append(list(pieces))
        count = sum(piece.end - piece.start for piece in pieces)
        yield Chunk(pa.table({}), {SLICES[0]: Seen(read=count, bytes_read=count * 100)})
        return []

    keys = [SliceKey("orders", 1, part, 0, 20) for part in range(3)]
    plan = [[Piece("orders", key.partition, 0, 20, (key,)) for key in some] for some in ([keys[0]], keys[1:])]
    assert len(list(stream_chunks([*plan[:1], *plan[:1], plan[1]], fetch, sizes=Sizes(2_800)))) == 4
    assert [[(piece.partition, piece.start, piece.end) for piece in some] for some in asked] == [
        [(0, 0, 20)], [(0, 0, 20)], [(1, 0, 20), (2, 0, 5)], [(2, 5, 20)],
    ]  # fmt: skip
    assert asked[-1][0].slices == (keys[2],)


def test_while_nobody_knows_how_large_records_are_little_is_asked_for() -> None:
    asked: list[int] = []

    def fetch(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        count = sum(piece.end - piece.start for piece in pieces)
        asked.append(count)
        yield Chunk(pa.table({}), {SLICES[0]: Seen(read=count, bytes_read=count * 10)})
        return []

    list(stream_chunks([[Piece("orders", 0, 0, 1_000_000, ())]], fetch, sizes=Sizes(4_000_000)))
    assert sorted(asked) == sorted([PROBE, PROBE, 360_000, 360_000, 200_000])


def test_where_a_log_is_full_of_holes_chunks_span_as_many_offsets_as_have_room() -> None:
    asked: list[int] = []

    def fetch(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        [piece] = pieces
        asked.append(piece.end - piece.start)
        records = 0 if piece.end <= 500_000 else (piece.end - piece.start) // 100
        yield Chunk(pa.table({}), {SLICES[0]: Seen(read=records, bytes_read=records * 100)})
        return []

    plan = [[Piece("orders", 0, start, start + 250_000, ())] for start in range(0, 1_500_000, 250_000)]
    list(stream_chunks(plan, fetch, sizes=Sizes(100_000)))
    assert sum(asked) == 1_500_000
    assert asked.count(PROBE) >= 2 and 250_000 in asked, "little at first, then all of a part that may be holes"
    assert 90_000 in asked, "one record in 100 offsets"


def test_while_the_publisher_has_a_chunk_others_are_read() -> None:
    asked: list[int] = []

    def fetch(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        asked.append(pieces[0].start)
        yield Chunk(pa.table({}), {})
        return []

    chunks = stream_chunks([[Piece("orders", 0, at, at + 1, ())] for at in range(5)], fetch)
    next(chunks)
    deadline = time.monotonic() + 30
    while len(asked) < 1 + IN_FLIGHT and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(asked) == [0, 1, 2]
    assert len(list(chunks)) == 4


def test_while_the_publisher_has_the_last_but_one_chunk_of_a_query_another_begins() -> None:
    asked: list[int] = []

    def fetch(pieces: Sequence[Piece], at_once: int | None) -> Arriving:
        asked.append(pieces[0].start)
        yield Chunk(pa.table({}), {})
        yield Chunk(pa.table({}), {})
        return []

    chunks = stream_chunks([[Piece("orders", 0, at, at + 1, ())] for at in range(5)], fetch)
    next(chunks)
    deadline = time.monotonic() + 30
    while len(asked) < 1 + IN_FLIGHT and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert sorted(asked) == [0, 1, 2]
    assert len(list(chunks)) == 9


def test_a_classic_query_that_is_ended_early_says_nothing_of_that(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        def getResult(self) -> None:  # noqa: N802 - Java's name
            raise ValueError("Broken pipe")

    class Frame:
        @property
        def _jdf(self) -> Frame:
            return self

        def collectAsArrowToPython(self) -> tuple[int, str, Server]:  # noqa: N802 - Java's name
            return 1, "", Server()

    @contextmanager
    def load(*given: object) -> Generator[Iterator[pa.RecordBatch]]:
        yield iter([pa.record_batch({"a": [1]})] * 2)

    monkeypatch.setattr(pyspark.util, "_load_from_socket", load)
    monkeypatch.setattr(captured, "unwrap_spark_exception", nullcontext)
    parts = arriving(cast("Any", Frame()))
    next(parts)
    parts.close()
    with pytest.raises(ValueError, match="Broken pipe"):
        list(arriving(cast("Any", Frame())))


def test_what_a_classic_query_gives_is_read_before_somebody_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all other queries of its session wait: those of a chunk's bad records, and of the query that is next."""
    read: list[int] = []

    class Frame:
        @property
        def _jdf(self) -> Frame:
            return self

        def collectAsArrowToPython(self) -> tuple[int, str, Frame]:  # noqa: N802 - Java's name
            return 1, "", self

        def getResult(self) -> None:  # noqa: N802 - Java's name
            pass

    @contextmanager
    def load(*given: object) -> Generator[Iterator[pa.RecordBatch]]:
        yield (read.append(at) or pa.record_batch({"a": [at]}) for at in range(5))

    monkeypatch.setattr(pyspark.util, "_load_from_socket", load)
    monkeypatch.setattr(captured, "unwrap_spark_exception", nullcontext)
    with closing(arriving(cast("Any", Frame()))) as parts:
        first = next(parts)
        deadline = time.monotonic() + 20
        while len(read) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(read) == 5
        assert [part.column(0)[0].as_py() for part in (first, *parts)] == list(range(5))


def test_no_headers_are_null_in_whatever_form_they_come() -> None:
    some = [{"key": "h", "value": b"\xff"}]
    given = pa.record_batch({"headers": pa.array([None, [], some], HEADER_TYPE)})
    assert column_of(given, HEADERS).to_pylist() == [None, None, some]
    assert column_of(given, HEADERS, np.array([1, 2])).to_pylist() == [None, some]
    assert column_of(given.slice(0, 2), HEADERS).to_pylist() == [None, None]
