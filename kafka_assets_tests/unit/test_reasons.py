"""Reasons have codes: each that the decoders and sinks can say, and whatever a table says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_assets import reasons as r
from kafka_assets.decode import codes as c
from kafka_assets.decode.contract import Reason
from kafka_assets.decode.json_exact import ExactJson
from kafka_assets.reasons import Kind, kind_of

FIELDS = pa.schema([
    pa.field("id", pa.int64()),
    pa.field("note", pa.string(), nullable=False),
    pa.field("at", pa.struct([pa.field("x", pa.list_(pa.int64()))])),
])  # fmt: skip


@pytest.mark.parametrize(
    ("value", "code", "field"),
    [
        (None, c.TOMBSTONE, None),
        (b"\xff", c.ENCODING, None),
        (b'{"note": "\\ud800"}', c.ENCODING, "note"),
        (b"", c.NOT_JSON, None),
        (b" ", c.NOT_JSON, None),
        (b"[1]", c.NOT_JSON, None),
        (b'{"id"', c.NOT_JSON, None),
        (b'{"id": 1, "note": "a"} {}', c.NOT_JSON, None),
        ("\ufeff{}".encode(), c.NOT_JSON, None),
        (b'{"id": 1, "id": 2, "note": "a"}', c.TWICE, None),
        (b'{"id": "x: does not fit\\nat all", "note": "a"}', c.MISFIT, "id"),
        (b'{"id": 1.5, "note": "a"}', c.MISFIT, "id"),
        (b'{"id": 1}', c.MISSING, "note"),
        (b'{"note": "a", "at": {"x": [1, "2"]}}', c.MISFIT, "at.x[1]"),
        (b'{"note": "a", "at": {"x": [], "x": []}}', c.TWICE, "at"),
    ],
)
def test_what_the_decoder_says_has_a_code(value: bytes | None, code: str, field: str | None) -> None:
    found = ExactJson(FIELDS).read(value)
    assert isinstance(found, Reason)
    assert (found.code, found.field or None) == (code, field)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("note: it has a NUL character, which the database's text cannot hold", Kind(r.NOT_STORABLE, "note")),
        ("at: it lies outside of the years 1 to 9999", Kind(r.NOT_STORABLE, "at")),
        ("x: it is NaN, which the database's numbers cannot hold", Kind(r.NOT_STORABLE, "x")),
        ("note: it is not valid UTF-8", Kind(c.ENCODING, "note")),
        ("its row of 3,000,000 bytes is beyond the server's max_allowed_packet of 2", Kind(r.TOO_LARGE)),
        ('new row for relation "t" violates check constraint "few"', Kind(r.REFUSED)),
        ("UNIQUE constraint failed: t.id", Kind(r.REFUSED)),
    ],
)
def test_what_a_sink_or_a_table_says_has_a_code(reason: str, kind: Kind) -> None:
    assert kind_of(reason) == kind
