"""Everything that assets of Kafka topics need, put together."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import dagster as dg

from kafka_assets.assets.appearance import source_spec
from kafka_assets.assets.broken_file import BrokenFile, broken_file_sensor
from kafka_assets.assets.checks import checks_of, the_health_sensor
from kafka_assets.assets.folder import Declared, broken_in, streams_in
from kafka_assets.assets.plain_secrets import plain_secrets
from kafka_assets.assets.resources import default_resources
from kafka_assets.assets.sensor import the_sensor
from kafka_assets.assets.sharing import refuse_shared
from kafka_assets.errors import StreamError
from kafka_assets.ledger.dagster_storage import refuse_storage

_log = logging.getLogger(__name__)


def build_definitions(
    assets: Sequence[Declared],
    *,
    resources: Mapping[str, object] | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
) -> dg.Definitions:
    """Assets with their topics, checks, sensors and resources; `resources` replaces those of the same key.

    A run has one step, and its worker is a process of its own already: another for the step would cost
    seconds, so its executor is the one that starts none. What is made here can be merged with more of its
    kind: sensor and resources are the same objects each time. A file that could not be read gets a sensor whose ticks
    fail with its error: the other files' assets go on, and somebody sees it.
    """
    landing = landing_definitions(assets, resources=resources, executor=executor)
    streams = streams_in(assets)
    watching = dg.Definitions(
        asset_checks=[checks_of(stream) for stream in streams],
        sensors=[
            *([the_sensor(), the_health_sensor()] if streams else []),
            *map(broken_file_sensor, broken_in(assets)),
        ],
    )
    return dg.Definitions.merge(landing, watching)


def landing_definitions(
    assets: Sequence[Declared],
    *,
    resources: Mapping[str, object] | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
) -> dg.Definitions:
    """The same without our checks and sensors, which have a clock of their own: for who carries runs out himself.

    A run that takes an asset takes the asset's checks along, and those read the whole view kafka_gap.
    """
    refuse_storage()
    _require_keys(resources or {})
    declared = [one for one in assets if not isinstance(one, BrokenFile)]
    checks = [one for one in declared if isinstance(one, dg.AssetChecksDefinition)]
    streams = streams_in(assets)
    refuse_shared(streams)
    for said in plain_secrets(resources or {}):
        _log.warning(said)
    return dg.Definitions(
        assets=[
            *(one for one in declared if one not in checks),
            *(source_spec(topic) for topic in sorted({one.topic for one in streams if one.topic})),
        ],
        asset_checks=checks,
        resources={**default_resources(), **(resources or {})},
        executor=executor,
    )


def _require_keys(resources: Mapping[str, object]) -> None:
    """A resource of ours under a key that no stream asks for would be none: the settings' would be taken."""
    kinds = {key: type(one) for key, one in default_resources().items()}
    for given, one in resources.items():
        meant = next((key for key, kind in kinds.items() if type(one) is kind and key not in resources), None)
        if meant is not None:
            raise StreamError(
                f"the resource {given!r}, a {type(one).__name__}, would be used by no stream",
                why=f"streams take the one with the key {meant!r}",
                cure=f"give it as {meant!r}",
            )
