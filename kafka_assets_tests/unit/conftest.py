"""A ledger for each unit test: made once for the session, copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.schema import ensure_schema


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a ledger in which nothing is planned."""
    path = tmp_path_factory.mktemp("ledger") / "empty.db"
    made = make_engine(f"sqlite:///{path}")
    ensure_schema(made)
    made.dispose()
    return path


@pytest.fixture
def engine(tmp_path: Path, empty_ledger: Path) -> Iterator[Engine]:
    shutil.copy(empty_ledger, tmp_path / "ledger.db")
    made = make_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield made
    made.dispose()
