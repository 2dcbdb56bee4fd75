"""What a function makes of records: in which order it is asked for, what is held meanwhile, and what is read again."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute
import pytest
from pyspark.errors import PySparkException

from kafka_assets.decode import batches
from kafka_assets.decode.names import OFFSET, VALUE
from kafka_assets.decode.packets import KIND, PACKETS, ROWS
from kafka_assets.decode.passage import CARRIED, rows_schema
from kafka_assets.errors import CountsDisagree
from kafka_assets.records import ORDINAL, BadRecord, Chunk, Seen
from kafka_assets.schema import declared, landed_schema
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark import transformed
from kafka_assets.spark.chunks import Arriving, plain_schema
from kafka_assets.spark.transformed import fetch_transformed
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.unit.test_passes import raw

pc: Any = pyarrow.compute

APPEND = declare(name="orders", topic="orders", target="orders", schema="id BIGINT")
KEY_OF = SliceKey("orders", 1, 0, 0, 10)
PIECES = [Piece("orders", 0, 0, 10, (KEY_OF,))]


class Frame(NamedTuple):
    """What stands for a frame of Spark's: which part of which read it is, and what was done to it."""

    spark: Spark
    pieces: Sequence[Piece]
    what: str = "read"

    def of(self, what: str) -> Frame:
        return self._replace(what=what)

    def select(self, *names: str) -> Frame:
        self.spark.selected.append(names)
        return self


