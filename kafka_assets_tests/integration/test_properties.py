"""Append and upsert under random programs, on real servers; `make properties` runs more of them."""

from __future__ import annotations

import pytest
from sqlalchemy import URL, Engine

from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.schema import dialect_name
from kafka_assets_tests.integration.databases import LOCK_SECONDS, emptied
from kafka_assets_tests.properties.append_machine import AppendMachine
from kafka_assets_tests.properties.runner import run_programs
from kafka_assets_tests.properties.upsert_machine import UpsertMachine


@pytest.mark.parametrize("machine", [AppendMachine, UpsertMachine], ids=["append", "upsert"])
def test_it_does_what_the_model_says(server: Engine, machine: type[AppendMachine]) -> None:
    engine = make_engine(_unsynced(server), lock_seconds=LOCK_SECONDS)
    run_programs(lambda: emptied(engine), machine, database=dialect_name(server), short=10)


def _unsynced(server: Engine) -> URL:
    """What a lost power supply does is not asked here, and hundreds of commits in a program wait for the disk."""
    if server.dialect.name != "postgresql":
        return server.url
    return server.url.update_query_dict({"options": "-c synchronous_commit=off"})
