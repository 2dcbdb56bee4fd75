"""Records' hashes, many at a time: each is XXH64, whatever is long, short, empty or not there beside it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pytest

from kafka_assets.decode import fingerprints
from kafka_assets.decode.fingerprints import LONG, fingerprint

P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MASK = 2**64 - 1

Record = tuple["bytes | None", int, "bytes | None"]
"""Key, offset and value."""


def turned(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & MASK


def xxh64(text: bytes, seed: int) -> int:
    """As the algorithm's description has it, a number at a time."""
    at = 0
    if len(text) >= 32:
        lanes = [seed + P1 + P2, seed + P2, seed, seed - P1]
        while at + 32 <= len(text):
            for lane in range(4):
                word = int.from_bytes(text[at : at + 8], "little")
                lanes[lane] = turned((lanes[lane] + word * P2) & MASK, 31) * P1 & MASK
                at += 8
        found = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            found = ((found ^ turned(lane * P2 & MASK, 31) * P1 & MASK) * P1 + P4) & MASK
    else:
        found = seed + P5 & MASK
    found = found + len(text) & MASK
    for width in (8, 8, 8, 4, 1, 1, 1):
        if at + width > len(text):
            continue
        part = int.from_bytes(text[at : at + width], "little")
        at += width
        if width == 8:
            found = (turned(found ^ turned(part * P2 & MASK, 31) * P1 & MASK, 27) * P1 + P4) & MASK
        elif width == 4:
            found = (turned(found ^ part * P1 & MASK, 23) * P2 + P3) & MASK
        else:
            found = turned(found ^ part * P5 & MASK, 11) * P1 & MASK
    found = (found ^ found >> 33) * P2 & MASK
    found = (found ^ found >> 29) * P3 & MASK
    return found ^ found >> 32


def expected(partition: int, records: Sequence[Record]) -> int:
    found = 0
    for key, offset, value in records:
        one = 42
        for part in (key, offset.to_bytes(8, "little"), value, partition.to_bytes(4, "little")):
            if part is not None:
                one = xxh64(blake2b(part).digest() if len(part) > LONG else part, one)
        found ^= one
    return found


def made(partition: int, records: Sequence[Record]) -> int:
    keys, offsets, values = ([record[at] for record in records] for at in range(3))
    found = fingerprint(
        partition, np.array(offsets, dtype=np.int64), pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    )
    assert -(2**63) <= found < 2**63
    return found & MASK


@pytest.mark.parametrize(
    ("text", "known"), [(b"", 0xEF46DB3751D8E999), (b"abc", 0x44BC2CF5AD770999), (b"a" * 32, None)]
)
def test_what_this_compares_with_is_the_algorithm(text: bytes, known: int | None) -> None:
    assert known in (None, xxh64(text, 0))


def test_every_length_is_hashed_as_by_itself() -> None:
    draw = random.Random(1)
    records: list[Record] = [(draw.randbytes(size % 41), size, draw.randbytes(size)) for size in range(200)]
    for record in records:
        assert made(7, [record]) == expected(7, [record])
    assert made(7, records) == expected(7, records)


@pytest.mark.parametrize("seed", range(6))
def test_records_of_all_sizes_beside_each_other(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "BLOCK", 64)
    draw = random.Random(seed)

    def part() -> bytes | None:
        return (
            None
            if draw.random() < 0.1
            else draw.randbytes(draw.choice([0, 3, 8, 31, 32, 33, 200, LONG, LONG + 1, 70_000]))
        )

    records: list[Record] = [(part(), draw.randrange(2**63), part()) for _ in range(150)]
    assert made(2**31 - 1, records) == expected(2**31 - 1, records)


def test_slices_of_columns_and_no_records() -> None:
    records: list[Record] = [(b"k%d" % at, at, b"v" * at) for at in range(40)]
    keys, values = (pa.array([record[at] for record in records], pa.binary()) for at in (0, 2))
    for start, end in ((0, 40), (7, 33), (39, 40), (5, 5)):
        offsets = np.arange(start, end)
        found = fingerprint(0, offsets, keys.slice(start, end - start), values.slice(start, end - start))
        assert found & MASK == expected(0, records[start:end])


def test_a_part_that_is_not_there_is_not_an_empty_one() -> None:
    kinds = [made(0, [(key, 1, value)]) for key in (None, b"", b"a") for value in (None, b"", b"a")]
    assert len(set(kinds)) == 9
