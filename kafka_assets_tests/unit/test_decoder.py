"""The one decoder against a judge of Python's json and fractions: in bulk and one by one, the same rows and reasons."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kafka_assets.decode import json_bulk
from kafka_assets.decode.contract import Decoded, Reason
from kafka_assets.decode.decoder import JsonValues, decoder
from kafka_assets.decode.tombstones import Tombstones
from kafka_assets.schema import declared
from kafka_assets_tests.corpus import json_mutants, numbers, utf8
from kafka_assets_tests.corpus.json_mutants import mutants
from kafka_assets_tests.corpus.judge import judge

WIDE = (
    "i BIGINT, t TINYINT, d DECIMAL(12,2), e DECIMAL(38,18), z DECIMAL(5,0), f DOUBLE, g FLOAT, s STRING, b BOOLEAN, "
    "y BINARY, day DATE, at TIMESTAMP, n TIMESTAMP_NTZ, l ARRAY<BIGINT>, ls ARRAY<STRING>, "
    "st STRUCT<x: INT NOT NULL, y: STRING, d: DECIMAL(6,3)>"
)


def values(records: Sequence[bytes | None]) -> Any:
    return pa.array(records, pa.binary())


def exactly(decode: JsonValues, records: Sequence[bytes | None]) -> Decoded:
    """What comes of them one by one."""
    found = [decode.exact.read(one) for one in records]
    good = [one for one in found if not isinstance(one, Reason)]
    columns = [pa.array([row[at] for row in good], kind) for at, kind in enumerate(decode.schema.types)]
    bad = {at: one for at, one in enumerate(found) if isinstance(one, Reason)}
    return Decoded(pa.Table.from_arrays(columns, schema=decode.schema), bad)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return (type(one) is type(other) and one == other) or one == other


def check(schema: str, records: Sequence[bytes | None]) -> Decoded:
    """The judge, the bulk road and the exact one agree about these records."""
    fields = declared(schema, "json")
    decode = JsonValues(fields)
    found, alone = decode.read(values(records)), exactly(decode, records)
    assert found.rows.schema == decode.schema
    assert list(found.bad.items()) == list(alone.bad.items())
    rows, singly = iter(found.rows.to_pylist()), iter(alone.rows.to_pylist())
    for at, record in enumerate(records):
        wanted = judge(record, fields)
        if at in found.bad:
            assert wanted is None, (record, found.bad[at])
            continue
        row, single = next(rows), next(singly)
        assert same(list(row.values()), list(single.values())), (record, row, single)
        assert wanted is not None and same(list(row.values()), wanted), (record, row, wanted)
    assert next(rows, None) is None
    return found


def among_good(records: Sequence[bytes | None], good: Sequence[bytes], *, every: int = 7) -> list[bytes | None]:
    mixed: list[bytes | None] = []
    for at, one in enumerate(records):
        mixed += [good[(at + step) % len(good)] for step in range(every)]
        mixed.append(one)
    return mixed


GOOD = [b'{"id":%d,"note":"a","price":1.5,"x":[{"y":"z"}]}' % at for at in range(100)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_spoiled_records(seed: int) -> None:
    check(json_mutants.SCHEMA, mutants(2_000, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_spoiled_records_of_a_schema_that_is_read_in_bulk(seed: int) -> None:
    fields = {name: kind for name, kind in json_mutants.FIELDS.items() if not kind.startswith("MAP")}
    schema = ", ".join(f"{name} {kind}" for name, kind in fields.items())
    check(schema, among_good(mutants(1_000, seed=100 + seed), GOOD))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_numbers_in_every_way_they_are_written(seed: int) -> None:
    check(numbers.SCHEMA, numbers.number_records(2_000, seed=seed))
    check("n DECIMAL(12,2), l BIGINT, d DOUBLE, g FLOAT", among_good(numbers.number_records(500, seed=seed), GOOD))


@pytest.mark.slow
def test_text_that_is_utf8_and_text_that_nearly_is() -> None:
    bad = check(utf8.SCHEMA, utf8.utf8_records()).bad
    assert {one.code for one in bad.values()} == {"encoding", "not_json", "does_not_fit"}
    check("id BIGINT, note STRING, s STRUCT<x: STRING>", among_good(utf8.utf8_records(), GOOD, every=3))


@pytest.mark.slow
def test_floats_between_two_of_them() -> None:
    random = Random(5)
    records: list[bytes] = []
    for _ in range(2_000):
        single = pa.scalar(random.uniform(-1, 1) * 10.0 ** random.randint(-44, 38), pa.float32()).as_py()
        other = single * (1 + 2**-23)
        middle = (single + other) / 2
        records.append(b'{"f":%s,"d":%s}' % (repr(middle).encode(), repr(single).encode()))
        records.append(
            b'{"f":%s%s}'
            % (f"{middle:.30e}".encode().partition(b"e")[0], b"1e" + f"{middle:e}".encode().partition(b"e")[2])
        )
    check("f FLOAT, d DOUBLE", [one for one in records if b"nan" not in one and b"inf" not in one])


HOSTILE: list[bytes | None] = [
    None,
    b"",
    b" \n",
    b"null",
    b"[]",
    b"7",
    b'"a"',
    b"{",
    b"}",
    b"{}",
    b"{}{}",
    b'{"i":1}{"i":2}',
    b'{"i":1}} {"v":{"i":2}',
    b'{"i":1}}\n{"v":{"i":2}',
    b'{"i":1},"v":{"i":2}',
    b'{"i":1},{"i":2}',
    b'{"i":1}],"r":[{"i":8}',
    b'{"i":\n1\r}',
    b'{"s":"a\nb"}',
    b'{"s":"a\\nb"}',
    b'{"s":"a\0b"}',
    b'{"i":1}\0',
    b"\0",
    b'\xef\xbb\xbf{"i":1}',
    b'{"s":"\xff"}',
    b'{"q":"\xff"}',
    b'{"\xff":1}',
    b'{"s":"\xed\xa0\x80"}',
    b'{"s":"\\ud800"}',
    b'{"q":"\\ud800"}',
    b'{"\\ud800":1}',
    b'{"s":"\\ud83d\\ude00"}',
    b'{"i":1,"i":2}',
    b'{"i":1,"\\u0069":2}',
    b'{"i":null,"i":2}',
    b'{"q":1,"q":2}',
    b'{"st":{"x":1,"x":2}}',
    b'{"st":{"x":1,"q":1,"q":2}}',
    b'{"st":{}}',
    b'{"st":null}',
    b'{"st":{"x":null}}',
    b'{"st":{"x":1.0}}',
    b'{"st":{"x":1,"d":"1"}}',
    b'{"q":{"i":1,"i":1}}',
    b'{"i":NaN}',
    b'{"q":NaN}',
    b'{"q":[-Infinity]}',
    b'{"f":Infinity}',
    b'{"f":-Inf}',
    b'{"s":"NaN"}',
    b'{"s":"Infinity War"}',
    b'{"d":"1"}',
    b'{"\\u0064":"1"}',
    b'{"d":1.5e0}',
    b'{"d":1.000}',
    b'{"d":1.001}',
    b'{"d":10000000000}',
    b'{"d":9999999999.99}',
    b'{"e":1000000000000000000000000000000}',
    b'{"e":99999999999999999999.999999999999999999}',
    b'{"e":1e30}',
    b'{"e":18960114910927365649471927446130393088}',
    b'{"z":100000}',
    b'{"z":1e4}',
    b'{"z":99999}',
    b'{"i":9223372036854775807}',
    b'{"i":9223372036854775808}',
    b'{"i":1.0}',
    b'{"i":1e2}',
    b'{"i":1.5}',
    b'{"i":-0}',
    b'{"i":0e99999999999999999999}',
    b'{"i":1e99999999999999999999}',
    b'{"i":1e-99999999999999999999}',
    b'{"f":1e99999999999999999999}',
    b'{"f":1e-99999999999999999999}',
    b'{"f":1e400}',
    b'{"g":1e39}',
    b'{"g":1e400}',
    b'{"g":-1e309}',
    b'{"g":3.4028235e38}',
    b'{"g":3.4028236e38}',
    b'{"t":128}',
    b'{"t":-128}',
    b'{"t":1e2}',
    b'{"f":"1"}',
    b'{"f":-0.0}',
    b'{"f":-0}',
    b'{"b":1}',
    b'{"b":"true"}',
    b'{"y":"AQI="}',
    b'{"y":"AQI"}',
    b'{"day":"2023-02-29"}',
    b'{"day":"2024-02-29"}',
    b'{"day":"0000-01-01"}',
    b'{"day":"2024-02-29 "}',
    b'{"at":"2024-01-01T10:00"}',
    b'{"at":"2024-01-01T10:00Z"}',
    b'{"at":"2024-01-01 10:00+0530"}',
    b'{"at":"2024-01-01T10:00:00+05"}',
    b'{"at":"2024-01-01T10:00:60Z"}',
    b'{"at":"2024-01-01T24:00:00Z"}',
    b'{"at":"2024-02-30T10:00:00Z"}',
    b'{"at":"2024-01-01T10:00:00.1234567Z"}',
    b'{"at":"2024-01-01T10:00:00.123456000Z"}',
    b'{"at":"0001-01-01T00:00:00+01:00"}',
    b'{"at":"9999-12-31T23:59:59-01:00"}',
    b'{"at":1700000000}',
    b'{"at":"2024-01-01T00:00:00+18:01"}',
    b'{"at":"2024-01-01T00:00:00+18:00"}',
    b'{"at":"2024-01-01t00:00:00z"}',
    b'{"n":"2024-01-01T10:00:00Z"}',
    b'{"n":"2024-01-01T10:00"}',
    b'{"n":"2024-01-01"}',
    b'{"l":[1,null,2.0]}',
    b'{"l":["1"]}',
    b'{"l":{}}',
    b'{"ls":["a",1]}',
    b'{"ls":["\\udc00"]}',
    b'{"q":' + b"[" * 999 + b"]" * 999 + b"}",
    b'{"q":' + b"[" * 1_000 + b"]" * 1_000 + b"}",
    b'{"q":' + b'{"a":' * 700 + b"1" + b"}" * 700 + b"}",
    b'{"q":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    b'{"q":' + b"1" * 1_000 + b"}",
    b'{"q":' + b"1" * 1_001 + b"}",
    b'{"f":' + b"1" * 1_001 + b"}",
    b'{"i":0.' + b"0" * 999 + b"}",
    b'{"d":1.' + b"0" * 600 + b"}",
    b'{"q":"' + b"1" * 5_000 + b'"}',
    b'{"' + b"k" * 100_000 + b'":1}',
    b'{"s":"\xe2\x80\xa8"}',
    b'{"":1}',
    b'{"i":1,}',
    b"{'i':1}",
    b'{"i":01}',
    b'{"q":01}',
    b'{"q":1.}',
    b'{"q":+1}',
    b'{"q":tru}',
    b'{"i":1/*c*/}',
    b'{"s":"\\x"}',
    b'{"q":"\\x"}',
    b'{"q":"\\u12g4"}',
    b'{"ID":1}',
    b'{"more":[{}, {"i":"x"}]}',
]


@pytest.mark.slow
def test_hostile_records_alone_and_among_good_ones() -> None:
    check(WIDE, HOSTILE)
    plain = [b'{"i":%d,"s":"x","q":{"w":[1,2]}}' % at for at in range(50)]
    check(WIDE, among_good(HOSTILE, plain, every=70))
    check(WIDE, among_good([one for one in HOSTILE if one], plain, every=1))


@pytest.mark.parametrize("one", range(len(HOSTILE)))
def test_no_record_becomes_two_and_none_spoils_its_neighbours(one: int) -> None:
    fields = declared(WIDE, "json")
    plain = [b'{"i":%d}' % at for at in range(200)]
    found = JsonValues(fields).read(values([*plain[:100], HOSTILE[one], *plain[100:]]))
    ids = found.rows.column("i").to_pylist()
    there = judge(HOSTILE[one], fields)
    assert set(found.bad) == (set() if there else {100})
    assert ids == [*range(100), *([there[0]] if there else []), *range(100, 200)]


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each call of Arrow's reader was given."""
    given: list[int] = []
    read: Callable[..., Any] = json_bulk._read  # pyright: ignore[reportPrivateUsage]

    def counted(block: Any, schema: pa.Schema, count: int) -> Any:
        given.append(count)
        return read(block, schema, count)

    monkeypatch.setattr(json_bulk, "_read", counted)
    return given


