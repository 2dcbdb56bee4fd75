"""The folder in which streams are declared: each of its files is read by itself, and one that cannot be stops none."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import dagster as dg
from pyspark.sql import SparkSession

from kafka_assets.assets.broken_file import BrokenFile
from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.sharing import shared
from kafka_assets.assets.yaml_files import assets_in
from kafka_assets.errors import KafkaAssetsError, StreamError
from kafka_assets.spark import early_udfs
from kafka_assets.spark.project_modules import STREAMS
from kafka_assets.spark.reached import raised_in
from kafka_assets.streams import Stream

Declared = dg.AssetsDefinition | dg.AssetSpec | BrokenFile
"""What a folder may hold: assets of topics, other assets and their checks, assets that others make, broken files."""


def load_assets(folder: Path) -> list[Declared]:
    """What a folder's Python and YAML files declare; the command line and definitions.py both come here.

    The folder is a package while it is loaded: a file takes what another one declares by `from .orders import orders`.
    What cannot be read is a `BrokenFile` among the others; of two files that declare the same, both are. What begins
    with a dot is somebody's own: an editor's lock, a notebook's copy of the file beside it.
    """
    if not folder.is_dir():
        raise StreamError(
            f"there is no folder {folder}",
            why="streams are declared in its files",
            cure="make it, or set KAFKA_ASSETS_STREAMS to the folder that has them",
        )
    _as_package(folder)
    early_udfs.install()
    found: list[tuple[dg.AssetsDefinition | dg.AssetSpec, Path]] = []
    broken: dict[Path, StreamError] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        try:
            declared = _declared_in(path, folder)
        except StreamError as error:
            broken[path] = error
            continue
        known = [id(one) for one, _ in found]
        found += [(one, path) for one in declared if id(one) not in known]
    for paths, error in (*_named_alike(found), *_sharing(found)):
        for path in paths:
            broken.setdefault(path, error)
    good = [one for one, path in found if path not in broken]
    return [*good, *(BrokenFile(path, error) for path, error in sorted(broken.items()))]


def streams_in(declared: Iterable[Declared]) -> list[Stream]:
    """The streams among what was declared."""
    found = (stream_of(one) for one in declared if isinstance(one, dg.AssetsDefinition))
    return [stream for stream in found if stream is not None]


def broken_in(declared: Iterable[Declared]) -> list[BrokenFile]:
    """The files among it that could not be read."""
    return [one for one in declared if isinstance(one, BrokenFile)]


def _named_alike(
    found: Sequence[tuple[dg.AssetsDefinition | dg.AssetSpec, Path]],
) -> Iterator[tuple[list[Path], StreamError]]:
    first: dict[str, Path] = {}
    for one, path in found:
        name = _named(one)
        if name in first:
            error = StreamError(
                f"two assets are named {name!r}",
                why=f"one in {first[name]}, one in {path}; which of them is meant nobody knows, so neither is landed",
                cure="rename one of them",
            )
            yield [first[name], path], error
        first.setdefault(name, path)


def _sharing(
    found: Sequence[tuple[dg.AssetsDefinition | dg.AssetSpec, Path]],
) -> Iterator[tuple[list[Path], StreamError]]:
    places = {stream.name: path for one, path in found for stream in streams_in([one])}
    for one, other, error in shared(streams_in(asset for asset, _ in found)):
        paths = [places[one.name], places[other.name]]
        yield paths, StreamError(error.what, why=f"{error.why}; {paths[0]}, {paths[1]}", cure=error.cure)


def _named(one: dg.AssetsDefinition | dg.AssetSpec) -> str:
    if isinstance(one, dg.AssetChecksDefinition):
        return ", ".join(sorted(key.to_user_string() for key in one.check_keys))
    keys = [one.key] if isinstance(one, dg.AssetSpec) else sorted(one.keys)
    return ", ".join(key.to_user_string() for key in keys)


def _declared_in(path: Path, folder: Path) -> Sequence[dg.AssetsDefinition | dg.AssetSpec]:
    if path.suffix in {".yaml", ".yml"}:
        # In a project that `dg` made, each component's file has this name, whatever its type.
        return assets_in(path, others=path.name == "defs.yaml")
    if path.suffix == ".py" and path.name != "__init__.py":
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        return [one for one in vars(_load(path, name)).values() if isinstance(one, dg.AssetsDefinition | dg.AssetSpec)]
    return []


def _as_package(folder: Path) -> None:
    """Make the folder a package of its own name, wherever it lies, and forget what was loaded before."""
    for name in [one for one in sys.modules if one.partition(".")[0] == STREAMS]:
        del sys.modules[name]
    spec = ModuleSpec(STREAMS, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[STREAMS] = importlib.util.module_from_spec(spec)
    importlib.invalidate_caches()  # the files may be younger than the last look into the folder


def _load(path: Path, stem: str) -> object:
    name = f"{STREAMS}.{stem}"
    if name in sys.modules:  # another file has imported it: run again, it would declare its assets twice
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StreamError(f"{path} cannot be loaded", cure="give it a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)  # half of it
        raise _unloaded(path, error) from error
    return module


def _unloaded(path: Path, error: Exception | SystemExit) -> StreamError:
    """What stops a user's file, with the line of it; whatever it is, it is the file's own."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return StreamError(
            f"{path}, line {error.lineno}: {error.msg}",
            why=(error.text or "").strip(),
            cure="correct it there, or above",
        )
    lines = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
    place = f"{path}, line {lines[-1].lineno}" if lines else str(path)
    if isinstance(error, KafkaAssetsError):
        return StreamError(f"{place}: {error.what}", why=error.why, cure=error.cure)
    said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    return StreamError(
        f"{place}: {said}", why=f"the file stops at `{lines[-1].line}`" if lines else "", cure=_cure(path, error)
    )


def _cure(path: Path, error: Exception | SystemExit) -> str:
    if SparkSession.getActiveSession() is None and raised_in(error, "pyspark"):
        return "write it inside the asset's function: a column needs a session, and each run opens one; UDFs may stay"
    if not isinstance(error, ModuleNotFoundError):
        return "correct the file"
    name = str(error.name).partition(".")[0]
    if path.with_name(f"{name}.py").exists() or path.with_name(name).is_dir():
        return f"it lies beside the file: write `from . import {name}`, or `from .{name} import …`"
    return "install it where kafka-assets is installed, or correct the import"
