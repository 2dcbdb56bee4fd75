"""What an asset's function makes of its slices, and what becomes of them where it makes nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import dagster as dg
from pyspark.sql import DataFrame

from kafka_assets.assets.ending import ended
from kafka_assets.assets.names import IO_MANAGER
from kafka_assets.assets.reruns import Asked, asked_of
from kafka_assets.assets.run_tags import digest_of
from kafka_assets.errors import KafkaAssetsError, KeysUnknown, StreamError
from kafka_assets.slices import SliceKey, digest
from kafka_assets.spark.project_modules import claim
from kafka_assets.spark.reached import reached
from kafka_assets.streams import Stream


@runtime_checkable
class KeepsFailures(Protocol):
    """An IO manager with a ledger behind it; what stands in for one in a test need not have it."""

    def keep_failure(
        self,
        stream: Stream,
        keys: Sequence[SliceKey],
        *,
        run_id: str,
        asked: Asked,
        code_version: str,
        error: Exception,
    ) -> dg.Failure: ...


@contextmanager
def making(
    context: dg.AssetExecutionContext, stream: Stream, keys: Sequence[SliceKey], *, code_version: str
) -> Generator[None]:
    """All that happens before the IO manager claims the slices: Spark's session, the schema, the function itself.

    What is raised here is written into the claims, as what is raised later: else nobody would count it, and the
    slices would be asked for each minute, for ever. Somebody's ending the run is no failure.
    """
    verify_keys(keys, context.run.tags)
    try:
        with reached():
            yield
    except Exception as error:
        ledger = getattr(context.resources, IO_MANAGER)
        if not isinstance(ledger, KeepsFailures) or ended(error):
            raise
        try:
            asked = asked_of(context.run.tags, run_of=context.instance.get_run_by_id)
            failure = ledger.keep_failure(
                stream, keys, run_id=context.run.run_id, asked=asked, code_version=code_version, error=error
            )
        except KafkaAssetsError as unkept:
            context.log.warning(f"the ledger was not told of this failure: {unkept}")
            raise error from None
        raise failure from error


def called(
    function: Callable[..., object], stream: Stream, context: dg.AssetExecutionContext | None
) -> Callable[[DataFrame], DataFrame]:
    """The function as a landing calls it, with the context where it takes one."""
    claim(function)

    def transform(records: DataFrame) -> DataFrame:
        made = function(records) if context is None else function(context, records)
        if isinstance(made, DataFrame):
            return made
        raise StreamError(
            f"the function of stream {stream.name!r} returned {made!r:.100}, which is no DataFrame",
            why="what it returns is what lands",
            cure="end it with `return` and the DataFrame; to land the records as they come, return those",
        )

    return transform


def verify_keys(keys: Sequence[SliceKey], tags: Mapping[str, str]) -> None:
    """A range in Dagster takes whatever was inserted between its ends, and a reversed one takes nothing."""
    if not keys:
        raise KeysUnknown(
            "the run has no slice",
            why="its partition range is reversed or empty",
            cure="materialize again, with keys that exist",
        )
    wanted = digest_of(tags)
    if wanted is not None and wanted != digest(str(key) for key in keys):
        raise KeysUnknown(
            "the run holds other keys than those it was requested for",
            why="keys were added to Dagster between the ends of its range",
            cure="nothing: the sensor requests the slices again",
        )
