"""A mutant: what the code no longer does, the lines that make it so, and the tests that must notice."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Change:
    """One replacement in one file under `kafka_assets/`; what is replaced stands there exactly once."""

    file: str
    old: str
    new: str

    def apply(self, tree: Path) -> None:
        path = tree / "kafka_assets" / self.file
        text = path.read_text()
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.file} has {found} times, and not once:\n{self.old}")
        path.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True)
class Mutant:
    name: str
    """What is broken."""
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    """Each of them must fail; ids of pytest, under `kafka_assets_tests/`."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def mutant(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """A mutant of one change."""
    return Mutant(name, (Change(file, old, new),), tests)
