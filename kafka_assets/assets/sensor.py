"""The sensor: polls end offsets, plans slices, and requests runs for them. On by default."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.tick import sensor_result, tick, trouble_reason
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import KafkaAssetsError
from kafka_assets.ledger.engine import make_engine
from kafka_assets.settings import load_settings


def build_sensor(
    assets: Sequence[dg.AssetsDefinition], *, name: str = "kafka_slices", interval_seconds: int = 5
) -> dg.SensorDefinition:
    """One sensor for all these assets; those that are no kafka_asset are left alone."""
    streams = [stream for stream in (stream_of(asset) for asset in assets) if stream is not None]

    @dg.sensor(
        name=name,
        target=[asset for asset in assets if stream_of(asset) is not None],
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Polls the topics' end offsets, plans new slices in the ledger, and requests runs that land them.",
    )
    def kafka_slices(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            # Each tick anew: services that came up after this code was loaded are found.
            settings = load_settings()
            engine = make_engine(settings.database_url)
            try:
                found = tick(
                    streams,
                    engine=engine,
                    connection=lambda: Connection.of(settings),
                    instance=context.instance,
                    log=context.log,
                    cursor=context.cursor,
                )
            finally:
                engine.dispose()
        except KafkaAssetsError as error:
            return dg.SkipReason(trouble_reason(error))
        return sensor_result(found)

    return kafka_slices
