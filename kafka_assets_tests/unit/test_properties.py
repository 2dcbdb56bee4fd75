"""Append, upsert and live consumers under random programs, on SQLite; `make properties` runs more of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from kafka_assets.ledger.engine import make_engine
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
def test_it_does_what_the_model_says(tmp_path: Path, empty_ledger: Path, machine: Any, within: Any) -> None:
    path = tmp_path / "ledger.db"
    engine = make_engine(f"sqlite:///{path}")
    # What a lost power supply does is not asked here.
    event.listen(engine, "connect", lambda connection, record: connection.execute("PRAGMA synchronous = OFF"))

    def fresh() -> Engine:
        for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        shutil.copy(empty_ledger, path)
        return engine

    run_programs(fresh, machine, database="sqlite", short=12, within=within)
