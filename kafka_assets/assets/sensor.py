"""The sensor: polls end offsets, plans slices, and requests runs for them. On by default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import dagster as dg
from sqlalchemy import Engine

from kafka_assets.assets.cursor import Cursor
from kafka_assets.assets.decorator import stream_of, versions_of
from kafka_assets.assets.names import IO_MANAGER, KAFKA, LANDS_TAG, SPARK
from kafka_assets.assets.resources import SparkResource
from kafka_assets.assets.sharing import refuse_shared
from kafka_assets.assets.tick import Caller, sensor_result, tick, trouble_reason
from kafka_assets.errors import KafkaAssetsError, StreamError
from kafka_assets.ledger.engine import shared_reads
from kafka_assets.streams import Stream
from kafka_assets.verdicts import UNSEEN_MS

ALL = dg.AssetSelection.tag(LANDS_TAG, "slices")
"""Whatever lands slices in a code location, however it was declared."""

EARLY_SECONDS = 2
"""Dagster's daemon looks every five seconds which sensors are due. One that is to tick as often must be due a little
sooner: by what a tick began later than that look, it would be passed over by the next one, and tick every ten."""


def build_sensor(
    assets: Sequence[dg.AssetsDefinition] | None = None, *, name: str = "kafka_slices", interval_seconds: int = 5
) -> dg.SensorDefinition:
    """One sensor for these assets, or for all of the code location that it stands in."""
    only = None if assets is None else [asset.key for asset in assets if stream_of(asset) is not None]

    @dg.sensor(
        name=name,
        asset_selection=ALL if only is None else dg.AssetSelection.assets(*only),
        minimum_interval_seconds=max(1, interval_seconds - EARLY_SECONDS),
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={KAFKA, SPARK, IO_MANAGER},
        description="Polls the topics' end offsets, plans new slices in the ledger, and requests runs that land them.",
    )
    def kafka_slices(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        spark = getattr(context.resources, SPARK)
        try:
            engine: Engine = getattr(context.resources, IO_MANAGER).engine
            with shared_reads(engine):
                # Each tick anew: services that came up after this code was loaded are found.
                found = tick(
                    streams_of(context, only),
                    caller=Caller(
                        versions=versions_of(_assets(context)),
                        # Of another resource than ours nobody here knows how to ask.
                        spark=spark.require_known if isinstance(spark, SparkResource) else None,
                    ),
                    engine=engine,
                    connection=getattr(context.resources, KAFKA).connection,
                    instance=context.instance,
                    log=context.log,
                    cursor=context.cursor,
                )
        except KafkaAssetsError as error:
            at = Cursor.parse(context.cursor).unanswered()
            if at.out_seconds * 1000 > UNSEEN_MS:
                raise  # a pause is no failure, and an outage is no pause
            return dg.SensorResult(skip_reason=trouble_reason(error), cursor=at.written())
        return sensor_result(found)

    return kafka_slices


@lru_cache(maxsize=1)
def the_sensor() -> dg.SensorDefinition:
    """The one sensor of a code location. However many definitions bring it, it is one object, so Dagster takes it once.

    It asks the repository for its streams at each tick: a stream that a component declares in YAML and
    one that a function declares in Python share one conversation with the broker.
    """
    return build_sensor()


def streams_of(context: dg.SensorEvaluationContext, only: Iterable[dg.AssetKey] | None) -> list[Stream]:
    """The streams of a sensor's repository, in the order of their names.

    Whoever brought them here, components or merged definitions: two that share a group or a table are refused.
    """
    wanted = None if only is None else set(only)
    found: list[Stream] = []
    for asset in _assets(context):
        if (stream := stream_of(asset)) is not None:
            _require_key(asset, stream)
            found.append(stream)
    found.sort(key=lambda stream: stream.name)
    refuse_shared(found)
    return [one for one in found if wanted is None or dg.AssetKey(one.name) in wanted]


def _require_key(asset: dg.AssetsDefinition, stream: Stream) -> None:
    if asset.key != dg.AssetKey(stream.name):
        raise StreamError(
            f"the asset of stream {stream.name!r} has the key {asset.key.to_user_string()!r}",
            why="something renamed it after it was declared, `key` or `key_prefix` in post_processing for example; its "
            "keys, checks and materializations are told by the stream's name, and Dagster would know no such asset",
            cure="take that out; what the asset is called, say in the stream's `name`",
        )


def _assets(context: dg.SensorEvaluationContext) -> list[dg.AssetsDefinition]:
    """Each definition of the sensor's repository once, however many assets it makes."""
    assert context.repository_def is not None
    return list({id(asset): asset for asset in context.repository_def.assets_defs_by_key.values()}.values())
