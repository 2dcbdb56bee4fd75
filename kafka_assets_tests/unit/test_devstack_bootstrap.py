"""The set-up that `make` runs first: what it refuses, and what it locks."""

from __future__ import annotations

import ast
import importlib.util
import platform
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "bootstrap.py"


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_old_python_can_read_the_refusal() -> None:
    ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 4))


def test_another_platform_is_refused_with_what_works(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(SystemExit, match=r"Linux aarch64\n.*Linux x86-64 only\n  do"):
        bootstrap.refuse_platform()


@pytest.mark.parametrize("minor", [8, 10, 14])
def test_another_python_is_refused_with_what_works(
    minor: int, bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, minor, 0))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit, match=rf"Python 3\.{minor} does not fit\n.*3\.11, 3\.12 and 3\.13"):
        bootstrap.use_right_python()


def test_a_change_of_the_lock_is_noticed(bootstrap: ModuleType, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("one", encoding="utf-8")
    before = bootstrap.digest([str(lock)])
    lock.write_text("two", encoding="utf-8")
    assert bootstrap.digest([str(lock)]) != before


def test_what_builds_is_pinned_by_hash(bootstrap: ModuleType) -> None:
    entry = bootstrap.lock_entry("setuptools")
    assert re.fullmatch(r"setuptools==[\d.]+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", entry)


def test_every_package_is_pinned_by_hash_and_no_host_is_named() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    pins = re.findall(r"^[A-Za-z0-9._-]+(?:\[.*\])?==.*\\\n    --hash=sha256:", lock, flags=re.MULTILINE)
    names = re.findall(r"^[A-Za-z0-9]", lock, flags=re.MULTILINE)
    assert len(pins) == len(names) > 100
