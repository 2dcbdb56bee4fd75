"""What of a slice's rows Dagster's storage keeps."""

from __future__ import annotations

from typing import Literal

import pytest
from sqlalchemy import Engine

from kafka_assets.assets.metadata import preview
from kafka_assets.errors import SliceFailed
from kafka_assets.records import BadRecord, Seen
from kafka_assets.sinks.accounting import BadPolicy, judge
from kafka_assets.streams import declare
from kafka_assets_tests.ledgers import Attempt, plan


@pytest.mark.parametrize("wanted", [True, False])
def test_the_first_rows_are_shown_unless_the_stream_says_not_to(engine: Engine, wanted: bool) -> None:
    [key] = plan(engine, slices=[(0, 9)])
    [done] = Attempt(engine, [key]).claim().publish()
    stream = declare(name="orders", topic="orders", target="orders", schema="id BIGINT, note STRING", preview=wanted)
    shown = preview(engine, stream, done.publication)
    assert list(shown) == (["preview"] if wanted else [])
    assert not wanted or str(shown["preview"].value).count("\n") == 6


@pytest.mark.parametrize("quotes", [True, False])
@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_why_a_slice_failed_is_told_without_its_records_where_they_are_not_to_be_shown(
    engine: Engine, policy: Literal["fail", "quarantine"], quotes: bool
) -> None:
    [key] = plan(engine, slices=[(0, 9)])
    bad = BadRecord(
        0, 3, "id: 'secret' does not fit BIGINT exactly", b"secret", b'{"id":"secret"}', (), None, "does_not_fit", "id"
    )
    for examples, reason in (([bad], ""), ([], "id: it is NaN, and not 'secret'")):
        with pytest.raises(SliceFailed) as failed:
            judge(key, Seen(read=200, bad=200), BadPolicy(policy, 0.0, quotes=quotes), examples=examples, reason=reason)
        assert ("secret" in f"{failed.value!r} {failed.value} {failed.value.bad}") == quotes
        assert "id" in str(failed.value) and "bad records" in str(failed.value)