def test_names_that_are_new_in_each_record_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = reads(monkeypatch)
    records = [b'{"id":1,"k%d":1,"o":{"n%d":[{"m%d":null}]}}' % (at, at, at) for at in range(20_000)]
    found = JsonValues(declared("id BIGINT", "json")).read(values(records))
    assert found.rows.num_rows == 20_000 and given == [10_000, 10_000]


def test_one_bad_record_costs_its_block_a_second_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    given = reads(monkeypatch)
    records = [b'{"id":%d,"x":[]}' % at for at in range(10_000)]
    records[7_000] = b'{"id":'
    found = JsonValues(declared("id BIGINT", "json")).read(values(records))
    assert list(found.bad) == [7_000] and given == [10_000, 7_000, 2_999]


def test_whole_numbers_that_are_written_as_others_write_them_are_read_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = JsonValues(declared("id BIGINT, price DECIMAL(12,2), d ARRAY<DECIMAL(5,1)>", "json"))
    monkeypatch.setattr(decode.exact, "read", lambda value: pytest.fail(f"one by one: {value!r}"))
    records = [b'{"id":%d.0,"price":1.5000e0,"d":[1,2.50]}' % at for at in range(1_000)]
    found = decode.read(values(records))
    assert found.rows.column("id").to_pylist() == list(range(1_000)) and not found.bad


