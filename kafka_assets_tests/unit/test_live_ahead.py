"""What was decoded while its batch gathered is what decoding the whole batch at once would have made of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kafka_assets.decode.contract import Decoded
from kafka_assets.live import ahead
from kafka_assets.live.ahead import ReadAhead
from kafka_assets.live.batch import Batch, Columns
from kafka_assets.live.decode import Decoder
from kafka_assets.records import Chunk
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.corpus.json_records import RECORDS, SCHEMA
from kafka_assets_tests.corpus.live import batch


def values(seed: int, count: int) -> list[bytes | None]:
    """Good records, among them those of the hostile corpus."""
    draw = random.Random(seed)
    hostile = [value for value, _ in RECORDS if value is not None]
    return [
        draw.choice(hostile) if draw.random() < 0.1 else b'{"id":%d,"note":"n%d"}' % (number, number)
        for number in range(count)
    ]


def stream(mode: str) -> Stream:
    more: dict[str, Any] = {"mode": "upsert", "key": ["id"]} if mode == "upsert" else {}
    return declare(name="orders", topic="orders", target="orders", schema=SCHEMA, **more)


def grown(decoder: Decoder, whole: Batch, keys: Sequence[bytes | None], *, steps: Sequence[int]) -> Batch:
    """The records as they are gathered: in steps, after each of which the decoder hears of it."""
    made, at = Batch(), 0
    for step in [*steps, len(whole)]:
        for part in whole.parts:
            some = part.values[at : at + step].to_pylist()
            for more in batch(keys[at : at + step], some, first=at, partition=part.partition).parts:
                made.add(more)
        decoder.begin(made)
        at += step
    return made


def said(chunk: Chunk) -> tuple[object, ...]:
    deletes = None if chunk.deletes is None else chunk.deletes.to_pylist()
    return chunk.rows.to_pylist(), chunk.rows.schema, deletes, list(chunk.bad), dict(chunk.seen)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("seed", range(8))
def test_in_pieces_or_at_once_is_the_same(seed: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "PIECE", 70)
    draw = random.Random(seed)
    at_once, in_pieces = Decoder(stream(mode)), Decoder(stream(mode))
    whole, gathered = dict[SliceKey, Batch](), dict[SliceKey, Batch]()
    steps = [draw.randrange(1, 150) for _ in range(6)]
    for partition in range(3):
        count = draw.choice([0, 5, 69, 70, 400])
        some = values(seed + partition, count)
        if mode == "upsert" and partition == 1:
            some = [None if draw.random() < 0.1 else one for one in some]
        keys = [b'{"id":%d}' % number for number in range(count)]
        key = SliceKey("orders", 1, partition, 0, 1_000)
        whole[key] = batch(keys, some, partition=partition)
        gathered[key] = grown(in_pieces, whole[key], keys, steps=steps)
    assert any(len(one.pieces) > 1 for one in gathered.values()) or max(map(len, whole.values())) < 400
    assert said(in_pieces.chunk(gathered)) == said(at_once.chunk(whole))


def test_what_is_raised_leaves_the_batch_as_it_was() -> None:
    def fails(parts: Sequence[Columns]) -> Decoded:
        raise MemoryError("no room")

    read = ReadAhead(fails)
    one = batch([None] * ahead.PIECE, [b"{}"] * ahead.PIECE)
    with pytest.raises(MemoryError, match="no room"):
        read.begin(one)
    assert not one.begun and not one.pieces


def test_a_piece_is_decoded_when_there_is_enough_for_one_and_the_rest_with_the_batch() -> None:
    given = list[int]()

    def counted(parts: Sequence[Columns]) -> Decoded:
        given.append(sum(map(len, parts)))
        return Decoded(pa.table({"n": [given[-1]]}))

    read, one = ReadAhead(counted), Batch()
    for count in (ahead.PIECE - 1, 1, ahead.PIECE, 3):
        one.add(*batch([None] * count, [b"{}"] * count).parts)
        read.begin(one)
    assert given == [ahead.PIECE] * 2
    assert read.columns([one]).rows.column("n").to_pylist() == [ahead.PIECE, ahead.PIECE, 3]


def test_one_thread_at_a_time_reads() -> None:
    inside, most, gate = 0, 0, threading.Event()

    def slow(parts: Sequence[Columns]) -> Decoded:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        assert gate.wait(60)
        inside -= 1
        return Decoded(pa.table({"n": [sum(map(len, parts))]}))

    read = ReadAhead(slow)
    one = batch([None] * ahead.PIECE, [b"{}"] * ahead.PIECE)
    threads = [threading.Thread(target=read.begin, args=(one,))]
    threads += [threading.Thread(target=read.read, args=(batch([None], [b"{}"]).parts,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(20)
    assert most == 1
    assert read.columns([one]).rows.column("n").to_pylist() == [ahead.PIECE]
