"""The IO manager: claim, read, publish, and tell Dagster. Everything after the lazy DataFrame happens here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import dagster as dg
import pyarrow as pa
from pydantic import Field, PrivateAttr
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Engine

from kafka_assets.assets.decorator import declared_by
from kafka_assets.assets.failure import failure_of
from kafka_assets.assets.faults import divides
from kafka_assets.assets.land import Asking, Unlanded, keep_failure, land
from kafka_assets.assets.landing import Landing, frame_of, landing_of
from kafka_assets.assets.metadata import lag_after, metadata_of, preview, step_seconds
from kafka_assets.assets.names import DIVIDES, FAILED, FORCE_TAG, UNTRIED
from kafka_assets.assets.reruns import Asked, asked_of
from kafka_assets.assets.resources import SparkResource
from kafka_assets.errors import KafkaAssetsError, Retryable
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.engine import make_engine, shared_reads
from kafka_assets.ledger.publications import results
from kafka_assets.ledger.readers import require_same
from kafka_assets.schema import declared, landed_schema
from kafka_assets.settings import load_settings
from kafka_assets.sinks.committed_rows import CommittedRows, committed_rows
from kafka_assets.sinks.publish import Published
from kafka_assets.slices import SliceKey, readable
from kafka_assets.streams import Derived, Stream

PREVIEWED = 10
"""A run of more slices shows no rows of them: each preview is a query, and a page in Dagster's storage."""


class SliceIOManager(dg.ConfigurableIOManager):
    """Publishes the slices of a run, with the ledger, in transactions of the target database."""

    database_url: str | None = Field(default=None, repr=False)
    """A SQLAlchemy URL; without it, the settings say where the database is."""

    _engine: Engine | None = PrivateAttr(default=None)
    _spark: SparkResource = PrivateAttr(default_factory=SparkResource)
    """Opened for an asset that reads another one's rows, and has no session of its own."""

    @property
    def engine(self) -> Engine:
        """The ledger's database; nothing is connected to before it is asked for."""
        if self._engine is None:
            self._engine = make_engine(self.database_url or load_settings().database_url)
        return self._engine

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self._spark.close()
        if self._engine is not None:
            self._engine.dispose()

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        landing = landing_of(obj)
        if landing is None:
            raise dg.Failure(
                f"asset {context.asset_key.to_user_string()} returned no DataFrame of a kafka_asset · "
                "this IO manager publishes slices of Kafka topics · give the asset another io_manager_key"
            )
        try:
            self._land(context, self.engine, landing, obj)
        except Unlanded as error:
            failures = [failure_of(why, self.engine, landing.stream, keys) for keys, why in error.failed]
            reasons = [
                f"{readable(keys)}: {one.description}" for (keys, _), one in zip(error.failed, failures, strict=True)
            ]
            for reason in reasons:
                context.log.error(reason)
            (_, first), failure = error.failed[0], failures[0]
            said = f"{error} · the first, {reasons[0]}"
            # By the last of them it ended, where it did not go on to the end.
            told = {
                **failure.metadata,
                DIVIDES: dg.MetadataValue.bool(divides(error.failed[-1][1])),
                FAILED: dg.MetadataValue.json(reasons),
                UNTRIED: dg.MetadataValue.int(error.left),
            }
            raise dg.Failure(said, metadata=told, allow_retries=failure.allow_retries) from first
        except Exception as error:
            raise failure_of(error, self.engine, landing.stream, landing.keys) from error

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """The rows that the upstream has committed for the run's slices; refused while one is not committed.

        For a Dagster asset on the same partitions that takes them as an argument. They pass through this
        process, and nobody asks again whether they still stand: `slice_asset` reads in chunks, and does.
        """
        above = context.upstream_output
        stream = None if above is None else declared_by(above.definition_metadata)
        if stream is None or stream.upsert is not None or not context.has_asset_partitions:
            raise dg.Failure(
                f"{context.asset_key.to_user_string()} cannot be read by slices · it is no append table of a "
                "kafka_asset or slice_asset, or this asset has not its partitions · use deps=[…], and read the table"
            )
        spark = SparkSession.getActiveSession() or self._spark.spark_session
        try:
            rows = committed_rows(
                self.engine,
                asset=stream.asset,
                target=stream.target,
                keys=sorted(SliceKey.parse(key) for key in context.asset_partition_keys),
                declared=landed_schema(declared(stream.schema_, stream.format)),
            )
        except KafkaAssetsError as error:
            raise dg.Failure(str(error), allow_retries=isinstance(error, Retryable)) from error
        context.add_input_metadata({"read": {str(key): read for key, read in rows.fingerprints().items()}})
        parts = (part for key in rows.slices for part in rows.batches(key))
        return frame_of(spark, pa.concat_tables([rows.schema.empty_table(), *parts]))

    def upstream_rows(self, stream: Derived, keys: Sequence[SliceKey]) -> CommittedRows:
        """What a `slice_asset` works on. A key may be materialized by hand before a tick has come by: it is planned."""
        require_same(self.engine, stream)
        add_publications(self.engine, asset=stream.asset, stream=stream.root)
        return committed_rows(
            self.engine,
            asset=stream.upstream,
            target=stream.upstream_target,
            keys=keys,
            declared=landed_schema(declared(stream.schema_, stream.format)),
        )

    def keep_failure(
        self,
        stream: Stream,
        keys: Sequence[SliceKey],
        *,
        run_id: str,
        asked: Asked,
        code_version: str,
        error: Exception,
    ) -> dg.Failure:
        """Write down why the slices of a run never came to be landed; what Dagster is told of it."""
        keep_failure(
            self.engine,
            stream,
            keys,
            run_id=run_id,
            replaces=asked.replaces,
            keeps=asked.keeps,
            code_version=code_version,
            error=error,
        )
        return failure_of(error, self.engine, stream, keys)

    def _land(self, context: dg.OutputContext, engine: Engine, landing: Landing, frame: object) -> None:
        asked = asked_of(landing.tags, run_of=context.step_context.instance.get_run_by_id)
        force = landing.tags.get(FORCE_TAG) == "true"
        say = cast("Callable[[str], None]", context.log.info)
        published = land(engine, landing, frame, Asking(asked.replaces, force, asked.keeps, say))
        with shared_reads(engine):
            self._tell(context, engine, landing, published)

    def _tell(
        self, context: dg.OutputContext, engine: Engine, landing: Landing, published: Sequence[Published]
    ) -> None:
        """Say of each key what became of it, as the ledger has it."""
        rows = results(engine, [one.publication.id for one in published])
        lags = lag_after(engine, landing.stream)
        for one in published:
            told = metadata_of(rows[one.publication.id], landing.stream)
            if one.outcome is not None:
                told |= step_seconds(one.seconds)
            told["lag_after"] = lags.get((one.publication.key.topic, one.publication.key.partition), 0)
            if len(published) <= PREVIEWED:
                told |= preview(engine, landing.stream, one.publication)
            # What is made of another asset's rows says which attempt's: its fingerprint is no record's.
            others = one.other_records and not isinstance(landing.stream, Derived)
            if others:
                told["other_records"] = True
            landing.tell(str(one.publication.key), told)
            if one.outcome is None:
                context.log.info(f"slice {one.publication.key} was committed before: nothing to do")
            elif others:
                context.log.info(
                    f"slice {one.publication.key} was replayed with other records than those committed before: "
                    f"{one.outcome.records_read} now, {one.publication.records_read} then, with another fingerprint"
                )
