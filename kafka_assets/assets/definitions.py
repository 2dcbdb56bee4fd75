"""Everything that assets of Kafka topics need, put together."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import dagster as dg

from kafka_assets.assets.appearance import source_spec
from kafka_assets.assets.checks import checks_of, the_health_sensor
from kafka_assets.assets.component import assets_in
from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.plain_secrets import plain_secrets
from kafka_assets.assets.resources import default_resources
from kafka_assets.assets.sensor import the_sensor
from kafka_assets.assets.sharing import refuse_shared
from kafka_assets.errors import StreamError
from kafka_assets.ledger.dagster_storage import refuse_storage
from kafka_assets.streams import Stream

_log = logging.getLogger(__name__)
_PACKAGE = "kafka_assets_streams"

Declared = dg.AssetsDefinition | dg.AssetSpec
"""What a folder may declare: assets of topics, other assets and their checks, and assets that others make."""


def build_definitions(
    assets: Sequence[Declared],
    *,
    resources: Mapping[str, object] | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
) -> dg.Definitions:
    """Assets with their topics, checks, sensors and resources; `resources` replaces those of the same key.

    A run has one step, and its worker is a process of its own already: another for the step would cost
    seconds, so its executor is the one that starts none. What is made here can be merged with more of its
    kind: sensor and resources are the same objects each time.
    """
    refuse_storage()
    checks = [one for one in assets if isinstance(one, dg.AssetChecksDefinition)]
    streams = streams_in(assets)
    refuse_shared(streams)
    for said in plain_secrets(resources or {}):
        _log.warning(said)
    return dg.Definitions(
        assets=[
            *(one for one in assets if one not in checks),
            *(source_spec(topic) for topic in sorted({one.topic for one in streams if one.topic})),
        ],
        asset_checks=[*checks, *(checks_of(stream) for stream in streams)],
        sensors=[the_sensor(), the_health_sensor()] if streams else [],
        resources={**default_resources(), **(resources or {})},
        executor=executor,
    )


def load_assets(folder: Path) -> list[Declared]:
    """The assets declared in a folder's Python and YAML files; the command line and definitions.py both come here.

    The folder is a package while it is loaded: a file takes what another one declares by `from .orders import orders`.
    """
    if not folder.is_dir():
        raise StreamError(
            f"there is no folder {folder}",
            why="streams are declared in its files",
            cure="make it, or set KAFKA_ASSETS_STREAMS to the folder that has them",
        )
    _as_package(folder)
    found: dict[str, tuple[Declared, Path]] = {}
    for path in sorted(folder.rglob("*")):
        for asset in _declared_in(path, folder):
            name = _named(asset)
            if name in found and found[name][0] is not asset:
                raise StreamError(
                    f"two assets are named {name!r}",
                    why=f"one in {found[name][1]}, one in {path}",
                    cure="rename one of them",
                )
            found.setdefault(name, (asset, path))
    assets = [asset for asset, _ in found.values()]
    refuse_shared(streams_in(assets))
    return assets


def streams_in(assets: Sequence[Declared]) -> list[Stream]:
    """The streams among what was declared."""
    declared = (stream_of(one) for one in assets if isinstance(one, dg.AssetsDefinition))
    return [stream for stream in declared if stream is not None]


def _named(one: Declared) -> str:
    if isinstance(one, dg.AssetChecksDefinition):
        return ", ".join(sorted(key.to_user_string() for key in one.check_keys))
    keys = [one.key] if isinstance(one, dg.AssetSpec) else sorted(one.keys)
    return ", ".join(key.to_user_string() for key in keys)


def _declared_in(path: Path, folder: Path) -> Sequence[Declared]:
    if path.suffix in {".yaml", ".yml"}:
        # In a project that `dg` made, each component's file has this name, whatever its type.
        return assets_in(path, others=path.name == "defs.yaml")
    if path.suffix == ".py" and path.name != "__init__.py":
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        return [one for one in vars(_load(path, name)).values() if isinstance(one, Declared)]
    return []


def _as_package(folder: Path) -> None:
    """Make the folder a package of its own name, wherever it lies, and forget what was loaded before."""
    for name in [one for one in sys.modules if one.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]
    spec = ModuleSpec(_PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    importlib.invalidate_caches()  # the files may be younger than the last look into the folder


def _load(path: Path, stem: str) -> object:
    name = f"{_PACKAGE}.{stem}"
    if name in sys.modules:  # another file has imported it: run again, it would declare its assets twice
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StreamError(f"{path} cannot be loaded", cure="give it a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
