"""Append under random programs, on real servers; `make properties` runs more of them."""

from __future__ import annotations

from sqlalchemy import Engine

from kafka_assets.ledger.engine import make_engine
from kafka_assets_tests.integration.databases import LOCK_SECONDS, emptied
from kafka_assets_tests.properties.runner import run_programs


def test_append_does_what_the_model_says(server: Engine) -> None:
    def fresh() -> Engine:
        return make_engine(emptied(server).url, lock_seconds=LOCK_SECONDS)

    name = server.url.get_backend_name()
    run_programs(fresh, database=name, short=10)
