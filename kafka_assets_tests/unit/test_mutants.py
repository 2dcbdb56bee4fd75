"""Every mutant still has something to break: what it replaces stands in the code, exactly once, and it is code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kafka_assets
from kafka_assets_tests.mutants.catalogue import MUTANTS
from kafka_assets_tests.mutants.mutant import Mutant


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_a_mutant_can_be_applied(one: Mutant, tmp_path: Path) -> None:
    package = Path(kafka_assets.__file__).parent
    for change in one.changes:
        copy = tmp_path / "kafka_assets" / change.file
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(package / change.file, copy)
        before = copy.read_text()
        change.apply(tmp_path)
        after = copy.read_text()
        assert after != before
        compile(after, change.file, "exec")
