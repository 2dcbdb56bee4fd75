"""What slices are compared by when they are read again: a hash of each record.

Its key, offset, value and partition are hashed one after the other, each part seeded with the hash before it, from 42
on; a part that is not there leaves it as it is. So a record's place is in its hash, and no two are equal and cancel
each other out; and since key and value have the offset between them, it makes a difference which of the two is missing.

The algorithm is XXH64: stripes of four words side by side, then words, half a word and bytes that are left. Here it
goes through many records at a time, which costs about what a copy of their bytes costs through Python. A long part is
known by its BLAKE2b instead, which takes a record by itself as quickly.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

_SEED = 42
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_64_BITS = 2**64 - 1
_WORD, _STRIPE, _LANES = 8, 32, 4
_IN_WORD, _IN_STRIPE = _WORD - 1, _STRIPE - 1
"""What is left of a place or a length: `&` takes a tenth of what `%` takes."""
LONG = 1_024
"""Bytes from which on a part is long."""
BLOCK = 20_000
"""Records that are hashed at a time: what is made of them stays in the processor's cache. Each block costs 0.2 ms
besides, as 2,000 records do: what is consumed at a time shall be one."""

_Words = np.ndarray[Any, np.dtype[np.uint64]]
_Places = np.ndarray[Any, np.dtype[np.int64]]


def fingerprint(partition: int, offsets: _Places, keys: Any, values: Any) -> int:
    """The hashes of these records of one partition, combined; keys and values are binary arrays."""
    return int(np.bitwise_xor.reduce(hashes_of(partition, offsets, keys, values)))


def hashes_of(partitions: int | _Places, offsets: _Places, keys: Any, values: Any) -> _Places:
    """The hash of each of these records, of one partition or of several."""
    places = np.broadcast_to(np.asarray(partitions, dtype=np.uint64), len(offsets))
    found = np.empty(len(offsets), dtype=np.int64)
    for start in range(0, len(offsets), BLOCK):
        some = offsets[start : start + BLOCK]
        hashes = np.full(len(some), _SEED, dtype=np.uint64)
        hashes = _of_bytes(keys.slice(start, len(some)), hashes)
        hashes = _of_longs(some.view(np.uint64), hashes)
        hashes = _of_bytes(values.slice(start, len(some)), hashes)
        found[start : start + len(some)] = _of_ints(places[start : start + len(some)], hashes).view(np.int64)
    return found


def _of_longs(longs: _Words, seeds: _Words) -> _Words:
    return _mixed(_with_word(seeds + _word(_P5 + 8), longs))


def _of_ints(numbers: _Words, seeds: _Words) -> _Words:
    return _mixed(_with_half(seeds + _word(_P5 + 4), numbers))


def _of_bytes(column: Any, seeds: _Words) -> _Words:
    if column.null_count == len(column):
        return seeds
    long = np.flatnonzero(np.diff(_ends(column)) > LONG)
    if not len(long):
        return _of_short(column, seeds)
    short = np.delete(np.arange(len(column)), long)
    digests: Any = pa.array([blake2b(column[at].as_buffer()).digest() for at in long.tolist()], pa.binary())
    hashes = np.empty_like(seeds)
    hashes[short] = _of_short(column.take(pa.array(short)), seeds[short])
    hashes[long] = _of_short(digests, seeds[long])
    return hashes


def _of_short(column: Any, seeds: _Words) -> _Words:
    words, starts, lengths = _laid_out(column)
    stripes = lengths >> 5
    hashes = np.where(stripes > 0, np.uint64(0), seeds + _word(_P5))
    if stripes.any():
        # The longest first: those that have one more stripe are always the first ones.
        order = np.argsort(-stripes, kind="stable")
        most = order[: np.count_nonzero(stripes)]
        hashes[most] = _striped(words, starts[most], stripes[most], seeds[most])
    hashes = _with_rest(words, starts + stripes * _STRIPE, lengths & _IN_STRIPE, hashes + lengths.view(np.uint64))
    hashes = _mixed(hashes)
    return np.where(_valid(column), hashes, seeds) if column.null_count else hashes


def _laid_out(column: Any) -> tuple[_Words, _Places, _Places]:
    """The bytes as words, with two more behind; where each record begins, and how long it is."""
    data, ends = column.buffers()[2], _ends(column)
    first, last = int(ends[0]), int(ends[-1])
    words = np.zeros((last - first) // _WORD + 3, dtype=np.uint64)
    if last > first:
        words.view(np.uint8)[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
    return words, ends[:-1] - first, np.diff(ends)


def _ends(column: Any) -> _Places:
    """Where each value ends among the bytes; before them, where the first one begins."""
    ends = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return ends[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _striped(words: _Words, starts: _Places, stripes: _Places, seeds: _Words) -> _Words:
    """What the whole stripes come to; the records have one at least, and the most come first."""
    lanes = np.stack([seeds + _word(_P1 + _P2), seeds + _word(_P2), seeds, seeds - _word(_P1)])
    shift = ((starts & _IN_WORD) * 8).astype(np.uint64)
    unshift = np.uint64(63) - shift
    at = (starts >> 3) + np.arange(_LANES + 1)[:, np.newaxis]
    counts = np.searchsorted(-stripes, -np.arange(1, int(stripes[0]) + 1), side="right")
    for count in counts.tolist():
        taken = words.take(at[:, :count])
        low, high, up = taken[:-1] >> shift[:count], taken[1:], lanes[:, :count]
        # In place from here on: what a step leaves behind is what the next one finds in the cache.
        high <<= np.uint64(1)
        high <<= unshift[:count]
        low |= high
        low *= _word(_P2)
        up += low
        np.right_shift(up, np.uint64(33), out=low)
        up <<= np.uint64(31)
        up |= low
        up *= _word(_P1)
        at += _LANES
    one, two, three, four = lanes
    hashes = _turned(one, 1) + _turned(two, 7) + _turned(three, 12) + _turned(four, 18)
    for lane in lanes:
        hashes = (hashes ^ _round(lane)) * _word(_P1) + _word(_P4)
    return hashes


def _with_rest(words: _Words, starts: _Places, lengths: _Places, hashes: _Words) -> _Words:
    """With what is left of each record: fewer than 32 bytes."""
    for step in range(_STRIPE // _WORD - 1):
        if len(some := np.flatnonzero(lengths >= (step + 1) * _WORD)):
            hashes[some] = _with_word(hashes[some], _at(words, starts[some] + step * _WORD))
    starts, lengths = starts + (lengths & ~_IN_WORD), lengths & _IN_WORD
    if len(some := np.flatnonzero(lengths >= _WORD // 2)):
        half = _at(words, starts[some]) & np.uint64(0xFFFFFFFF)
        hashes[some] = _with_half(hashes[some], half)
        starts[some] += _WORD // 2
        lengths[some] -= _WORD // 2
    for step in range(_WORD // 2 - 1):
        if len(some := np.flatnonzero(lengths > step)):
            byte = _at(words, starts[some] + step) & np.uint64(0xFF)
            hashes[some] = _turned(hashes[some] ^ byte * _word(_P5), 11) * _word(_P1)
    return hashes


def _with_word(hashes: _Words, words: _Words) -> _Words:
    return _turned(hashes ^ _round(words), 27) * _word(_P1) + _word(_P4)


def _with_half(hashes: _Words, halves: Any) -> _Words:
    return _turned(hashes ^ halves * _word(_P1), 23) * _word(_P2) + _word(_P3)


def _round(words: _Words) -> _Words:
    return _turned(words * _word(_P2), 31) * _word(_P1)


def _mixed(hashes: _Words) -> _Words:
    hashes = (hashes ^ hashes >> np.uint64(33)) * _word(_P2)
    hashes = (hashes ^ hashes >> np.uint64(29)) * _word(_P3)
    return hashes ^ hashes >> np.uint64(32)


def _turned(words: _Words, bits: int) -> _Words:
    return words << np.uint64(bits) | words >> np.uint64(64 - bits)


def _at(words: _Words, places: _Places) -> _Words:
    """The words that begin at these bytes."""
    at = places >> 3
    return _joined(words.take(at), words.take(at + 1), ((places & _IN_WORD) * 8).astype(np.uint64))


def _joined(low: _Words, high: _Words, shift: Any) -> _Words:
    """The words that begin so many bits within the lower ones."""
    # In two steps: a shift by all 64 bits is not defined.
    return low >> shift | high << np.uint64(1) << np.uint64(63) - shift


def _word(number: int) -> np.uint64:
    return np.uint64(number & _64_BITS)


def _valid(column: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