@pytest.mark.parametrize("kind", ["DECIMAL(38,18)", "DECIMAL(30,10)", "DECIMAL(38,0)", "DECIMAL(38,38)"])
@pytest.mark.parametrize("token", ["0.1", "-0.5", "0", "-12345678.25", "1e-3"])
def test_decimals_of_many_digits_are_read_in_bulk(monkeypatch: pytest.MonkeyPatch, kind: str, token: str) -> None:
    decode = JsonValues(declared(f"d {kind}, l ARRAY<BIGINT>", "json"))
    records = [b'{"d":%s,"l":[%d]}' % (token.encode(), at) for at in range(100)]
    wanted = judge(records[0], declared(f"d {kind}", "json"))
    if wanted is not None:
        monkeypatch.setattr(decode.exact, "read", lambda value: pytest.fail(f"one by one: {value!r}"))
        assert decode.read(values(records)).rows.column("d").to_pylist() == wanted * 100
    else:
        assert len(decode.read(values(records)).bad) == 100


@pytest.mark.parametrize("text", ["2024-01-01T10:00", "2024-01-01 10:00:00+0000", "2024-01-01T10:00:00.000000000Z"])
def test_times_as_others_write_them_are_read_in_bulk(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    decode = JsonValues(declared("at TIMESTAMP", "json"))
    monkeypatch.setattr(decode.exact, "read", lambda value: pytest.fail(f"one by one: {value!r}"))
    found = decode.read(values([json.dumps({"at": text}).encode()] * 100))
    assert {str(at) for at in found.rows.column("at").to_pylist()} == {"2024-01-01 10:00:00+00:00"}


def test_a_batch_of_nothing_and_slices_of_batches() -> None:
    decode = JsonValues(declared("id BIGINT", "json"))
    assert decode.read(values([])).rows.num_rows == 0
    whole = values([b'{"id":%d}' % at for at in range(500)])
    assert decode.read(whole.slice(100, 300)).rows.column("id").to_pylist() == list(range(100, 400))


def test_big_records_are_read_in_blocks_that_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    given = reads(monkeypatch)
    monkeypatch.setattr(json_bulk, "BLOCK_BYTES", 100_000)
    records = [b'{"id":%d,"q":"%s"}' % (at, b"x" * (300_000 if at == 40 else 1_000)) for at in range(400)]
    found = JsonValues(declared("id BIGINT", "json")).read(values(records))
    assert found.rows.column("id").to_pylist() == list(range(400)) and max(given) <= 100


@pytest.mark.parametrize(("format", "kind"), [("string", "STRING"), ("bytes", "BINARY")])
def test_text_and_bytes_land_whole(format: str, kind: str) -> None:
    given = [b"a", None, b"\xff", b"", "é".encode()]
    found = decoder(declared(f"v {kind} NOT NULL", format), format).read(values(given))
    spoiled = [] if format == "bytes" else [2]
    assert list(found.bad) == [1, *spoiled]
    assert found.rows.num_rows == len(given) - len(found.bad)
    assert {one.code for one in found.bad.values()} == ({"missing"} if format == "bytes" else {"missing", "encoding"})


@pytest.mark.parametrize(
    ("record", "code", "words"),
    [
        (b'{"s":1}', "does_not_fit", "s: 1 does not fit STRING: it is a number, not a text in quotes"),
        (
            b'{"s":[1,"2",{"a":null}]}',
            "does_not_fit",
            's: [1,"2",{"a":null}] does not fit STRING: it is an array, not a text in quotes',
        ),
        (b'{"i":"0"}', "does_not_fit", 'i: "0" does not fit BIGINT: it is a text in quotes, not a number'),
        (b'{"i":true}', "does_not_fit", "i: true does not fit BIGINT: it is true or false, not a number"),
        (
            b'{"st":{"x":1,"d":"0"}}',
            "does_not_fit",
            'st.d: "0" does not fit DECIMAL(6,3): it is a text in quotes, not a number',
        ),
        (b'{"i":999.50}', "does_not_fit", "i: 999.50 does not fit BIGINT exactly"),
        (b'{"f":1e999999999}', "does_not_fit", "f: 1e999999999 does not fit DOUBLE exactly"),
        (b'{"st":{"x":1,"d":1.2345}}', "does_not_fit", "st.d: 1.2345 does not fit DECIMAL(6,3) exactly"),
        (b'{"st":{"y":"a"}}', "missing", "st.x: missing or null, and declared NOT NULL"),
        (b'{"ls":["a",7]}', "does_not_fit", "ls[1]: 7 does not fit STRING: it is a number, not a text in quotes"),
        (b'{"i":1', "not_json", "the value is not valid JSON (character 6: expecting ',' delimiter)"),
        (
            b'{"s":"' + b"x" * 100 + b'","i":"' + b"y" * 100 + b'"}',
            "does_not_fit",
            'i: "' + "y" * 59 + "… does not fit BIGINT: it is a text in quotes, not a number",
        ),
        (b'{"q":' + b"[" * 2000 + b"]" * 2000 + b"}", "not_json", "the value is nested more than 1,000 deep"),
        (b'{"i":1,"i":2}', "duplicate_key", 'the key "i" stands twice in one object'),
        (b'{"s":"\\ud800"}', "encoding", "s: the text holds half of a surrogate pair (\\ud800 to \\udfff)"),
    ],
)
def test_a_reason_shows_what_is_wrong_as_it_was_written(record: bytes, code: str, words: str) -> None:
    [found] = JsonValues(declared(WIDE, "json")).read(values([record])).bad.values()
    assert (found.code, found.words) == (code, words)


def test_a_key_past_all_bounds_deletes_nothing_under_its_whole_text() -> None:
    tombstones = Tombstones(pa.schema([pa.field("id", pa.string(), nullable=False)]), ["id"])
    deep = b'{"id": "x", "z": ' + b"[" * 1_500 + b"]" * 1_500 + b"}"
    digits = b"7" * 2_000
    told, refused = tombstones.read(pa.array([deep, digits, b"{no object", b'{"id": "x"}'], pa.binary()))
    assert told.column("id").to_pylist() == ["7" * 2_000, "{no object", "x"]
    assert [one.code for one in refused.values()] == ["tombstone_key"]
    assert "nested more than 1,000 deep" in refused[0].words
