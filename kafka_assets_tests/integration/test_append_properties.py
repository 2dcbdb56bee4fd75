"""Append under random programs, on real servers; `make properties` runs more of them."""

from __future__ import annotations

from sqlalchemy import Engine

from kafka_assets.ledger.schema import dialect_name
from kafka_assets_tests.integration.databases import emptied
from kafka_assets_tests.properties.runner import run_programs


def test_append_does_what_the_model_says(server: Engine) -> None:
    run_programs(lambda: emptied(server), database=dialect_name(server), short=10)
