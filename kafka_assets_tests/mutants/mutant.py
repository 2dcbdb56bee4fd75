"""A mutant: what the code no longer does, the lines that make it so, and the tests that must notice."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Change:
    """One replacement within one function, class or constant of the package, whichever module it stands in.

    Several symbols may have that name; what is replaced stands in one of them, exactly once.
    """

    symbol: str
    """As it is called in its module: `claim`, `Merge.lock`, `publish.attempt`, `_PG_END`."""
    old: str
    new: str

    def place(self, package: Path) -> Path:
        """The file in which it is."""
        found = [path for path in _modules(package).get(self.symbol, ()) if self._spots(path.read_text())]
        if len(found) != 1:
            raise ValueError(f"{len(found)} modules, and not one, have a {self.symbol} with:\n{self.old}")
        return found[0]

    def made_in(self, text: str) -> str:
        """The module's text, with this change."""
        spots = self._spots(text)
        if len(spots) != 1:
            raise ValueError(f"{self.symbol} has {len(spots)} times, and not once:\n{self.old}")
        return text[: spots[0]] + self.new + text[spots[0] + len(self.old) :]

    def _spots(self, text: str) -> list[int]:
        """Where what is replaced begins, in a module's text."""
        return [
            begin + one.start()
            for begin, end in _spans(text).get(self.symbol, ())
            for one in re.finditer(re.escape(self.old), text[begin:end])
        ]


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


def mutant(name: str, symbol: str, old: str, new: str, *tests: str) -> Mutant:
    """A mutant of one change."""
    return Mutant(name, (Change(symbol, old, new),), tests)


@cache
def _modules(package: Path) -> Mapping[str, list[Path]]:
    """The modules in which a symbol of each name is defined."""
    found: dict[str, list[Path]] = {}
    for path in sorted(package.rglob("*.py")):
        for symbol in _spans(path.read_text()):
            found.setdefault(symbol, []).append(path)
    return found


@cache
def _spans(text: str) -> Mapping[str, list[tuple[int, int]]]:
    """From where to where each function, class and constant goes, in whole lines."""
    begins = [0]
    for line in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    found: dict[str, list[tuple[int, int]]] = {}
    for name, node in _defined(ast.parse(text), ()):
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        found.setdefault(name, []).append((begins[first - 1], begins[node.end_lineno or first]))
    return found


def _defined(node: ast.AST, within: tuple[str, ...]) -> Iterator[tuple[str, ast.stmt]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield ".".join((*within, child.name)), child
            yield from _defined(child, (*within, child.name))
        elif isinstance(child, ast.Assign | ast.AnnAssign) and not within:
            for target in child.targets if isinstance(child, ast.Assign) else [child.target]:
                if isinstance(target, ast.Name):
                    yield target.id, child
        else:
            yield from _defined(child, within)
