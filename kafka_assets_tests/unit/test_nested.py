"""Nested values as JSON: what the same value is in every database."""

from __future__ import annotations

import pyarrow as pa

from kafka_assets.sinks.nested import json_texts
from kafka_assets_tests.values import CORPUS


def test_a_map_with_text_for_keys_is_an_object() -> None:
    assert json_texts(CORPUS["map"]) == ['{"b":[1],"a":[]}', "{}", '{"":null}', None]


def test_a_map_with_other_keys_is_a_list_of_its_pairs() -> None:
    assert json_texts(CORPUS["map of numbers"]) == ['[[2,"b"],[-1,null]]', "[]", None]


def test_maps_are_found_however_deep_they_lie() -> None:
    assert json_texts(CORPUS["maps inside"]) == [
        '[{"at":1,"counts":{"k":[[1,"x"]]}},null]',
        '[{"at":null,"counts":null}]',
        "[]",
        None,
    ]


def test_what_has_no_map_is_as_arrow_gives_it() -> None:
    assert json_texts(pa.array([[{"a": 1}], None])) == ['[{"a":1}]', None]
