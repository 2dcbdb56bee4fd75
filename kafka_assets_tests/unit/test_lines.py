"""A line is a record, or says why it is none: no broker."""

from __future__ import annotations

import json

import pytest

from kafka_assets.broker.lines import Parts, json_line, plain
from kafka_assets.errors import RecordRefused


def test_a_plain_line_is_the_value_as_it_is() -> None:
    assert plain(None)(b"\xff,not text", "f:1") == Parts(b"\xff,not text")
    assert plain(None)(b"", "f:1") == Parts(b"")


def test_what_stands_before_the_first_separator_is_the_key() -> None:
    assert plain("::")(b"a::b::c", "f:1") == Parts(b"b::c", b"a")
    assert plain("\t")(b"\tv", "f:1") == Parts(b"v", b"")
    with pytest.raises(RecordRefused, match="f:7 has no key"):
        plain(":")(b"nothing", "f:7")


def test_a_json_line_says_all_parts() -> None:
    line = {
        "value": {"id": 7, "name": "Zoë"},
        "key": "k",
        "headers": {"trace": "1", "raw": {"base64": "AP8="}, "none": None},
        "timestamp": 1_700_000_000_123,
        "partition": 3,
    }
    assert json_line(json.dumps(line).encode(), "f:1") == Parts(
        b'{"id": 7, "name": "Zo\\u00eb"}',
        b"k",
        (("trace", b"1"), ("raw", b"\x00\xff"), ("none", None)),
        1_700_000_000_123,
        3,
    )
    assert json_line(b"{}", "f:1") == Parts(None)
    assert json_line(b'{"value": null}', "f:1") == Parts(None)
    assert json_line(b'{"value": "", "key": 12}', "f:1") == Parts(b"", b"12")
    twice = b'{"headers": [["a", "1"], ["a", "2"]]}'
    assert json_line(twice, "f:1").headers == (("a", b"1"), ("a", b"2"))
    assert json_line(b'\xef\xbb\xbf{"key": "after a byte order mark"}', "f:1").key == b"after a byte order mark"


@pytest.mark.parametrize(
    "text",
    [
        '{"a":12345678901234567.89}',
        "1e999",
        "0.10",
        '{"a": 1, "a": 2}',
        '[ {"b" :"\\u00e9\\ud83d\\ude00 \\/"},"Zoë",-0.0 ]',
        '{"base64": "AP8=", "more": 1}',
        "false",
    ],
)
def test_json_is_written_byte_for_byte_as_it_stands_in_the_line(text: str) -> None:
    line = f' {{ "key" : {text} , "value": {text}, "headers": {{"h": {text}}} }} '
    record = json_line(line.encode(), "f:1")
    assert (record.key, record.value, record.headers) == (text.encode(), text.encode(), (("h", text.encode()),))
    assert json_line(f'{{"headers": [["h", {text}]]}}'.encode(), "f:1").headers == (("h", text.encode()),)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "Expecting value"),
        (b"[]", "no JSON object"),
        (b'{"value": 1', "delimiter"),
        (b'{"value": NaN}', "NaN is not JSON"),
        (b'{"vaule": 1}', "'vaule'"),
        (b'{"partition": "1"}', "partition is a whole number"),
        (b'{"partition": true}', "partition is a whole number"),
        (b'{"timestamp": 1.5}', "timestamp is a whole number"),
        (b'{"headers": "a"}', "headers is an object"),
        (b'{"headers": [["a"]]}', "headers is an object"),
        (b'{"headers": [[1, "a"]]}', "headers is an object"),
        (b'{"value": {"base64": "%"}}', "base64"),
        (b'{"value": "\\ud800"}', "surrogates not allowed"),
        (b'{"value": {"a": "\\ud800"}}', "surrogates not allowed"),
        (b'{"headers": {"\\ud800": "x"}}', "surrogates not allowed"),
        (b'{"value": 1, "value": 2}', "'value' comes twice"),
        (b'{"headers": {"a": "1", "a": "2"}}', "'a' comes twice"),
        (b'{"headers": [["a", "b", "c"]]}', "headers is an object"),
        (b'{"headers": [{"a": "b"}]}', "headers is an object"),
        (b'{"headers": 1}', "headers is an object"),
        (b"\xff", "utf-8"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_record_says_where_and_why(line: bytes, why: str) -> None:
    with pytest.raises(RecordRefused, match=r"orders\.jsonl:12 is no record") as raised:
        json_line(line, "orders.jsonl:12")
    assert why in raised.value.why
