"""A record becomes bytes, or is refused before any C code sees it: no broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_assets.broker.deliveries import Interceptor, Outgoing
from kafka_assets.broker.partitioners import by_key
from kafka_assets.broker.preparation import LATEST, Preparation, Written, milliseconds
from kafka_assets.broker.serializers import any_bytes
from kafka_assets.errors import RecordRefused


def written(record: Outgoing, *interceptors: Interceptor) -> Written:
    preparation = Preparation(any_bytes, any_bytes, partitioner=by_key, interceptors=interceptors)
    return preparation.prepare(record)[1]


def test_all_parts_of_a_record_are_written_as_bytes() -> None:
    headers: Any = (("trace", "Zoë"), ("raw", b"\x00\xff"), ("trace", None), ("zero", "a\0b"))
    assert written(Outgoing("t", "v", "k", headers)) == Written(
        b"k", b"v", [("trace", "Zoë".encode()), ("raw", b"\x00\xff"), ("trace", None), ("zero", b"a\0b")]
    )


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (("\ud800", b"x"), "surrogates not allowed"),  # librdkafka's client ends the process for this one
        (("name", "\ud800"), "surrogates not allowed"),
        (("tra\0ce", b"x"), "zero byte"),
    ],
)
def test_a_header_that_c_cannot_hold_is_refused(header: Any, why: str) -> None:
    with pytest.raises(RecordRefused, match=why):
        written(Outgoing("t", b"v", None, (header,)))


@pytest.mark.parametrize("timestamp", [0, -1, LATEST + 1, 10**30])
def test_a_timestamp_that_kafka_has_no_bits_for_is_refused(timestamp: int) -> None:
    with pytest.raises(RecordRefused, match="64 bits"):
        milliseconds(timestamp)
    assert milliseconds(LATEST) == LATEST


def test_what_an_interceptor_makes_of_a_record_is_looked_at_too() -> None:
    class Late(Interceptor):
        def on_send(self, record: Outgoing) -> Outgoing:
            return replace(record, timestamp_ms=10**30)

    with pytest.raises(RecordRefused, match="64 bits"):
        written(Outgoing("t", b"v"), Late())
