"""Whole records of format json, for the schema below: what must land, or a part of the reason why it must not."""

from __future__ import annotations

from typing import Any

from kafka_assets_tests.corpus.json_values import Bad

SCHEMA = "id BIGINT, note STRING"

_NOT_AN_OBJECT, _FOLLOWS, _NOT_JSON = Bad("not a JSON object"), Bad("follows the JSON object"), Bad("not valid JSON")
_UTF8 = Bad("not valid UTF-8")

RECORDS: list[tuple[bytes | None, Any]] = [
    (b'{"id":7,"note":"a"}', (7, "a")),
    (b' {"id" : 7 ,\r\n\t"note":"a"} \n', (7, "a")),
    (b'{"note":"a","id":7}', (7, "a")),
    (b'{"id":7,"note":"a","more":{"id":8,"note":[1,2]}}', (7, "a")),
    (b'{"\\u0069d":7}', (7, None)),
    (b"{}", (None, None)),
    (b'{"ID":7,"Note":"a"}', (None, None)),
    (b'{"id":null,"note":null}', (None, None)),
    (b'{"":1}', (None, None)),
    (b'{"_kafka_broken":"x","id":7}', (7, None)),
    (b'{"id":7,"note":"' + b"x" * 10_000_000 + b'"}', (7, "x" * 10_000_000)),
    (b'{"id":7,"deep":' + b"[" * 900 + b"]" * 900 + b"}", (7, None)),
    (b'{"id":7,"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}", Bad("nested more than 1,000 deep")),
    (b'{"id":' + b"1" * 5000 + b"}", Bad("more than 1,000 digits")),
    (None, Bad("tombstone")),
    (b"", Bad("empty")),
    (b" \n", Bad("white space")),
    (b"\xef\xbb\xbf" + b'{"id":7}', Bad("byte order mark")),
    (b"null", _NOT_AN_OBJECT),
    (b"7", _NOT_AN_OBJECT),
    (b'"a"', _NOT_AN_OBJECT),
    (b'[{"id":7}]', _NOT_AN_OBJECT),
    (b"[]", _NOT_AN_OBJECT),
    (b"hello", _NOT_JSON),
    (b"\0", _NOT_JSON),
    (b'\0\0\0\0\1{"id":7}', _NOT_JSON),
    (b'{"id":7', _NOT_JSON),
    (b'{"id":7,}', _NOT_JSON),
    (b'{"id":7 "note":"a"}', _NOT_JSON),
    (b"{id:7}", _NOT_JSON),
    (b"{'id':7}", _NOT_JSON),
    (b'{"id":7/*c*/}', _NOT_JSON),
    (b'{"id":7}\0', _FOLLOWS),
    (b'{"id":7} x', _FOLLOWS),
    (b'{"id":7}}', _FOLLOWS),
    (b'{"id":7}]', _FOLLOWS),
    (b'{"id":7}//c', _FOLLOWS),
    (b'{"id":7}{"id":8}', _FOLLOWS),
    (b'{"id":7}\n{"id":8}', _FOLLOWS),
    (b'{"id":7},{"id":8}', _FOLLOWS),
    (b'{"id":7},{}', _FOLLOWS),
    (b'{"id":7}{}', _FOLLOWS),
    (b'{"id":7}],"r":[{"id":8}', _FOLLOWS),
    (b'{"id":7}},{"a":{"b":1}', _FOLLOWS),
    (b'{"id":7,"id":8}', Bad("twice")),
    (b'{"id":7,"id":7}', Bad("twice")),
    (b'{"id":7,"id":null}', Bad("twice")),
    (b'{"id":null,"id":7}', Bad("twice")),
    (b'{"id":7,"\\u0069d":8}', Bad("twice")),
    (b'{"id":7,"more":{"a":1,"a":2}}', (7, None)),
    (b'{"id":7,"note":"\xff"}', _UTF8),
    (b'{"id":7,"note":"\xc3"}', _UTF8),
    (b'{"id":7,"note":"\xc0\x80"}', _UTF8),
    (b'{"id":7,"note":"\xed\xa0\x80"}', _UTF8),
    (b'{"id":7,"note":"\xf4\x90\x80\x80"}', _UTF8),
    (b'{"id":7,"a":"\xff"}', _UTF8),
    (b'{"id":7,"\xff":1}', _UTF8),
    ('{"id":7}'.encode("utf-16"), _UTF8),
    ('{"id":7}'.encode("utf-16-le"), _NOT_JSON),
    (b'{"id":7,"note":"\\ud800"}', Bad("half of a surrogate pair")),
    (b'{"id":7,"\\ud800":1}', (7, None)),
    (b'{"id":7,"more":"\\udfff"}', (7, None)),
]