class Spark:
    """Decodes as its workers do, two tasks to a query; some of it may fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stream: Stream = APPEND) -> None:
        self.stream = stream
        self.fails: dict[str, PySparkException] = {}
        """By what is asked of Spark."""
        self.asked: list[tuple[str, int, int]] = []
        self.held = 0
        self.rows_each = 1
        """So many rows the function gives of a record, far from each other."""
        self.selected: list[tuple[str, ...]] = []
        self.room: int | None = None
        monkeypatch.setattr(transformed, "held", self._held)
        monkeypatch.setattr(transformed, "decode", self._decode)
        monkeypatch.setattr(transformed, "beside", lambda kept: kept.of("told"))
        monkeypatch.setattr(transformed, "good", lambda kept, stream: kept.of("rows"))
        monkeypatch.setattr(transformed, "rows_in", lambda kept, stream, names: kept)
        monkeypatch.setattr(transformed, "arriving", self._arriving)

    def fetch(self, pieces: Sequence[Piece] = PIECES, *, room: int = 1 << 20) -> Arriving:
        schema = plain_schema(self.stream)
        if self.stream.scope == "slice":
            schema = pa.schema([schema.field("id")])
        return fetch_transformed(
            pieces,
            read=lambda some: Frame(self, some),
            stream=self.stream,
            transform=lambda records: records,
            schema=schema,
            room=room,
        )

    def _decode(self, raw: Frame, stream: Stream, slices: Any, *, upsert: Any, room: int | None) -> Frame:
        self.room = room
        return raw

    @contextmanager
    def _held(self, packets: Frame) -> Generator[Frame]:
        self._ask(packets)
        self.held += 1
        try:
            yield packets
        finally:
            self.held -= 1

    def _ask(self, frame: Frame) -> None:
        assert self.held or frame.what == "read"
        self.asked.append((frame.what, frame.pieces[0].start, frame.pieces[-1].end))
        if frame.what in self.fails:
            raise self.fails[frame.what]

    def _arriving(self, frame: Frame) -> Iterator[pa.RecordBatch]:
        self._ask(frame)
        fields, carried = declared(self.stream.schema_, "json"), [*CARRIED, VALUE]
        for piece in frame.pieces:
            half = (piece.start + piece.end) // 2
            for start, end in ((piece.start, half), (half, piece.end)):
                given = raw([(b"k", b'{"id":%d}' % at if at != 5 else b"{}") for at in range(start, end)], first=start)
                places = [(one.partition, one.start, one.end) for one in piece.slices]
                made: Any = pa.Table.from_batches(
                    list(batches.landed([given], fields, None, "json", carried, (), places, None, self.room)),
                    schema=PACKETS,
                )
                rows = pc.equal(made.column(KIND), ROWS)
                if frame.what == "told":
                    yield from made.filter(pc.invert(rows)).to_batches()
                else:
                    names = plain_schema(self.stream).names if self.stream.scope == "record" else ["id"]
                    packed = made.filter(rows).to_batches()
                    for _ in range(self.rows_each):
                        yield from batches.unpacked(packed, rows_schema(landed_schema(fields), carried), names)


def offsets(chunks: Sequence[Chunk]) -> list[int]:
    return [at for chunk in chunks for at in ints(chunk, OFFSET)]


def ints(chunk: Chunk, column: str) -> list[int]:
    return [int(at) for at in chunk.rows.column(column).to_numpy()]


def test_records_are_read_once_and_told_of_before_their_rows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(monkeypatch)
    found = list(spark.fetch(room=100))
    assert spark.asked == [("read", 0, 10), ("told", 0, 10), ("rows", 0, 10)]
    told = [sum(chunk.seen.values(), Seen()).read for chunk in found]
    rows = [chunk.rows.num_rows for chunk in found]
    assert told[:2] == [5, 5] and not any(told[2:])
    assert rows[:2] == [0, 0] and offsets(found) == list(range(10))
    assert all(chunk.rows.nbytes <= 100 for chunk in found) and len(found) >= 4, "in chunks of bounded size"
    assert all(set(chunk.seen) == {KEY_OF} for chunk in found), "each row is of a slice that its chunk knows"
    assert spark.selected == [("`id`", "`kafka_partition`", "`kafka_offset`")]
    assert spark.held == 0


def test_what_a_task_had_no_room_for_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(monkeypatch)
    fetching = spark.fetch(room=25)
    found: list[Chunk] = []
    with pytest.raises(StopIteration) as end:
        while True:
            found.append(next(fetching))
    read = set(offsets(found))
    assert read and read < set(range(10))
    assert {at for part in end.value.value for piece in part for at in range(piece.start, piece.end)} | read == set(
        range(10)
    )


def test_whoever_takes_no_more_gives_back_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    for taken in (1, 3):
        spark = Spark(monkeypatch)
        fetching = spark.fetch()
        for _ in range(taken):
            next(fetching)
        assert spark.held == 1
        fetching.close()
        assert spark.held == 0


def test_rows_of_a_slice_are_numbered_through_its_chunks_and_its_task_ends_for_no_lack_of_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = Spark(monkeypatch, APPEND.model_copy(update={"scope": "slice"}))
    found = list(spark.fetch(room=30))
    assert spark.room is None
    assert len([chunk for chunk in found if chunk.rows.num_rows]) > 2
    assert [at for chunk in found for at in ints(chunk, ORDINAL)] == list(range(10))
    assert {chunk.rows.schema for chunk in found} == {found[0].rows.schema}
    assert spark.selected == [("`id`",)]


def test_rows_without_a_key_are_bad_with_the_records_that_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    upsert = declare(name="orders", topic="orders", target="orders", schema="id BIGINT", mode="upsert", key=["id"])
    spark = Spark(monkeypatch, upsert)
    asked: list[Any] = []

    def nothing(kept: Frame, why: dict[tuple[int, int], Any]) -> list[BadRecord]:
        return []

    def records(kept: Frame, why: dict[tuple[int, int], Any]) -> list[BadRecord]:
        assert spark.held == 1
        asked.extend(why)
        return [BadRecord(*place, reason.words, b"k", b"{}", (), None) for place, reason in why.items()]

    monkeypatch.setattr(transformed, "_records", records)
    found = list(spark.fetch(room=100))
    assert asked == [(0, 5)]
    assert offsets(found) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert [one.offset for chunk in found for one in chunk.bad] == [5]
    assert sum((part for chunk in found for part in chunk.seen.values()), Seen()).bad == 1
    monkeypatch.setattr(transformed, "_records", nothing)
    with pytest.raises(CountsDisagree):
        list(spark.fetch())


def test_a_record_of_which_two_rows_have_no_key_is_bad_once(monkeypatch: pytest.MonkeyPatch) -> None:
    upsert = declare(name="orders", topic="orders", target="orders", schema="id BIGINT", mode="upsert", key=["id"])
    spark = Spark(monkeypatch, upsert)
    spark.rows_each = 2

    def records(kept: Frame, why: dict[tuple[int, int], Any]) -> list[BadRecord]:
        return [BadRecord(*place, reason.words, b"k", b"{}", (), None) for place, reason in why.items()]

    monkeypatch.setattr(transformed, "_records", records)
    for room in (100, 1 << 20):
        found = list(spark.fetch(room=room))
        assert sorted(offsets(found)) == sorted([0, 1, 2, 3, 4, 6, 7, 8, 9] * 2)
        assert [one.offset for chunk in found for one in chunk.bad] == [5]
        assert sum((part for chunk in found for part in chunk.seen.values()), Seen()).bad == 1
