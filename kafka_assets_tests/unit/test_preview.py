"""What of a slice's rows Dagster's storage keeps."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from kafka_assets.assets.metadata import preview
from kafka_assets.streams import declare
from kafka_assets_tests.ledgers import Attempt, plan

pytestmark = pytest.mark.usefixtures("unsynced")


@pytest.mark.parametrize("wanted", [True, False])
def test_the_first_rows_are_shown_unless_the_stream_says_not_to(engine: Engine, wanted: bool) -> None:
    [key] = plan(engine, slices=[(0, 9)])
    [done] = Attempt(engine, [key]).claim().publish()
    stream = declare(name="orders", topic="orders", target="orders", schema="id BIGINT, note STRING", preview=wanted)
    shown = preview(engine, stream, done.publication)
    assert list(shown) == (["preview"] if wanted else [])
    assert not wanted or str(shown["preview"].value).count("\n") == 6
