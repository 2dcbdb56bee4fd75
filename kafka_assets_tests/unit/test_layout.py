"""Records that are laid out alike are cut instead of parsed: what is made of them is what the exact road makes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kafka_assets.decode import json_bulk
from kafka_assets.decode.contract import LONGEST_NUMBER
from kafka_assets.decode.decoder import JsonValues
from kafka_assets.decode.layout import LONGEST, Layout, Value
from kafka_assets.decode.numerals import numerals
from kafka_assets.schema import declared
from kafka_assets_tests.unit.test_decoder import HOSTILE, WIDE, check, reads, values

SCHEMA = (
    "id BIGINT, t TINYINT, price DECIMAL(12,2), e DECIMAL(38,18), ratio DOUBLE, g FLOAT, note STRING, ok BOOLEAN, "
    "body BINARY, day DATE, at TIMESTAMP, st STRUCT<x: INT NOT NULL, y: STRING, in: STRUCT<z: DOUBLE>>, none STRING"
)


def record(at: int, /, **others: Any) -> dict[str, Any]:
    """One that every field of the schema takes, and others in it that are not declared."""
    fields: dict[str, Any] = {
        "id": at, "more": -at / 8, "t": at % 100, "price": at / 4, "e": 0.5, "ratio": at / 7, "g": 1.5,
        "note": f"é {at} [{{:,", "yes": at % 2 == 0, "ok": at % 3 == 0, "nothing": None, "body": "AQI=",
        "day": "2024-02-29", "at": "2024-01-01T10:00:00Z", "o": {"a": at, "b": {"c": "d"}},
        "st": {"x": at, "q": "", "y": "b", "in": {"z": 2.5}},
    }  # fmt: skip
    return fields | others


def written(*fields: dict[str, Any], spaced: bool = False) -> list[bytes]:
    marks = (", ", ": ") if spaced else (",", ":")
    return [json.dumps(one, separators=marks, ensure_ascii=False).encode() for one in fields]


GOOD = written(*(record(at) for at in range(200)))


def no_parser(monkeypatch: pytest.MonkeyPatch, decode: JsonValues) -> None:
    monkeypatch.setattr(decode.exact, "read", lambda value: pytest.fail(f"one by one: {value!r}"))
    monkeypatch.setattr(json_bulk, "_read", lambda *given: pytest.fail(f"parsed: {given}"))


@pytest.mark.parametrize(
    "records",
    [
        GOOD,
        written(*(record(at) for at in range(200)), spaced=True),
        [b" " + one + b"\n" for one in GOOD],
        written(*(record(at, id=None if at % 5 else at, ok=None if at % 3 else True) for at in range(200))),
        written(*(record(at, st=None, note=None, at=None, day=None, body=None) for at in range(200))),
        written(*({"id": at, "o": {}, "st": {"x": 1}} for at in range(200))),
    ],
    ids=["compact", "spaced", "with white space around", "with nulls", "always null", "without most fields"],
)
def test_no_parser_is_needed(records: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    check(SCHEMA, records)
    decode = JsonValues(declared(SCHEMA, "json"))
    no_parser(monkeypatch, decode)
    found = decode.read(values(records))
    assert found.rows.num_rows == len(records) and not found.bad
    assert decode.read(values([b"x", *records]).slice(1)).rows.equals(found.rows)


def test_a_required_field_that_is_null_or_missing_is_bad() -> None:
    schema = "id BIGINT NOT NULL, note STRING NOT NULL"
    some = [*written(*({"id": at, "note": "a"} for at in range(100))), *written(*({"id": at} for at in range(100)))]
    some += [*written(*({"id": None, "note": "a"} for _ in range(100)))]
    assert list(check(schema, some).bad) == list(range(100, 300))


@pytest.mark.parametrize("kind", ["ARRAY<INT>", "STRUCT<a: INT>", "BINARY", "DATE", "TIMESTAMP", "STRING", "BOOLEAN"])
@pytest.mark.parametrize("value", ["1", "1.5", "true", "null", '"a"', '""'])
def test_a_value_of_another_kind_than_its_field(kind: str, value: str) -> None:
    check(f"id BIGINT, a {kind}", [f'{{"id":{at},"a":{value}}}'.encode() for at in range(100)])


@pytest.mark.parametrize("seed", range(4))
def test_spoiled_ones_among_them(seed: int) -> None:
    draw = Random(seed)
    records = list[bytes]()
    for one in GOOD:
        at = draw.randrange(len(one) + 1)
        byte = bytes([draw.choice([*b'{}[]",:\\0123456789-+.eEtfnul \n\t\x00/*x', 0x7F, 0x80, 0xC3, 0xFF])])
        other = draw.choice(GOOD)
        spoiled = (
            one[:at] + byte + one[at:],
            one[:at] + byte + one[at + 1 :],
            one[:at] + one[at + 1 :],
            one[:at] + other[at:],
            one + one,
            one[:at],
        )
        records.append(one if draw.random() < 0.6 else draw.choice(spoiled))
    assert check(SCHEMA, records).bad


@pytest.mark.parametrize("seed", range(4))
def test_values_of_all_kinds_where_others_stood(seed: int) -> None:
    draw = Random(seed)
    odd = [
        "null", "true", "false", "NaN", "Infinity", "-Infinity", "Inf", "-0", "0", "-0.0", "01", "-01", "1.", ".5",
        "1.5", "1.0", "1." + "0" * 30, "1." + "0" * 600, "9" * 38, "9" * 37 + ".99", str(2**128 + 1), "9" * 10 + ".99",
        "9" * 20 + "." + "9" * 18, "127", "-128", "128", str(2**63 - 1), str(-(2**63)), "9" * 19, "1" * 19,
        "1e2", "1E+2", "1e-2", "1.e2", "1e", "1e+", "e5", "+1", "--1", "-", "1-2", "1.2.3", "1e2e3", "1e2.5",
        "1.5.", "0x10", "1_000", "128", "-129", "9223372036854775808", "1e400", "1e39", "1e-400", "12.345",
        "99999999999", "10000000000.00", "9" * 1_000, "9" * 1_001, "0." + "0" * 999, '"1"', '""', "[]", "{}", "[1]",
        "tru", "nul", "nulls", "True", " 1 ", "1 2", "\t1", "1\n", '"a\\n"', '"\x7f"', '"\x00"', '"a"b"', "",
        '"2024-02-30"', '"2024-02-29"', '"2024-01-01T10:00"', '"AQI"', '{"x":1}', '{"x":null}', '{"x":1,"x":2}',
    ]  # fmt: skip
    records = list[bytes]()
    for at, one in enumerate(GOOD):
        if at % 2:
            name = draw.choice(list(record(0)))
            token = json.dumps(record(at)[name], separators=(",", ":"), ensure_ascii=False)
            records.append(one.decode().replace(f'"{name}":{token}', f'"{name}":{draw.choice(odd)}', 1).encode())
        else:
            records.append(one)
    assert check(SCHEMA, records).bad


@pytest.mark.slow
def test_numbers_of_their_own_ways_of_writing() -> None:
    tokens = ["1", "-0", "1.25", "1e2", "1E-2", "1.5e+1", "-1.5", "0.001", "100", "12345678901234567890"]
    for kind in ("DECIMAL(12,2)", "DECIMAL(38,18)", "DOUBLE", "FLOAT", "BIGINT", "INT"):
        check(f"n {kind}", [f'{{"n":{tokens[at % len(tokens)]}}}'.encode() for at in range(300)])
        for token in tokens:
            check(f"n {kind}", [f'{{"n":{token}}}'.encode()] * 100)


@pytest.mark.slow
def test_hostile_records_among_those_of_their_own_layout() -> None:
    for one in HOSTILE:
        if one is not None and len(one) < LONGEST:
            check(WIDE, [one] * 70)
            check(WIDE, [*[one] * 40, *[b'{"i":1}'] * 100, one])


def test_the_records_of_several_programs_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [
        *written({"id": 0, "note": "a"}, {"note": "a", "id": 0}, {"id": 0}),
        *written({"id": 0, "note": None}, spaced=True),
    ]
    draw = Random(1)
    records = [draw.choice(ways).replace(b"0", str(at).encode()) for at in range(3_000)]
    check("id BIGINT, note STRING", records)
    decode = JsonValues(declared("id BIGINT, note STRING", "json"))
    no_parser(monkeypatch, decode)
    for _ in range(2):
        assert decode.read(values(records)).rows.column("id").to_pylist() == list(range(3_000))


def test_a_program_that_writes_otherwise_from_some_day_on_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = JsonValues(declared(SCHEMA, "json"))
    no_parser(monkeypatch, decode)
    for way in range(3 * json_bulk.LAYOUTS):
        records = written(*({"id": at, f"new{way}": 1} for at in range(200)))
        assert decode.read(values(records)).rows.column("id").to_pylist() == list(range(200))


@pytest.mark.parametrize("start", [0, 3])
def test_a_batch_of_empty_values_behind_records_that_were_laid_out_alike(start: int) -> None:
    ways = [written(*({"id": at, f"more{way}": 1} for at in range(100))) for way in range(2)]
    decode = JsonValues(declared("id BIGINT", "json"))
    assert not decode.read(values([*ways[0], *ways[1]])).bad
    empty = values([b"x"] * start + [b""] * 100).slice(start)
    assert list(decode.read(empty).bad) == list(range(100))
    assert list(decode.read(values([*ways[0], *[b""] * 100])).bad) == list(range(100, 200))


def test_a_control_character_in_a_text_where_another_record_has_one_less_between_its_values() -> None:
    records = [b'{"id":%d,\n"note":"x"}' % at for at in range(100)]
    records[50], records[60] = b'{"id":50,\n"note":"a\nb"}', b'{"id":60, "note":"x"}'
    assert list(check("id BIGINT, note STRING", records).bad) == [50]


def test_a_few_other_records_are_parsed_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    given = reads(monkeypatch)
    records: list[bytes | None] = [b'{"id":%d}' % at for at in range(10_000)]
    records[0], records[7_000], records[9_999] = b'{"id":[]}', b'{"id":', b'{"id":9999,"a":"\\n"}'
    records[5_000] = None
    found = JsonValues(declared("id BIGINT", "json")).read(values(records))
    assert list(found.bad) == [0, 5_000, 7_000] and found.rows.column("id").to_pylist()[-1] == 9_999
    assert set(given) <= {1, 2, 3}


def test_records_that_have_no_layout_in_common_are_seldom_asked_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[bytes]()
    of: Callable[[bytes], Layout | None] = Layout.of

    def counted(one: bytes) -> Layout | None:
        asked.append(one)
        return of(one)

    monkeypatch.setattr(Layout, "of", staticmethod(counted))
    decode = JsonValues(declared("id BIGINT", "json"))
    for _ in range(json_bulk.PAUSE + 1):
        records = [b'{"id":%d,"k%d":1}' % (at, at) for at in range(200)]
        assert decode.read(values(records)).rows.num_rows == 200
    assert 0 < len(asked) <= json_bulk.LAYOUTS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a":1}', [Value(("a",), False)]),
        (' { "a" :\n"x" , "é":{"c":null,"d":{}}} ', [Value(("a",), True), Value(("é", "c"), False)]),
        ('{"a":"{[:,","b":-1.5e3,"c":true}', [Value(("a",), True), Value(("b",), False), Value(("c",), False)]),
        ("{}", None),
        ('{"a":{}}', None),
        ('{"a":[]}', None),
        ('{"a":1,"b":[{"c":1}]}', None),
        ('{"a":"\\n"}', None),
        ('{"\\u0061":1}', None),
        ('{"a":1,"a":2}', None),
        ('{"o":{"a":1,"a":2}}', None),
        ('{"o":{"a":1},"o":{"b":2}}', None),
        ('{"o":{"a":1},"p":{"a":1}}', [Value(("o", "a"), False), Value(("p", "a"), False)]),
        ("[1]", None),
        ('"a"', None),
        ("", None),
        ('{"a":1', None),
        ('{"a":1}}', None),
        ('{"a":1}{"a":1}', None),
        ('{"a":tru}', None),
        ('{"a":NaN}', None),
        ('{"a":"' + "x" * LONGEST + '"}', None),
    ],
)
def test_what_has_a_layout(text: str, found: list[Value] | None) -> None:
    layout = Layout.of(text.encode())
    assert (None if layout is None else list(layout.values)) == found


def test_text_that_is_not_utf8_has_none() -> None:
    assert Layout.of(b'{"a":"\xff"}') is None
    check("a STRING", [*[b'{"a":"x"}'] * 100, b'{"a":"\xff"}', *[b'{"a":"y"}'] * 100])


def one_by_one(texts: Sequence[str]) -> list[bool]:
    grammar = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
    return [grammar.fullmatch(text) is not None and len(text) <= LONGEST_NUMBER for text in texts]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_a_number(seed: int) -> None:
    draw = Random(seed)
    for _ in range(400):
        texts = ["".join(draw.choices("0012.-+eEx", k=draw.randrange(1, 7))) for _ in range(draw.randrange(1, 30))]
        found = numerals(pa.array(["zz", *texts, "zz"], pa.string()).slice(1, len(texts)))
        assert found.are.tolist() == one_by_one(texts)
        plain = [re.fullmatch(r"-?(0|[1-9][0-9]*)([.][0-9]+)?", text) for text in texts]
        assert found.are_plain.tolist() == [one is not None for one in plain]
        for at, one in enumerate(plain):
            if one is not None:
                assert found.whole[at] == len(one[1].strip("0") and one[1])
                assert found.fraction[at] == len((one[2] or ".")[1:])


def test_a_long_number_is_none() -> None:
    texts = ["1" * LONGEST_NUMBER, "1" * (LONGEST_NUMBER + 1), "1"]
    assert numerals(pa.array(texts)).are.tolist() == [True, False, True] == one_by_one(texts)
