"""`@kafka_asset`: a function of records becomes a Dagster asset whose partitions are slices of a topic."""

# No `from __future__ import annotations` here: Dagster checks the context's annotation itself, not its text.
import hashlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from kafka_assets.assets.appearance import Appearance, source_key
from kafka_assets.assets.making import as_they_come, called, making
from kafka_assets.assets.names import IO_MANAGER, KAFKA, SPARK, STREAM_METADATA, Brought
from kafka_assets.errors import StreamError
from kafka_assets.forms import ArrowForm, ArrowFunction, keep_form
from kafka_assets.sinks.steps import Steps
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream, declare, require_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform = Callable[..., "DataFrame"]


def kafka_asset(
    *,
    target: str,
    schema: str,
    topic: str | None = None,
    topics: str | None = None,
    name: str | None = None,
    arrow: ArrowFunction | None = None,
    **attributes: Any,
) -> Callable[[Transform], dg.AssetsDefinition]:
    """Declare that `topic`, or all that match the pattern `topics`, land in the table `target` by this function.

    The function takes `records` (and `context`, if it wants it) and returns a DataFrame. It must give
    the same rows for any subset of the records, since big slices are landed in chunks, and it must
    let `kafka_partition` and `kafka_offset` through, in mode upsert also the columns of `key` and `order_by`.
    With `scope="slice"` neither holds: it is called with all records of one slice, and may aggregate them.
    Records that delete a key it never sees; one that it leaves out leaves an earlier row of its key as it is.
    `arrow` is the same function for the live consumer: it takes the records as a pyarrow.Table, and returns the rows.
    Further attributes are those of :class:`kafka_assets.streams.Stream`, and those of
    :class:`kafka_assets.assets.appearance.Appearance`. The YAML component `kafka_assets.KafkaTopic` takes
    the same, and gives the same asset.
    """

    def decorate(function: Transform) -> dg.AssetsDefinition:
        shown, rest = Appearance.split({"description": inspect.getdoc(function), **attributes})
        declared = {"topic": topic, "topics": topics, "target": target, "schema": schema, **rest}
        stream = declare((*Appearance.names(), "arrow"), name=name or function.__name__, **declared)
        return build_asset(stream, function, shown, arrow=arrow)

    return decorate


def build_asset(
    stream: Stream, function: Transform, appearance: Appearance, *, arrow: ArrowFunction | None = None
) -> dg.AssetsDefinition:
    """The asset of a stream, for the decorator and the component alike."""
    if arrow is not None and stream.scope == "slice":
        raise StreamError(
            f"stream {stream.name!r} has an Arrow form, and declares scope: slice",
            why="an Arrow form is for the live consumer, which sees batches and never a whole slice",
            cure="leave arrow out",
        )
    if function is as_they_come:
        require_columns(stream)
    version = appearance.code_version or version_of(arrow or function, stream)
    form = ArrowForm(stream, version, arrow, spark_only=arrow is None and function is not as_they_come)
    with warnings.catch_warnings():
        # `single_run` is what makes a batch one transaction, and Dagster calls the parameter beta.
        warnings.filterwarnings("ignore", message=".*`backfill_policy`.*", category=dg.BetaWarning)
        asset = _asset(stream, function, appearance)
    keep_form(asset, form)
    return asset


def _asset(stream: Stream, function: Transform, appearance: Appearance) -> dg.AssetsDefinition:
    with_context = wants_context(function, stream)
    version = appearance.code_version or version_of(function, stream)

    shown = appearance.arguments(stream, table=stream.target, kinds={"kafka", "spark", "table"})
    asset = cast("Callable[..., Callable[[Any], dg.AssetsDefinition]]", dg.asset)(
        name=stream.name,
        partitions_def=dg.DynamicPartitionsDefinition(name=stream.partitions_name),
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=IO_MANAGER,
        required_resource_keys={Brought(KAFKA), Brought(SPARK), Brought(IO_MANAGER)},
        deps=_topics(stream),
        code_version=version,
        description=appearance.description or f"The topic {stream.reads} in the table {stream.target}.",
        **shown,
    )

    def land(context: dg.AssetExecutionContext) -> Any:
        # Spark is for runs: who only lists what is declared does not load it.
        from kafka_assets.assets.landing import Landing

        def tell(key: str, metadata: Mapping[str, Any]) -> None:
            context.add_asset_metadata(dict(metadata), partition_key=key)

        # Even a run of one key carries range tags: never `partition_key`.
        keys = tuple(sorted(SliceKey.parse(key) for key in context.partition_keys))
        steps = Steps()
        steps.now("spark")
        with making(context, stream, keys, code_version=version):
            frame = Landing(
                stream=stream,
                keys=keys,
                spark=getattr(context.resources, SPARK).spark_session,
                records=getattr(context.resources, KAFKA),
                transform=None
                if function is as_they_come
                else called(function, stream, context if with_context else None),
                code_version=version,
                tags=context.run.tags,
                run_id=context.run.run_id,
                tell=tell,
                steps=steps,
            ).frame()
        steps.now(None)
        return frame

    return asset(land)


def _topics(stream: Stream) -> list[dg.AssetKey]:
    """Topics that a pattern matches come and go; only one that is named stands in Dagster's graph."""
    return [source_key(stream.topic)] if stream.topic else []


def versions_of(assets: Iterable[dg.AssetsDefinition]) -> dict[str, str]:
    """The code version of each of these assets that lands a stream, by the stream's name."""
    return {
        stream.name: version
        for asset in assets
        if (stream := stream_of(asset)) is not None and (version := asset.code_versions_by_key[asset.key]) is not None
    }


def stream_of(asset: dg.AssetsDefinition) -> Stream | None:
    """The stream that an asset was declared with; None for any other asset."""
    # Dagster makes one definition of all specs of a project that nobody computes: that one has many keys.
    return declared_by(asset.metadata_by_key[asset.key]) if len(asset.keys) == 1 else None


def declared_by(metadata: Mapping[str, Any]) -> Stream | None:
    """The stream that stands in an asset's metadata."""
    found = metadata.get(STREAM_METADATA)
    return declare(**found.value) if isinstance(found, dg.JsonMetadataValue) and isinstance(found.value, dict) else None


def wants_context(function: Transform, stream: Stream, *, argument: str = "records") -> bool:
    """Whether the function takes Dagster's context, too."""
    parameters = list(inspect.signature(function).parameters)
    if parameters in (["context", argument], [argument]):
        return len(parameters) == 2
    raise StreamError(
        f"the function of stream {stream.name!r} takes ({', '.join(parameters)})",
        why=f"it is called with the {argument} of some offsets, and with Dagster's context where it asks for it",
        cure=f"declare it as ({argument}) or (context, {argument})",
    )


def version_of(function: Callable[..., Any], stream: Stream) -> str:
    """A version that changes with the declaration and with the function's source."""
    try:
        source = inspect.getsource(function)
    except OSError:
        source = function.__qualname__
    return hashlib.sha256((source + stream.model_dump_json(by_alias=True)).encode()).hexdigest()[:12]
