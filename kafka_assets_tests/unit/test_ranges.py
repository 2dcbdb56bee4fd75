"""`make versions` finds what it names: both ends of every range, and the tests that run at both."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from kafka_assets_tests.ranges import HERE, LOCK, PARTS, TOOLS, TREE, pin, wanted


@pytest.mark.parametrize("asked", [*wanted()])
def test_each_library_has_an_oldest_version_and_the_lock_takes_one_of_its_range(asked: str) -> None:
    one = Requirement(asked)
    locked = pin(one.name, LOCK.read_text(encoding="utf-8"))
    assert locked and locked in one.specifier
    assert any(bound.operator in (">=", "==") for bound in one.specifier)


def test_the_tests_tools_are_locked() -> None:
    lock = LOCK.read_text(encoding="utf-8")
    assert all(pin(name, lock) for name in TOOLS)


@pytest.mark.parametrize("place", [one for part in PARTS.values() for one in part if one.startswith(HERE)])
def test_its_tests_are_there(place: str) -> None:
    path, _, test = place.partition("::")
    assert (TREE / path).exists()
    assert not test or f"\ndef {test.partition('[')[0]}(" in (TREE / path).read_text(encoding="utf-8")
