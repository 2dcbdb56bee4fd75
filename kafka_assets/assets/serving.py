"""What one component of a project of `dg` brings for all of the project's streams."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import dagster as dg
from dagster.components.core.defs_module import CompositeYamlComponent, DefsFolderComponent, PythonFileComponent

from kafka_assets.assets.appearance import source_key, source_spec
from kafka_assets.assets.checks import checks_of, the_health_sensor
from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.resources import default_resources
from kafka_assets.assets.sensor import the_sensor
from kafka_assets.streams import Stream


def serving(context: dg.ComponentLoadContext, of_components: Iterable[Stream]) -> dg.Definitions:
    """Sensors, resources, topics, and the checks of streams of functions: each where no Python file brings it itself.

    Dagster copies what a component gives, and takes two of one name for a contradiction: so one component gives it,
    and what somebody else gives, resources of their own for example, is left to them.
    """
    # A file with components in it is met by them.
    files = [
        context.component_tree.build_defs_at_path(file.path)
        for file in components_of(context)
        if isinstance(file, PythonFileComponent) and not file.components
    ]
    functions = {stream.name: stream for one in files for stream in _streams(one)}
    checked = {key.asset_key.to_user_string() for one in files for key in _check_keys(one)}
    there = {key for one in files for key in _keys(one)}
    given = {name for one in files for name in one.resources or {}}
    sensors = {sensor.name for one in files for sensor in one.sensors or ()}
    topics = {stream.topic for stream in (*of_components, *functions.values()) if stream.topic}
    return dg.Definitions(
        assets=[source_spec(topic) for topic in sorted(topics) if source_key(topic) not in there],
        asset_checks=[checks_of(stream) for name, stream in functions.items() if name not in checked],
        sensors=[one for one in (the_sensor(), the_health_sensor()) if one.name not in sensors],
        resources={name: one for name, one in default_resources().items() if name not in given},
    )


def components_of(context: dg.ComponentLoadContext) -> list[dg.Component]:
    """All components of the project, those in Python files with them, which `get_all_components` does not find."""
    root = context.component_tree.load_root_component()
    # From Dagster 1.13 on the folder is one of several parts of the root.
    return [one for part in (root, *getattr(root, "components", ())) for one in _within(part)]


def _within(component: dg.Component) -> Iterator[dg.Component]:
    yield component
    inner: Collection[dg.Component] = ()
    match component:
        case DefsFolderComponent():
            inner = component.children.values()
        case CompositeYamlComponent():
            inner = component.components
        case PythonFileComponent():
            inner = component.components.values()
        case _:
            pass
    for one in inner:
        yield from _within(one)


def _streams(one: dg.Definitions) -> list[Stream]:
    found = (stream_of(asset) for asset in one.assets or () if isinstance(asset, dg.AssetsDefinition))
    return [stream for stream in found if stream is not None]


def _check_keys(one: dg.Definitions) -> Iterable[dg.AssetCheckKey]:
    for checks in one.asset_checks or ():
        yield from checks.check_keys


def _keys(one: dg.Definitions) -> Iterable[dg.AssetKey]:
    """The topics that it brings are specs."""
    return (asset.key for asset in one.assets or () if isinstance(asset, dg.AssetSpec))
