"""What a run of several transactions reads: the next one's records while one is committed."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import wait
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest

from kafka_assets.assets.reading import Begun, Reading
from kafka_assets.records import Chunk
from kafka_assets.slices import SliceKey

SCHEMA = pa.schema([pa.field("offset", pa.int64())])


class Topic:
    def observe(self, topics: Any) -> Any:
        raise NotImplementedError


@dataclass
class Read:
    """What was asked for, in its order, by threads; what of it was ended, and how often a schema was asked for."""

    begun: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    ended: list[str] = field(default_factory=list[str])
    schemas: int = 0
    fails: Exception | None = None
    has_begun: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, number: int) -> None:
        with self.has_begun:
            assert self.has_begun.wait_for(lambda: len(self.begun) >= number, 30)


@dataclass(frozen=True)
class Part:
    """A landing as far as it reads: two chunks of a slice, each of them one row."""

    keys: tuple[SliceKey, ...]
    read: Read
    records: object = field(default_factory=Topic)

    def schema(self, frame: object) -> pa.Schema:
        self.read.schemas += 1
        return SCHEMA

    def chunks(self, read_from: Mapping[SliceKey, int], schema: pa.Schema) -> Any:
        [(key, start)] = read_from.items()

        def read() -> Generator[Chunk]:
            with self.read.has_begun:
                self.read.begun.append((str(key), start))
                self.read.has_begun.notify_all()
            if self.read.fails is not None:
                raise self.read.fails
            try:
                for offset in (start, start + 1):
                    yield Chunk(rows=pa.table({"offset": [offset]}, schema=schema), seen={})
            finally:
                self.read.ended.append(str(key))

        return read


ONE, TWO, THREE, FOUR = (SliceKey("orders", 1, 0, at, at + 10) for at in range(0, 40, 10))


@pytest.fixture
def read() -> Read:
    return Read()


def reading(read: Read, *keys: SliceKey, records: object = None) -> Any:
    run, *parts = (Part(some, read, records or Topic()) for some in (keys, *((key,) for key in keys)))
    return closing(Reading(cast("Any", run), cast("Any", None), cast("Any", parts)))


def of(read: Read, key: SliceKey, records: object = None) -> Any:
    return Part((key,), read, records or Topic())


def offsets(chunks: Iterator[Chunk]) -> list[int]:
    return [chunk.rows["offset"][0].as_py() for chunk in chunks]


def test_the_next_transaction_is_read_when_all_of_one_was_taken_and_once(read: Read) -> None:
    with reading(read, ONE, TWO) as run:
        with run.of(of(read, ONE), {ONE: 0}) as chunks:
            taken = iter(chunks())
            assert offsets(iter([next(taken), next(taken)])) == [0, 1]
            assert read.begun == [(str(ONE), 0)]
            assert offsets(taken) == []
            read.wait(2)  # while the transaction is still to be committed
        with run.of(of(read, TWO), {TWO: 10}) as chunks:
            assert offsets(chunks()) == [10, 11]
    assert read.begun == [(str(ONE), 0), (str(TWO), 10)]
    assert read.ended == [str(ONE), str(TWO)]
    assert read.schemas == 1


def test_what_expired_since_is_read_from_where_it_still_can(read: Read) -> None:
    with reading(read, ONE, TWO) as run:
        with run.of(of(read, ONE), {ONE: 0}) as chunks:
            offsets(chunks())
        with run.of(of(read, TWO), {TWO: 15}) as chunks:
            assert offsets(chunks()) == [15, 16]
    assert read.begun == [(str(ONE), 0), (str(TWO), 10), (str(TWO), 15)]
    assert sorted(read.ended) == sorted(map(str, (ONE, TWO, TWO)))


def test_a_transaction_that_is_tried_again_is_read_anew_and_the_next_one_only_once(read: Read) -> None:
    with reading(read, ONE, TWO) as run:
        with run.of(of(read, ONE), {ONE: 0}) as chunks:
            assert offsets(chunks()) == [0, 1]
            assert offsets(chunks()) == [0, 1]
        with run.of(of(read, TWO), {TWO: 10}) as chunks:
            assert offsets(chunks()) == [10, 11]
            assert offsets(chunks()) == [10, 11]
    assert sorted(read.begun) == sorted([(str(ONE), 0)] * 2 + [(str(TWO), 10)] * 2)
    assert len(read.ended) == 4


def test_what_was_begun_for_a_transaction_that_never_comes_is_ended(read: Read) -> None:
    with pytest.raises(KeyError), reading(read, ONE, TWO) as run:
        with run.of(of(read, ONE), {ONE: 0}) as chunks:
            offsets(chunks())
        raise KeyError
    assert sorted(read.ended) == sorted(map(str, (ONE, TWO)))


def test_a_transaction_that_fails_early_leaves_the_next_one_to_be_read_in_its_turn(read: Read) -> None:
    with reading(read, ONE, TWO) as run:
        with pytest.raises(KeyError), run.of(of(read, ONE), {ONE: 0}) as chunks:
            next(iter(chunks()))
            raise KeyError
        assert read.begun == [(str(ONE), 0)]
        with run.of(of(read, TWO), {TWO: 10}) as chunks:
            assert offsets(chunks()) == [10, 11]
    assert sorted(read.ended) == sorted(map(str, (ONE, TWO)))


def test_a_transaction_that_is_not_read_is_read_ahead_once_and_those_after_it_are_still_read_ahead(read: Read) -> None:
    with reading(read, ONE, TWO, THREE, FOUR) as run:
        with run.of(of(read, ONE), {ONE: 0}) as chunks:
            offsets(chunks())
        # Of the second one another run holds a lease, or its offsets have expired: it is not asked for.
        with run.of(of(read, THREE), {THREE: 20}) as chunks:
            offsets(chunks())
        read.wait(4)
        with run.of(of(read, FOUR), {FOUR: 30}) as chunks:
            offsets(chunks())
    assert read.begun == [(str(key), key.start) for key in (ONE, TWO, THREE, FOUR)]
    assert sorted(read.ended) == sorted(map(str, (ONE, TWO, THREE, FOUR)))


def test_what_could_not_be_read_ahead_is_read_anew(read: Read) -> None:
    with reading(read, ONE, TWO) as run:
        with run.of(of(read, ONE), {ONE: 0}) as chunks:
            read.fails = ValueError("no good")
            offsets(chunks())
            read.wait(2)
        wait_until_idle(run)
        read.fails = None
        with run.of(of(read, TWO), {TWO: 10}) as chunks:
            assert offsets(chunks()) == [10, 11]


def test_who_is_interrupted_while_it_waits_leaves_nothing_that_is_read(read: Read) -> None:
    goes_on = threading.Event()

    def source() -> Generator[Chunk]:
        try:
            assert goes_on.wait(30)
            yield Chunk(rows=SCHEMA.empty_table(), seen={})
        finally:
            read.ended.append("source")

    begun = Begun(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafka_assets.assets.reading.wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            begun.close()
    goes_on.set()
    begun._pool.shutdown(wait=True)
    assert read.ended == ["source"]


def interrupted(some: object) -> None:
    raise KeyboardInterrupt


def wait_until_idle(run: Reading) -> None:
    assert run._ahead is not None
    wait([run._ahead[1]._first])


def test_rows_of_another_asset_are_read_when_they_are_asked_for(read: Read) -> None:
    rows = object()
    with reading(read, ONE, TWO, records=rows) as run:
        with run.of(of(read, ONE, rows), {ONE: 0}) as chunks:
            assert read.begun == []
            assert offsets(chunks()) == [0, 1]
        assert read.begun == [(str(ONE), 0)]
