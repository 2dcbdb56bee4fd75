"""What a value becomes by the one rule for both roads: it lands when it fits exactly, however it is spelt.

Each case is a schema, a record, and the value of its first field that must land, or BAD.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

BAD = "bad"


@dataclass(frozen=True)
class Rule:
    schema: str
    record: bytes
    expected: Any


def _single(text: str) -> float:
    return struct.unpack("f", struct.pack("f", float(text)))[0]


def _spelt(kind: str, token: str, expected: Any) -> Rule:
    return Rule(f"v {kind}", f'{{"v":{token}}}'.encode(), expected)


_TWICE = "name_of_eight STRUCT<x: INT>, transaction_reference STRING"

RULES = [
    # No value that nobody sent.
    _spelt("STRING", "1e400", BAD),
    _spelt("STRING", "-1e999", BAD),
    _spelt("STRING", "1.797693134862357e308", BAD),
    _spelt("STRING", '"\\"Infinity\\""', '"Infinity"'),
    Rule("tags ARRAY<STRING>", b'{"tags":["\xff"]}', BAD),
    Rule("tags ARRAY<STRING>, id BIGINT", b'{"id":5,"tags":["\xe9"]}', BAD),
    Rule("tags ARRAY<STRING>, id BIGINT", '{"id":5,"tags":["é"]}'.encode(), ["é"]),
    Rule("s STRUCT<x: STRING>", b'{"s":{"x":"\xe9"}}', BAD),
    Rule("m MAP<STRING,INT>", b'{"m":{"\xe9":1}}', BAD),
    # No key twice in an object that is declared.
    Rule(_TWICE, b'{"name_of_eight":{"x":1,"x":2},"transaction_reference":"r"}', BAD),
    Rule(_TWICE, b'{"name_of_eight":{"x":1},"transaction_reference":"r"}', {"x": 1}),
    Rule("address MAP<STRING,BIGINT>, identifier BIGINT", b'{"address":{"a":1,"a":2},"identifier":7}', BAD),
    Rule("address MAP<STRING,BIGINT>, identifier BIGINT", b'{"address":{"":1,"":2},"identifier":7}', BAD),
    Rule("lines ARRAY<STRUCT<x: INT>>, identifier BIGINT", b'{"lines":[{"x":1,"x":2}],"identifier":7}', BAD),
    # Whole numbers and decimals are the same number in every way to write them.
    _spelt("INT", "999.0", 999),
    _spelt("BIGINT", "1e0", 1),
    _spelt("BIGINT", "12.30e1", 123),
    _spelt("INT", "1.5", BAD),
    _spelt("DECIMAL(34,4)", "1e2", Decimal("100.0000")),
    _spelt("ARRAY<DECIMAL(5,2)>", "[1.5e1]", [Decimal("15.00")]),
    _spelt("DECIMAL(5,2)", "1.005", BAD),
    # DOUBLE and FLOAT take the nearest value; beyond their range is bad.
    _spelt("DOUBLE", "1" + "0" * 23, 1e23),
    _spelt("DOUBLE", "1" + "0" * 23 + ".0", 1e23),
    _spelt("DOUBLE", "-83076749736557242056487941267521536", -(2.0**116)),
    _spelt("DOUBLE", "9007199254740993", 9007199254740992.0),
    _spelt("DOUBLE", "1e-400", 0.0),
    _spelt("DOUBLE", "1e400", BAD),
    _spelt("ARRAY<DOUBLE>", "[0e1]", [0.0]),
    *(_spelt("FLOAT", token, _single(token)) for token in ("1e11", "1e15", "1.5e16")),
    *(_spelt("FLOAT", token, _single(token)) for token in ("1.4e-45", "1.17549435e-38")),
    _spelt("FLOAT", "0.123456789012", _single("0.123456789012")),
    _spelt("FLOAT", "1e39", BAD),
    # Undeclared fields cost nothing, whatever they are called.
    Rule("v INT", b'{"v":1,"' + b"k" * 100_000 + b'":1}', 1),
    # Times as ISO 8601 writes them.
    _spelt("TIMESTAMP_NTZ", '"2024-02-29T23:59"', datetime(2024, 2, 29, 23, 59)),
    _spelt("TIMESTAMP_NTZ", '"2024-02-29T23:59:60"', BAD),
]


def cases() -> list[Any]:
    """Each rule for a test."""
    return [pytest.param(rule, id=f"{rule.schema} {rule.record[:60]!r}") for rule in RULES]


def made_of(rows: list[Mapping[str, Any]], rule: Rule) -> Any:
    """The first field's value of the only row; BAD where there is none."""
    return next(iter(rows[0].values())) if rows else BAD
