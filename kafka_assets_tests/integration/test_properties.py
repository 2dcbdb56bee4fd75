"""Append, upsert and live consumers under random programs, on real servers; `make properties` runs more of them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.schema import dialect_name
from kafka_assets_tests.integration.databases import LOCK_SECONDS, emptied
from kafka_assets_tests.properties.append_machine import AppendMachine
from kafka_assets_tests.properties.live_machine import LiveMachine, unhurried
from kafka_assets_tests.properties.runner import run_programs
from kafka_assets_tests.properties.stepping import stepped
from kafka_assets_tests.properties.upsert_machine import UpsertMachine


@pytest.mark.parametrize(
    ("machine", "within"),
    [(AppendMachine, stepped), (UpsertMachine, stepped), (LiveMachine, unhurried)],
    ids=["append", "upsert", "live"],
)
def test_it_does_what_the_model_says(server: Engine, machine: Any, within: Any) -> None:
    engine = make_engine(server.url, lock_seconds=LOCK_SECONDS)
    run_programs(lambda: emptied(engine), machine, database=dialect_name(server), short=3, within=within)
