"""Every mutant still has something to break: what it replaces stands in the code, exactly once, and it is code."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafka_assets
from kafka_assets_tests.mutants.catalogue import MUTANTS
from kafka_assets_tests.mutants.mutant import Change, Mutant

PACKAGE = Path(kafka_assets.__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_a_mutant_can_be_applied(one: Mutant) -> None:
    texts: dict[Path, str] = {}
    for change in one.changes:
        path = change.place(PACKAGE)
        before = texts.get(path) or path.read_text()
        texts[path] = change.made_in(before)
        assert texts[path] != before
        compile(texts[path], str(path), "exec")


def test_a_symbol_is_found_wherever_it_moves_and_only_once(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(
        "class Lock:\n    def take(self):\n        return 1\n\n\ndef take():\n    return 1\n"
    )
    (tmp_path / "second.py").write_text("def take():\n    return 2\n")
    change = Change("take", "return 2", "return 3")
    assert change.place(tmp_path) == tmp_path / "second.py"
    assert change.made_in((tmp_path / "second.py").read_text()) == "def take():\n    return 3\n"
    assert Change("Lock.take", "return 1", "").place(tmp_path) == tmp_path / "first.py"
    for missing in (Change("take", "return 4", ""), Change("give", "return 1", ""), Change("take", "return", "")):
        with pytest.raises(ValueError, match=missing.symbol):
            missing.place(tmp_path)
