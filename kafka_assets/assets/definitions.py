"""Everything that assets of Kafka topics need, put together."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.resources import default_resources
from kafka_assets.assets.sensor import build_sensor
from kafka_assets.errors import StreamError


def build_definitions(assets: Sequence[dg.AssetsDefinition]) -> dg.Definitions:
    """Assets with their sensor and resources."""
    return dg.Definitions(
        assets=list(assets),
        sensors=[build_sensor(assets)] if assets else [],
        resources=default_resources(),
        # A run has one step, and its worker is a process of its own already: another would cost seconds.
        executor=dg.in_process_executor,
    )


def load_assets(folder: Path) -> list[dg.AssetsDefinition]:
    """The assets declared in a folder's Python files; the command line and definitions.py both come here."""
    if not folder.is_dir():
        raise StreamError(
            f"there is no folder {folder}",
            why="streams are declared in its files",
            cure="make it, or set KAFKA_ASSETS_STREAMS to the folder that has them",
        )
    found: dict[str, tuple[dg.AssetsDefinition, Path]] = {}
    for path in sorted(folder.glob("*.py")):
        if path.name == "__init__.py":
            continue
        for asset in vars(_load(path)).values():
            if isinstance(asset, dg.AssetsDefinition):
                name = asset.key.to_user_string()
                if name in found and found[name][0] is not asset:
                    raise StreamError(
                        f"two assets are named {name!r}",
                        why=f"one in {found[name][1]}, one in {path}",
                        cure="rename one of them",
                    )
                found.setdefault(name, (asset, path))
    assets = [asset for asset, _ in found.values()]
    _refuse_shared_targets(assets)
    return assets


def _refuse_shared_targets(assets: Sequence[dg.AssetsDefinition]) -> None:
    owners: dict[str, str] = {}
    groups: dict[str, str] = {}
    for stream in filter(None, map(stream_of, assets)):
        other = groups.setdefault(stream.asset, stream.name)
        if other != stream.name:
            raise StreamError(
                f"streams {other!r} and {stream.name!r} have the same group {stream.asset!r}",
                why="it is the name under which the ledger keeps what one asset has landed",
                cure="give one of them another group",
            )
        owner = owners.setdefault(stream.target.lower(), stream.name)
        if owner != stream.name:
            raise StreamError(
                f"streams {owner!r} and {stream.name!r} have the same target {stream.target!r}",
                why="two writers of one table could replace each other's rows",
                cure="give one of them another target",
            )


def _load(path: Path) -> object:
    name = f"kafka_assets_streams.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StreamError(f"{path} cannot be loaded", cure="give it a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
