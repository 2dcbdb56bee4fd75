"""What is seen beforehand leaves out only what the pattern would not have found either."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafka_assets.decode.doubts import Doubts

PARTS = [
    b'"', b":", b" ", b"\t", b"\n", b"\r", b'"p"', b'"ab"', b'"price"', b'"x y"', b'"x":"', b'"price":"', b'"ab": "',
    b'"price": 1', b'"ab" :"', b"\\u0070", b"NaN", b"Inf", b"N", b"a", b"-", b"[", b",", b"{", b"}", b"\xff",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_the_same_records_are_in_doubt_as_by_the_pattern_alone(seed: int) -> None:
    draw, found = random.Random(seed), 0
    for _ in range(1_500):
        names = draw.sample(["p", "ab", "price", "x y"], draw.randrange(3))
        values = [
            None if draw.random() < 0.1 else b"".join(draw.choices(PARTS, k=draw.randrange(9)))
            for _ in range(draw.randrange(4))
        ]
        start = draw.randrange(len(values) + 1)
        some = pa.array(values, pa.binary()).slice(start, draw.randrange(len(values) - start + 1))
        doubts = Doubts(names)
        by_pattern = pc.match_substring_regex(some, doubts._pattern).fill_null(True)
        spoiled = [value is not None and b"\xff" in value for value in some.to_pylist()]
        expected = np.array(by_pattern.to_pylist(), dtype=np.bool_) | np.array(spoiled, dtype=np.bool_)
        assert doubts.of(some).tolist() == expected.tolist()
        found += int(expected.sum())
    assert found > 100


@pytest.mark.parametrize(
    "text", ['"price":"1"', '"price": "1"', '"price" :"1"', '"price"\n:\t"1"', '"\\u0070rice":"1"']
)
def test_a_decimal_in_quotes_is_in_doubt_and_its_neighbours_are_not(text: str) -> None:
    values = pa.array([b'{"price":1,"note":"a"}', f"{{{text}}}".encode(), b'{"xprice":"1"}'], pa.binary())
    assert Doubts(["price"]).of(values).tolist() == [False, True, False]
    assert not Doubts([]).of(values).any()
