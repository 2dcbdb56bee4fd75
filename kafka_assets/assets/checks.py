"""The checks of every asset that lands slices: run by their own clock, and by hand from the UI.

The sensor `kafka_health` judges all assets each minute in its own evaluation, without a run, and tells Dagster
what changed; an unchanged verdict is told again every ten minutes, so that it plots and never looks stale.
Executing a check in the UI asks the same questions, and reads the whole view kafka_gap besides.
"""

# No `from __future__ import annotations` here: Dagster checks the context's annotation itself, not its text.
import json
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import dagster as dg
from sqlalchemy import Engine

from kafka_assets.assets.appearance import source_key
from kafka_assets.assets.judging import judge
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK
from kafka_assets.assets.resources import SparkResource
from kafka_assets.assets.sensor import ALL, streams_of
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.keeping import keeping
from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.errors import KafkaAssetsError
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.streams import Stream
from kafka_assets.verdicts import NAMES, Verdict

EVERY_SECONDS = 60
TOLD_AGAIN_SECONDS = 600
SPARK_PATIENCE = timedelta(seconds=10)
"""Of the minute that Dagster gives an evaluation; a server that is well answers within two seconds."""

_SAYS = {
    "no_gaps": "Every planned offset lies in exactly one slice, and committed_through is right.",
    "exact_counts": "The table and the quarantine hold what the newest slices committed.",
    "lag": "No record waits longer than max_lag.",
    "quarantine_ratio": "Of the records read lately, no more than max_bad_ratio could not become rows.",
    "retention_headroom": "Nothing that waits is about to expire.",
    "hanging_transaction": "No producer's transaction has been open too long.",
    "stuck_slices": "No slice was given up, or asked for again and again.",
    "planning": "Somebody looks at what comes: the sensor is on, the broker answers, and the topics are there.",
}


def checks_of(stream: Stream) -> dg.AssetChecksDefinition:
    """All checks of one asset, as one step."""
    asset = dg.AssetKey(stream.name)
    specs = [dg.AssetCheckSpec(name, asset=asset, description=_SAYS[name]) for name in NAMES]

    @dg.multi_asset_check(
        name=f"{stream.name}_checks",
        specs=specs,
        can_subset=True,
        required_resource_keys={KAFKA, SPARK, IO_MANAGER},
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterable[dg.AssetCheckResult]:
        engine: Engine = getattr(context.resources, IO_MANAGER).engine
        wanted = {key.name for key in context.selected_asset_check_keys}
        ensure_schema(engine)
        spark = getattr(context.resources, SPARK)
        found = judge(
            engine,
            getattr(context.resources, KAFKA).connection,
            [stream],
            deep=True,
            spark=lambda: _trouble(spark),
        )
        if stream.name not in found.verdicts:
            raise dg.Failure(" | ".join(found.troubles))
        for one in found.verdicts[stream.name]:
            if one.name in wanted:
                yield _result(asset, one)

    return checks


@lru_cache(maxsize=1)
def the_health_sensor() -> dg.SensorDefinition:
    """One object, however many definitions bring it; like `kafka_slices` it looks for its streams itself."""

    @dg.sensor(
        name="kafka_health",
        asset_selection=ALL,
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={KAFKA, SPARK, IO_MANAGER},
        description="Judges every asset that lands slices, and observes their topics; starts no runs.",
    )
    def kafka_health(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            engine: Engine = getattr(context.resources, IO_MANAGER).engine
            ensure_schema(engine)
        except KafkaAssetsError as error:
            return dg.SkipReason(str(error))
        connect = getattr(context.resources, KAFKA).connection
        streams = streams_of(context, None)
        spark = getattr(context.resources, SPARK)
        found = judge(engine, connect, streams, spark=lambda: _trouble(spark))
        events: list[Any] = [
            _evaluation(dg.AssetKey(name), one) for name, judged in found.verdicts.items() for one in judged
        ]
        if not found.down:
            try:
                events += _observations(connect(), streams)
            except KafkaAssetsError as error:
                found.troubles.append(str(error))
        for trouble in found.troubles:
            context.log.warning(trouble)
        told, cursor = _news(events, context.cursor)
        if not told:
            return dg.SensorResult(skip_reason=" | ".join(found.troubles) or "nothing changed", cursor=cursor)
        return dg.SensorResult(asset_events=told, cursor=cursor)

    return kafka_health


def _trouble(spark: object) -> str | None:
    """Of another resource than ours nobody here knows how to ask."""
    return spark.trouble(patience=SPARK_PATIENCE) if isinstance(spark, SparkResource) else None


def _observations(connection: Connection, streams: Sequence[Stream]) -> list[dg.AssetObservation]:
    """What each topic is now: its partitions, offsets and retention."""
    topics = sorted({stream.topic for stream in streams if stream.topic})
    kept = keeping(connection, topics)
    found: list[dg.AssetObservation] = []
    for topic, one in observe(connection, topics).items():
        if not isinstance(one, TopicOffsets):
            continue
        keeps = kept.get(topic)
        found.append(
            dg.AssetObservation(
                source_key(topic),
                metadata={
                    "topic_id": one.topic_id,
                    "partitions": len(one.partitions),
                    "offsets": sum(part.last_stable - part.log_start for part in one.partitions.values()),
                    "retention_ms": "for ever" if keeps is None or keeps.retention_ms is None else keeps.retention_ms,
                    "retention_bytes": "any"
                    if keeps is None or keeps.retention_bytes is None
                    else keeps.retention_bytes,
                    "cleanup_policy": "" if keeps is None else keeps.cleanup_policy,
                },
            )
        )
    return found


def _news(events: Sequence[Any], cursor: str | None) -> tuple[list[Any], str]:
    """What Dagster has not been told yet, or not for some time; the cursor is when each was told, and what."""
    before: dict[str, list[Any]] = json.loads(cursor) if cursor else {}
    now = time.time()
    after: dict[str, list[Any]] = {}
    told: list[Any] = []
    for event in events:
        judged = isinstance(event, dg.AssetCheckEvaluation)
        # That nobody knows is a third answer: from it to a failure is news, too.
        passed = event.passed if judged and event.severity == dg.AssetCheckSeverity.ERROR else None
        check = f"{event.check_name}@" if judged else ""
        name = check + event.asset_key.to_user_string()
        was, at = before.get(name, [None, 0.0])
        if name not in before or was != passed or not 0 <= now - at < TOLD_AGAIN_SECONDS:
            told.append(event)
            after[name] = [passed, now]
        else:
            after[name] = [was, at]
    return told, json.dumps(after)


def _result(asset: dg.AssetKey, one: Verdict) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=one.passed,
        asset_key=asset,
        check_name=one.name,
        severity=_severity(one),
        description=one.said,
        metadata=dict(one.numbers),
    )


def _evaluation(asset: dg.AssetKey, one: Verdict) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=one.name,
        passed=one.passed,
        severity=_severity(one),
        description=one.said,
        metadata={name: dg.MetadataValue.float(float(value)) for name, value in one.numbers.items()},
    )


def _severity(one: Verdict) -> dg.AssetCheckSeverity:
    """What nobody knows is no error yet; Dagster knows but passed and failed."""
    return dg.AssetCheckSeverity.ERROR if one.known else dg.AssetCheckSeverity.WARN
