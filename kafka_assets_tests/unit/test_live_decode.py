"""Records become rows without Spark: each value exactly, or the record is bad with its reason; all roads agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kafka_assets.decode import json_bulk
from kafka_assets.decode.contract import Decoded, Reason
from kafka_assets.decode.decoder import JsonValues
from kafka_assets.decode.json_exact import ExactJson
from kafka_assets.errors import StreamError
from kafka_assets.live.batch import Batch
from kafka_assets.live.decode import Decoder
from kafka_assets.schema import declared, landed_schema
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.corpus.dress import WAYS, record
from kafka_assets_tests.corpus.json_mutants import SCHEMA as FUZZED
from kafka_assets_tests.corpus.json_mutants import mutants
from kafka_assets_tests.corpus.json_records import RECORDS
from kafka_assets_tests.corpus.json_records import SCHEMA as RECORD_SCHEMA
from kafka_assets_tests.corpus.json_rules import Rule, made_of
from kafka_assets_tests.corpus.json_rules import cases as rules
from kafka_assets_tests.corpus.json_values import CASES, SCHEMA, Bad, Case
from kafka_assets_tests.corpus.live import AT_MS, batch
from kafka_assets_tests.corpus.numbers import SCHEMA as NUMBERS
from kafka_assets_tests.corpus.numbers import number_records

GOOD = b'{"id":7,"note":"a"}'


def _stream(schema: str, **attributes: Any) -> Stream:
    return declare(name="orders", topic="orders", target="orders", schema=schema, **attributes)


def _exact(schema: str, values: list[bytes]) -> list[dict[str, Any] | str]:
    """Each record's values by name as Arrow gives them back, or why it is bad."""
    fields = declared(schema, "json")
    reader, kinds = ExactJson(fields), landed_schema(fields)
    found = [reader.read(value) for value in values]
    good = [one for one in found if not isinstance(one, Reason)]
    columns = [pa.array([row[at] for row in good], kind) for at, kind in enumerate(kinds.types)]
    rows = iter(pa.Table.from_arrays(columns, schema=kinds).to_pylist())
    return [one.words if isinstance(one, Reason) else next(rows) for one in found]


def _in_bulk(schema: str, values: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], int]:
    """The same by the bulk road, which is asked for each record by itself where it must; and how many it took."""
    monkeypatch.setattr(json_bulk, "FEW", 1)
    monkeypatch.setattr(json_bulk, "SOUR", 2)
    monkeypatch.setattr(json_bulk, "STUMBLES", 10_000)
    fields = declared(schema, "json")
    reader = JsonValues(fields)
    left = _left(reader, values)
    columns = _read(reader, values)
    rows = iter(columns.rows.to_pylist())
    found = [columns.bad[at].words if at in columns.bad else next(rows) for at in range(len(values))]
    return found, len(values) - len(left)


def _read(reader: JsonValues, values: Sequence[bytes | None]) -> Decoded:
    return reader.read(pa.array(values, pa.binary()))


