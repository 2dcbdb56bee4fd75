"""The modules of the user's project: which they are, what they import, and which of them Spark's workers can import.

A worker has Spark, its libraries, and what somebody installed there; of the project it has nothing.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

STREAMS = "kafka_assets_streams"
"""The package that the streams' folder is while its files are loaded."""

_OURS = "kafka_assets"
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_LIBRARIES = {"site-packages", "dist-packages"}
_own: set[str] = {STREAMS}
"""Packages in which an asset's function stands: the project's own, also where they are installed like a library."""


@dataclass(frozen=True)
class Source:
    """A module's text as it travels: with where it lies here, for tracebacks, and whether it is a package."""

    text: str
    path: str
    package: bool


@dataclass(frozen=True)
class _Found:
    """Where a module lies; a package may have folders and no file."""

    path: Path | None
    folders: tuple[str, ...]
    """Of a package."""


@dataclass(frozen=True)
class _Imports:
    """The modules that a text names in its import statements."""

    on_load: frozenset[str]
    """When it is loaded; not those under TYPE_CHECKING."""
    later: frozenset[str]
    """When its functions are called."""


def claim(function: object) -> None:
    """The package in which an asset's function stands is the project's own, wherever it lies."""
    top = str(getattr(function, "__module__", "")).partition(".")[0]
    if top and top != _OURS and top not in sys.stdlib_module_names:
        _own.add(top)


def is_the_projects(name: str) -> bool:
    """Whether a module is of the user's project: no library, not Python's own, not this package's."""
    top = name.partition(".")[0]
    if top == _OURS or top in sys.stdlib_module_names:
        return False
    if name == "__main__" or top in _own:
        return True
    found = _found(top)
    places = [*([str(found.path)] if found.path else []), *found.folders] if found else []
    installed = not places or any(_is_installed(place) for place in places)
    return not installed and (name == top or _found(name) is not None)


def is_importable_there(name: str) -> bool:
    """Whether a worker can import a module of the project once it has its text.

    Not one that loads kafka_assets or Dagster, itself or by another one of the project: it declares streams and
    assets, and a worker has neither library.
    """
    if name == "__main__" or _found(name) is None:
        return False
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        named = _imports_of(module).on_load
        if any(_declares(one) for one in named):
            return False
        waiting += [one for one in named if is_the_projects(one)]
    return True


def sources(names: Iterable[str]) -> Mapping[str, Source]:
    """The texts that workers need for what these modules hold: theirs, and all that those import of the project.

    A package that a worker cannot load, or that has no file, is empty there: its modules can be imported all the same.
    """
    needed: dict[str, Source] = {}
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in seen or not is_the_projects(name):
            continue
        seen.add(name)
        imports = _imports_of(name)
        waiting += [*imports.on_load, *imports.later]
        if is_importable_there(name):
            for one in _with_parents(name):
                needed[one] = _source(one)
    return needed


def path_of(name: str) -> str:
    """The file of a module, or its name where it has none."""
    found = _found(name)
    return str(found.path) if found and found.path else name


def _source(name: str) -> Source:
    found = _found(name)
    if found is None or found.path is None or not is_importable_there(name):
        return Source("", path_of(name), package=True)
    with tokenize.open(found.path) as file:
        return Source(file.read(), str(found.path), package=bool(found.folders))


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _declares(name: str) -> bool:
    top = name.partition(".")[0]
    return top in (_OURS, "dagster") or top.startswith("dagster_")


def _is_installed(place: str) -> bool:
    # An environment may lie in the project's folder; what is in it is none of the project.
    return place.startswith(_INSTALLED) or not _LIBRARIES.isdisjoint(Path(place).parts)


def _found(name: str) -> _Found | None:
    """Where a module lies, without loading it or its package."""
    module = sys.modules.get(name)
    if isinstance(module, ModuleType):
        path, folders = getattr(module, "__file__", None), tuple(getattr(module, "__path__", ()))
    else:
        parent = name.rpartition(".")[0]
        above = _found(parent) if parent else None
        if parent and (above is None or not above.folders):
            return None
        try:
            spec = PathFinder.find_spec(name, list(above.folders) if above else None)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        path, folders = spec.origin, tuple(spec.submodule_search_locations or ())
    if path and not path.endswith(".py"):
        return None  # compiled: its text is not to be had
    return _Found(Path(path) if path else None, folders) if path or folders else None


def _imports_of(name: str) -> _Imports:
    found = _found(name)
    if found is None or found.path is None or not found.path.is_file():
        return _Imports(frozenset(), frozenset())
    stamp = found.path.stat()
    package = name if found.folders else name.rpartition(".")[0]
    return _read(found.path, stamp.st_mtime_ns, stamp.st_size, package)


@lru_cache(maxsize=4096)
def _read(path: Path, changed: int, size: int, package: str) -> _Imports:
    """What a file imports; `changed` and `size` tell it from what it was before."""
    try:
        with tokenize.open(path) as file:
            tree = ast.parse(file.read())
    except (SyntaxError, ValueError):
        return _Imports(frozenset(), frozenset())
    on_load: set[str] = set()
    later: set[str] = set()
    waiting: list[tuple[ast.AST, set[str]]] = [(tree, on_load)]
    while waiting:
        node, named = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            named.update(_named(node, package))
        children = ast.iter_child_nodes(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            named = later
        elif isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            children = iter(node.orelse)
        waiting += [(child, named) for child in children]
    return _Imports(frozenset(on_load), frozenset(later))


def _named(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """The modules that a statement may mean: what `from a import b` takes from `a` may be one, too."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        parts = package.split(".") if package else []
        above = parts[: len(parts) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        names = [base, *(f"{base}.{alias.name}" for alias in node.names)] if base else []
    for name in names:
        yield from _with_parents(name)
