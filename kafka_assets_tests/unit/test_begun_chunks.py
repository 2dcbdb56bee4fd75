"""Chunks whose first one is read before anybody asks for it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pyarrow as pa
import pytest

from kafka_assets.assets.reading import Begun
from kafka_assets.records import Chunk


def chunk(number: int) -> Chunk:
    return Chunk(rows=cast("Any", pa.table({"number": [number]})), seen={})


def numbers(chunks: Any) -> list[int]:
    return [one.rows["number"][0].as_py() for one in chunks]


class Source:
    """Three chunks, each time they are asked for; says what became of the times before."""

    def __init__(self) -> None:
        self.read = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.times = self.ended = 0

    def __call__(self) -> Iterator[Chunk]:
        self.times += 1
        try:
            for number in range(3):
                self.read.set()
                assert self.goes_on.wait(30)
                yield chunk(number)
        finally:
            self.ended += 1


def test_the_first_one_is_read_before_it_is_asked_for() -> None:
    source = Source()
    with closing(Begun(source)) as chunks:
        assert source.read.wait(30)
        assert numbers(chunks()) == [0, 1, 2]
    assert (source.times, source.ended) == (1, 1)


def test_asked_for_again_they_are_read_anew_and_what_was_left_is_ended() -> None:
    source = Source()
    with closing(Begun(source)) as chunks:
        half = iter(chunks())
        assert numbers([next(half)]) == [0]
        assert numbers(chunks()) == [0, 1, 2]
        assert numbers(chunks()) == [0, 1, 2]
        assert (source.times, source.ended) == (3, 3)


def test_who_never_asks_waits_until_what_was_begun_has_ended() -> None:
    source = Source()
    source.goes_on.clear()
    threading.Timer(0.1, source.goes_on.set).start()
    with pytest.raises(KeyError), closing(Begun(source)):
        assert source.read.wait(30)
        raise KeyError
    assert (source.times, source.ended) == (1, 1)


def test_what_goes_wrong_is_raised_where_it_is_asked_for() -> None:
    def fails() -> Iterator[Chunk]:
        raise ValueError("no good")
        yield chunk(0)

    with closing(Begun(fails)):
        pass
    with closing(Begun(fails)) as chunks, pytest.raises(ValueError, match="no good"):
        numbers(chunks())


def test_where_there_is_none_there_is_none() -> None:
    with closing(Begun(lambda: ())) as chunks:
        assert numbers(chunks()) == []


def test_a_chunk_that_its_reader_is_done_with_is_held_by_nobody() -> None:
    made: list[weakref.ref[Chunk]] = []

    def source() -> Iterator[Chunk]:
        for number in range(2):
            one = chunk(number)
            made.append(weakref.ref(one))
            yield one
            del one

    with closing(Begun(source)) as chunks:
        for number, one in enumerate(chunks()):
            assert made[number]() is one
            del one
            assert made[0]() is None or number == 0
        assert [one() for one in made] == [None, None]