def _left(reader: JsonValues, values: Sequence[bytes | None]) -> list[int]:
    """The places of the records that are not read in bulk."""
    return reader.bulk.read(pa.array(values, pa.binary())).exact


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return found == expected and math.copysign(1, found) == math.copysign(1, expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(_same(found[name], expected[name]) for name in expected)
    return type(found) is type(expected) and found == expected


def _complaint(found: dict[str, Any] | str, case: Case) -> str | None:
    if isinstance(case.expected, Bad):
        if not isinstance(found, str):
            return f"landed {found[case.column]!r}"
        named = case.expected.reason != "does not fit" or found.startswith(case.column)
        return None if case.expected.reason in found and named else f"bad for another reason: {found}"
    if isinstance(found, str):
        return f"bad: {found}"
    return None if _same(found[case.column], case.expected) else f"landed {found[case.column]!r}"


@pytest.mark.parametrize("rule", rules())
def test_a_value_lands_when_it_fits_exactly_however_it_is_spelt(rule: Rule) -> None:
    # So many that they are read in bulk where that can be, and one by itself.
    for count in (json_bulk.FEW, 1):
        rows = _read(JsonValues(declared(rule.schema, "json")), [rule.record] * count).rows.to_pylist()
        assert made_of(rows, rule) == rule.expected
        assert len(rows) in (0, count)


@pytest.mark.parametrize("way", WAYS)
def test_a_value_lands_exactly_or_is_bad_with_its_reason(way: str) -> None:
    found = _exact(SCHEMA, [record(case.column, case.token, way=way) for case in CASES])
    wrong = [
        f"{case.type} {case.token[:80]}: expected {case.expected!r}, {complaint}"
        for case, one in zip(CASES, found, strict=True)
        if (complaint := _complaint(one, case))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("number", range(len(RECORDS)), ids=lambda n: repr(RECORDS[n][0])[:60])
def test_a_record_is_one_json_object_or_bad(number: int) -> None:
    value, expected = RECORDS[number]
    columns = _read(JsonValues(declared(RECORD_SCHEMA, "json")), [value])
    if isinstance(expected, Bad):
        assert expected.reason in columns.bad[0].words
    else:
        assert [tuple(row.values()) for row in columns.rows.to_pylist()] == [expected]


def test_the_bulk_road_gives_what_the_exact_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = _bulky(FUZZED)
    values = mutants(120, seed=1)
    found, taken = _in_bulk(schema, list(values), monkeypatch)
    assert all(map(_same, found, _exact(schema, values)))
    assert taken > 12


def test_numbers_written_in_all_ways_are_one_number_by_both_roads(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [*number_records(150, seed=3), b'{"ds":[-0.0,0.0,-0]}', b'{"ds":[0e5]}', b'{"d":-0.0}', b'{"d":-0}']
    found, taken = _in_bulk(NUMBERS, list(values), monkeypatch)
    assert all(map(_same, found, _exact(NUMBERS, values)))
    assert taken > 5


@pytest.mark.parametrize(
    ("schema", "shape"),
    [
        ("v TINYINT", '{"v":%s}'),
        ("v BIGINT", '{"v":%s}'),
        ("v DECIMAL(38,18)", '{"v":%s}'),
        ("v DECIMAL(38,38)", '{"v":%s}'),
        ("v DECIMAL(30,9)", '{"v":%s}'),
        ("v DECIMAL(5,0)", '{"v":%s}'),
        ("v ARRAY<INT>", '{"v":[%s]}'),
        ("v STRUCT<v: DECIMAL(38,18)>", '{"v":{"v":%s}}'),
        ("v ARRAY<STRUCT<v: DECIMAL(37,2)>>", '{"v":[{"v":1},{"v":%s}]}'),
    ],
)
def test_a_number_past_its_type_does_not_come_round_to_another(
    monkeypatch: pytest.MonkeyPatch, schema: str, shape: str
) -> None:
    edges = [2**bits for bits in (7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255)] + [10**zeros for zeros in range(42)]
    round_again = [2**128 // 10**scale for scale in range(39)]
    numbers = [edge + more for edge in [*edges, *round_again] for more in (-1, 0, 1)]
    tokens = [*map(str, numbers), *(f"-{number}" for number in numbers), *(f"{number}.5" for number in numbers)]
    values = [(shape % token).encode() for token in tokens]
    found, _ = _in_bulk(schema, list(values), monkeypatch)
    expected = _exact(schema, values)
    assert {at: one for at, one, other in zip(tokens, found, expected, strict=True) if not _same(one, other)} == {}
    assert any(not isinstance(one, str) for one in expected)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_bulk_road_gives_the_values_of_the_corpus(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    cases = [case for case in CASES if not case.type.startswith(("MAP", "ARRAY<DECIMAL"))]
    values = [record(case.column, case.token, way=way) for case in cases]
    found, taken = _in_bulk(_bulky(SCHEMA), list(values), monkeypatch)
    wrong = [(case, one) for case, one in zip(cases, found, strict=True) if _complaint(one, case)]
    assert not wrong
    # In the way "crowded" an undeclared array holds numbers and texts, of which Arrow has no type.
    assert taken > (0 if way == "crowded" else 100) - 1


def _bulky(schema: str) -> str:
    """Without the types that are not read in bulk."""
    return ", ".join(
        f"{field.name} {_ddl(field.type)}"
        for field in declared(schema, "json")
        if not pa.types.is_map(field.type) and field.type != pa.list_(pa.decimal128(5, 2))
    )


def _ddl(kind: Any) -> str:
    if pa.types.is_struct(kind):
        inner = (f"{one.name}: {_ddl(one.type)}{'' if one.nullable else ' NOT NULL'}" for one in kind)
        return f"STRUCT<{', '.join(inner)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_ddl(kind.value_type)}>"
    from kafka_assets.schema import spelled

    return spelled(kind)


@pytest.mark.parametrize("opened", [b"[", b'{"id":'])
def test_no_depth_ends_the_reading(opened: bytes) -> None:
    closed = b"]" if opened == b"[" else b"}"
    deep = [opened * depth + b"1" + closed * depth for depth in (40, 300, 700, 996, 1000)]
    values: list[bytes | None] = [GOOD] * 200
    values[100:105] = [b'{"id":8,"z":' + one + b"}" for one in deep]
    values[150:155] = [b'{"note":' + one + b"}" for one in deep]
    found = _read(JsonValues(declared(RECORD_SCHEMA, "json")), values)
    assert found.rows.column("id").to_pylist() == [7] * 100 + [8] * 4 + [7] * 90
    assert set(found.bad) == {104, *range(150, 155)}
    assert " does not fit STRING: it is an" in found.bad[153].words


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("INT", "999.5", "999.5"),
        ("DOUBLE", "1e400", "1e400"),
        ("DOUBLE", "1e999999999", "1e999999999"),
        ("DECIMAL(5,2)", "9.6E-05", "9.6E-05"),
        ("DECIMAL(5,2)", "1E-999999999", "1E-999999999"),
        ("DECIMAL(5,2)", '"1.5"', '"1.5"'),
        ("STRING", "[1]", "[1]"),
        ("STRING", '{"plan": "pro", "seats":3}', '{"plan":"pro","seats":3}'),
        ("STRING", '[1.50,"a",null,true,{}]', '[1.50,"a",null,true,{}]'),
        ("BIGINT", "[1,2,[3,4]]", "[1,2,[3,4]]"),
        ("BIGINT", f'["{"x" * 70}"]', f'["{"x" * 58}…'),
        ("BIGINT", f'"{"x" * 70}"', f'"{"x" * 59}…'),
        ("STRING", "7" * 70, "7" * 60 + "…"),
    ],
)
def test_a_reason_shows_the_value_as_its_record_has_it(kind: str, given: str, said: str) -> None:
    [found] = _exact(f"v {kind}", [f'{{"v":{given}}}'.encode()])
    assert found.startswith(f"v: {said} does not fit {kind}")


def test_one_bad_record_costs_only_its_neighbours_a_second_look() -> None:
    values: list[bytes | None] = [b'{"id":%d,"note":"a"}' % number for number in range(5_000)]
    values[1234] = b'{"id":1234,"note":"a}'
    values[4999] = None
    reader = JsonValues(declared(RECORD_SCHEMA, "json"))
    left = _left(reader, values)
    assert {1234, 4999} <= set(left)
    assert len(left) <= json_bulk.FEW + 1
    found = _read(reader, values)
    assert set(found.bad) == {1234, 4999}
    assert found.rows.column("id").to_pylist() == [at for at in range(5_000) if at not in (1234, 4999)]


@pytest.mark.parametrize(
    "line",
    [b'{"id":7} null{"id":8}', b'{"id":7}{"id":8}', b'{"id":7}\0', b'{"id":7}\n{"id":8}', b'{"id":[{}\n{}]}', b"null"],
)
def test_no_record_becomes_two_and_none_ends_the_rest(line: bytes) -> None:
    values: list[bytes | None] = [GOOD] * 200
    values[100] = line
    values[150] = b" "
    found = _read(JsonValues(declared(RECORD_SCHEMA, "json")), values)
    assert set(found.bad) == {100, 150}
    assert found.rows.num_rows == 198


def test_records_written_over_several_lines_are_read_in_bulk() -> None:
    reader = JsonValues(declared(RECORD_SCHEMA, "json"))
    values = [b'\n{\n  "id": 7,\r\n  "note": "a"\n}\n\t'] * 100
    assert _left(reader, values) == []
    assert _read(reader, values).rows.to_pylist() == [{"id": 7, "note": "a"}] * 100


@pytest.mark.parametrize("text", [b"Info", b"Infinity War", b"NaN", b"a Name", b"In, Na", b"n,NaNo"])
@pytest.mark.parametrize("parsed", [False, True])
def test_a_text_that_looks_like_a_number_that_json_has_not_costs_its_neighbours_nothing(
    text: bytes, parsed: bool
) -> None:
    reader = JsonValues(declared(RECORD_SCHEMA, "json"))
    values: list[bytes | None] = [b'{"id":7,%s"note":"%s"}' % (b'"x":[],' * parsed, text)] * 100
    assert len(_left(reader, values)) == (100 if parsed and text == b"n,NaNo" else 0)
    assert _read(reader, values).rows.to_pylist() == [{"id": 7, "note": text.decode()}] * 100
    for spoiled in (b'{"id":7,"z":NaN}', b'{"id":7,"z":[1,\tInfinity]}', b'{"id":7,"z":-Inf}', b"NaN"):
        for at in (0, 50, 99):
            found = _read(reader, [*values[:at], spoiled, *values[at + 1 :]])
            assert list(found.bad) == [at]


def test_streams_of_what_arrow_cannot_read_are_not_tried_for_ever() -> None:
    reader = JsonValues(declared(RECORD_SCHEMA, "json"))
    broken: list[bytes | None] = [b"{"] * 200
    for _ in range(json_bulk.PAUSE + 1):
        assert len(_left(reader, broken)) == 200
    assert _left(reader, [GOOD] * 200) == []


KEY = SliceKey("orders", 1, 3, 10, 20)


def test_a_chunk_counts_what_is_there_and_carries_the_bytes_of_what_is_bad() -> None:
    records = Batch()
    for part in (
        batch([None], [GOOD], first=11, stamps=[(1, 5)], headers=None),
        batch([b"k"], [b"hello"], first=13, stamps=[(2, 3)], headers=[("h", None)]),
        batch([b"k2"], [b'{"id":8}'], first=14, stamps=[(1, 9)], headers=None),
    ):
        records.add(*part.parts)
    chunk = Decoder(_stream(RECORD_SCHEMA)).chunk({KEY: records})
    assert chunk.rows.to_pylist() == [
        {"id": 7, "note": "a", "kafka_partition": 3, "kafka_offset": 11},
        {"id": 8, "note": None, "kafka_partition": 3, "kafka_offset": 14},
    ]
    [bad] = chunk.bad
    assert (bad.partition, bad.offset, bad.key, bad.value, bad.headers, bad.timestamp) == (
        3, 13, b"k", b"hello", (("h", None),), 3
    )  # fmt: skip
    assert bad.reason == "the value is not valid JSON (character 0: expecting value)"
    seen = chunk.seen[KEY]
    assert (seen.read, seen.bad, seen.bytes_read, seen.first_timestamp, seen.last_timestamp) == (3, 1, 35, 3, 9)


def test_partitions_are_decoded_together_and_counted_apart() -> None:
    other = SliceKey("orders", 1, 4, 0, 9)
    chunk = Decoder(_stream(RECORD_SCHEMA)).chunk(
        {KEY: batch([None] * 2, [GOOD, b"x"], first=10), other: batch([b"k"], [b"y"], first=7, partition=4)}
    )
    assert [(row["kafka_partition"], row["kafka_offset"]) for row in chunk.rows.to_pylist()] == [(3, 10)]
    assert [(one.partition, one.offset, one.value) for one in chunk.bad] == [(3, 11, b"x"), (4, 7, b"y")]
    assert [(chunk.seen[key].read, chunk.seen[key].bad) for key in (KEY, other)] == [(2, 1), (1, 1)]


def test_a_batch_of_nothing_but_control_records_is_a_chunk_without_rows() -> None:
    decoder = Decoder(_stream(RECORD_SCHEMA))
    chunk = decoder.chunk({KEY: Batch()})
    assert chunk.rows.schema == decoder.schema
    assert (chunk.rows.num_rows, chunk.seen[KEY].read, chunk.seen[KEY].first_timestamp) == (0, 0, None)


def test_a_transform_sees_what_the_record_carries() -> None:
    def with_key(rows: pa.Table) -> pa.Table:
        assert rows.column_names[2:] == [
            "kafka_key", "kafka_timestamp", "kafka_timestamp_type", "kafka_headers", "kafka_partition", "kafka_offset"
        ]  # fmt: skip
        for row in rows.to_pylist():
            assert row["kafka_headers"] == [{"key": "trace", "value": b"\xff"}, {"key": "none", "value": None}]
            assert (row["kafka_key"], row["kafka_timestamp"].timestamp() * 1000) == (b"key", AT_MS)
        return rows.append_column("who", rows.column("kafka_key"))

    decoder = Decoder(_stream(RECORD_SCHEMA), with_key)
    [row] = decoder.chunk({KEY: batch([b"key"], [GOOD], first=10)}).rows.to_pylist()
    assert row == {"id": 7, "note": "a", "kafka_partition": 3, "kafka_offset": 10, "who": b"key"}


def test_tombstones_delete_the_key_that_they_tell() -> None:
    keys = [b"7", b'{"id":8,"more":1}', b" 9 ", None, b"\xff", b"x", b'{"id":null}', b'"7"']
    chunk = Decoder(_stream(RECORD_SCHEMA, mode="upsert", key=["id"])).chunk({KEY: batch(keys, [None] * 8, first=10)})
    assert chunk.deletes is not None
    assert [row["id"] for row in chunk.deletes.to_pylist()] == [7, 8, 9]
    assert (chunk.seen[KEY].deleted, chunk.seen[KEY].bad, chunk.rows.num_rows) == (3, 5, 0)
    assert [one.offset for one in chunk.bad] == [13, 14, 15, 16, 17]
    assert chunk.bad[0].reason == "a tombstone without a key"
    assert all("does not tell what it deletes" in one.reason for one in chunk.bad[1:])


def test_rows_without_their_key_or_order_are_bad() -> None:
    stream = _stream("id BIGINT, n INT", mode="upsert", key=["id"], order_by="n")
    values = [b'{"id":1,"n":2}', b'{"n":2}', b'{"id":1}', b"{}", b"no"]
    chunk = Decoder(stream).chunk({KEY: batch([b'{"id":1,"n":3}'] * 6, [*values, None], first=10)})
    assert [row["kafka_offset"] for row in chunk.rows.to_pylist()] == [10]
    said = {one.offset: one.reason for one in chunk.bad}
    assert said[11] == "the row has no value in id, its key or order"
    assert said[13] == "the row has no value in id, n, its key or order"
    assert sorted(said) == [11, 12, 13, 14]
    assert chunk.deletes is not None
    assert chunk.deletes.to_pylist() == [{"id": 1, "n": 3, "kafka_partition": 3, "kafka_offset": 15}]


def test_the_record_s_own_key_can_be_the_key() -> None:
    stream = _stream(RECORD_SCHEMA, mode="upsert", key=["kafka_key"], order_by="kafka_timestamp")
    chunk = Decoder(stream).chunk({KEY: batch([b"a", b"\xff", None], [GOOD, None, GOOD], first=10)})
    assert chunk.rows.column_names == [
        "id", "note", "kafka_key", "kafka_timestamp", "kafka_partition", "kafka_offset"
    ]  # fmt: skip
    assert [row["kafka_key"] for row in chunk.rows.to_pylist()] == [b"a"]
    assert chunk.deletes is not None
    assert [row["kafka_key"] for row in chunk.deletes.to_pylist()] == [b"\xff"]
    assert [one.offset for one in chunk.bad] == [12]


def test_text_and_bytes_land_whole() -> None:
    values: list[bytes | None] = [b"a", b"", None, "é😀\0".encode(), b"\xff"]
    chunk = Decoder(_stream("line STRING", format="string")).chunk({KEY: batch([None] * 5, values, first=10)})
    assert chunk.rows.column("line").to_pylist() == ["a", "", None, "é😀\0"]
    assert [(one.offset, one.reason) for one in chunk.bad] == [(14, "line: the value is not valid UTF-8")]
    chunk = Decoder(_stream("body BINARY NOT NULL", format="bytes")).chunk({KEY: batch([None] * 5, values, first=10)})
    assert chunk.rows.column("body").to_pylist() == [value for value in values if value is not None]
    assert chunk.bad[0].reason == "body: the value is null (a tombstone), and declared NOT NULL"


@pytest.mark.parametrize("untyped", [[], [[]], [{"x": []}]], ids=["null", "list", "nested"])
def test_an_arrow_function_whose_column_has_no_type_on_an_empty_table_is_refused(untyped: list[Any]) -> None:
    def priced(records: pa.Table) -> pa.Table:
        values = pa.array(untyped) if untyped else pa.array([float(x) for x in records["note"].to_pylist()])
        return records.append_column("price", values.slice(0, 0))

    def typed(records: pa.Table) -> pa.Table:
        return records.append_column("price", pa.array([float(x) for x in records["note"].to_pylist()], pa.float64()))

    with pytest.raises(StreamError, match=r"column 'price' no type .*empty table first.*pa\.float64"):
        Decoder(_stream("id BIGINT, note STRING"), priced)
    assert Decoder(_stream("id BIGINT, note STRING"), typed).schema.field("price").type == pa.float64()


def test_a_slice_scope_is_refused() -> None:
    with pytest.raises(StreamError, match="whole slices"):
        Decoder(_stream(RECORD_SCHEMA, scope="slice"))


def test_a_timestamp_that_is_none_is_null_and_deletes_nothing_that_is_ordered_by_it() -> None:
    stamps = [(1, 5), (0, 0), (1, -1), (1, -(2**63)), (1, 2**63 - 1), (1, 253_402_300_800_000)]

    def taken(value: bytes | None) -> Batch:
        return batch([b'{"id":1}'] * 6, [value] * 6, first=10, stamps=stamps)

    stream = _stream(RECORD_SCHEMA, mode="upsert", key=["id"], order_by="kafka_timestamp")
    for value in (b'{"id":1}', b'{"note":"no key"}', None):
        chunk = Decoder(stream).chunk({KEY: taken(value)})
        told = chunk.deletes if value is None else chunk.rows
        assert told is not None
        landed = [] if value == b'{"note":"no key"}' else [10, 15]
        assert told.column("kafka_offset").to_pylist() == landed
        assert sorted(one.offset for one in chunk.bad) == [at for at in range(10, 16) if at not in landed]
        seen = chunk.seen[KEY]
        assert (seen.first_timestamp, seen.last_timestamp) == (5, 253_402_300_800_000)
        for one in chunk.bad:
            assert one.timestamp == {10: 5, 15: 253_402_300_800_000}.get(one.offset)


def test_a_key_that_is_no_text_deletes_no_other_key() -> None:
    keys = [b"caf\xe9", b"caf\xea", b"\xed\xa0\x80", b'{"note":"caf\xe9"}', "caf\ufffd".encode(), b'{"note":1e400}']
    stream = _stream(RECORD_SCHEMA, mode="upsert", key=["note"])
    chunk = Decoder(stream).chunk({KEY: batch(keys, [None] * len(keys), first=10)})
    assert chunk.deletes is not None
    assert chunk.deletes.column("note").to_pylist() == ["caf\ufffd"]
    assert sorted(one.offset for one in chunk.bad) == [10, 11, 12, 13, 15]
    assert all("does not tell what it deletes: it is not valid UTF-8" in one.reason for one in chunk.bad[:4])
