"""Append, upsert and live consumers under random programs, on SQLite; `make properties` runs more of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets_tests.properties.append_machine import AppendMachine
from kafka_assets_tests.properties.live_machine import LiveMachine, unhurried
from kafka_assets_tests.properties.runner import run_programs
from kafka_assets_tests.properties.stepping import stepped
from kafka_assets_tests.properties.upsert_machine import UpsertMachine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "within"),
    [(AppendMachine, stepped), (UpsertMachine, stepped), (LiveMachine, unhurried)],
    ids=["append", "upsert", "live"],
)
def test_it_does_what_the_model_says(engine: Engine, anew: Callable[[], None], machine: Any, within: Any) -> None:
    def fresh() -> Engine:
        anew()
        return engine

    run_programs(fresh, machine, database="sqlite", short=12, within=within)
