"""What is read and imported once for many: in a nursery, and in a process that carries runs out itself."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.sql import get_alembic_config

from kafka_assets.assets.warmth import keep_revisions
from kafka_assets.cli.collector import uncollected
from kafka_assets.ledger import schema


def test_dagsters_revisions_are_read_once_and_nobody_elses_are_kept() -> None:
    keep_revisions()
    dagsters = get_alembic_config(sqlite_run_storage.__file__)
    assert ScriptDirectory.from_config(dagsters) is ScriptDirectory.from_config(dagsters)
    own = Config()
    own.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    first = ScriptDirectory.from_config(own)
    assert first is not ScriptDirectory.from_config(own), "its revisions may be written meanwhile"
    assert first.get_current_head() == schema.REVISION
    patched = ScriptDirectory.from_config
    keep_revisions()
    assert ScriptDirectory.from_config == patched, "a second time it does nothing"


def test_nothing_is_looked_through_while_it_is_imported_nor_afterwards() -> None:
    frozen = gc.get_freeze_count()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() and gc.get_freeze_count() > frozen
        with pytest.raises(ImportError), uncollected():
            raise ImportError
        assert gc.isenabled()
    finally:
        gc.unfreeze()
