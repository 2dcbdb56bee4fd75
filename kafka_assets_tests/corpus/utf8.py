"""Bytes that are UTF-8 and bytes that nearly are, in every place of a record in which a text may stand.

The boundaries of each length, overlong forms, halves of surrogate pairs, what lies past the last character, sequences
that are cut or continue nothing; and escapes of the same.
"""

from __future__ import annotations

SCHEMA = "id BIGINT, note STRING, tags ARRAY<STRING>, m MAP<STRING,STRING>, s STRUCT<x: STRING>, body BINARY"

_GOOD = [chr(code).encode() for code in (
    0x20, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xCFFF, 0xD000, 0xD7FF, 0xE000, 0xFDD0, 0xFEFF, 0xFFFD, 0xFFFE,
    0xFFFF, 0x10000, 0x1F600, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFF, 0x2028, 0x200D, 0x0301, 0x85, 0xA0,
)]  # fmt: skip
_OVERLONG = [
    b"\xc0\x80", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x80\xaf", b"\xe0\x9f\xbf", b"\xf0\x80\x80\x80",
    b"\xf0\x80\x80\xaf", b"\xf0\x8f\xbf\xbf", b"\xf8\x80\x80\x80\xaf", b"\xf8\x87\xbf\xbf\xbf",
    b"\xfc\x80\x80\x80\x80\xaf", b"\xfc\x83\xbf\xbf\xbf\xbf", b"\xc0\xa2", b"\xe0\x80\xa2",
]  # fmt: skip
_SURROGATES = [
    b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf", b"\xed\xb0\x80", b"\xed\xbe\x80",
    b"\xed\xbf\xbf", b"\xed\xa0\x80\xed\xb0\x80", b"\xed\xaf\xbf\xed\xbf\xbf",
]  # fmt: skip
_PAST = [b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xff"]
_CUT = [one[:end] for one in (b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80") for end in range(1, len(one))]
_ALONE = [b"\x80", b"\xbf", b"\x80\xbf", b"\xc3\xa9\xa9", b"\xe2\x82\xac\xac", b"\xc3\xc3", b"\xe2\x82\xc3\xa9"]
_ESCAPED = [rf"\u{code:04x}".encode() for code in (0, 0x1F, 0x22, 0x5C, 0x7F, 0xD7FF, 0xE000, 0xFEFF, 0xFFFF)]
_ESCAPED += [rb"\ud83d\ude00", rb"\uD83D\uDE00", rb"\udbff\udfff", rb"\ud800", rb"\udfff", rb"\ude00\ud83d"]
_ESCAPED += [rb"\ud800\ud800", rb"\ud83dx\ude00", rb"\u12", rb"\u123g", rb"\U0001f600", rb"\x41", rb"\ud83d\u", b"\\"]
_PIECES = [*_GOOD, *_OVERLONG, *_SURROGATES, *_PAST, *_CUT, *_ALONE, *_ESCAPED, b"\0", b"\x1f", b"\t", b"\n", b"\x7f"]

_PLACES = (
    b'{"id":1,"note":"%s"}',
    b'{"id":1,"note":"a%sb"}',
    b'{"id":1,"tags":["a","%s"]}',
    b'{"id":1,"m":{"%s":"a"}}',
    b'{"id":1,"m":{"a":"%s"}}',
    b'{"id":1,"s":{"x":"%s"}}',
    b'{"id":1,"s":{"x":"a","%s":1}}',
    b'{"id":1,"%s":2}',
    b'{"id":1,"undeclared":{"a":["%s"]}}',
    b'{"id":1,"body":"%s"}',
    b'{"id":1}%s',
    b'%s{"id":1}',
    b'{"id":%s1}',
)


def utf8_records() -> list[bytes]:
    """Every piece in every place, each record beside one that is good."""
    good = b'{"id":7,"note":"\xc3\xa9"}'
    return [one for place in _PLACES for piece in _PIECES for one in (place.replace(b"%s", piece), good)]
