"""How an asset looks in Dagster: who owns it, where it stands, what its columns and its topic are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from kafka_assets.assets.names import LANDS_TAG, STREAM_METADATA
from kafka_assets.errors import StreamError
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.schema import comment_of, declared, fields_of, spelled
from kafka_assets.streams import Duration, Stream

SOURCES_GROUP = "kafka_topics"
_LINEAGE = {
    SOURCE: "which incarnation of the topic; kafka_source.id",
    PARTITION: "the Kafka partition",
    OFFSET: "the offset",
}


@dataclass(frozen=True)
class Appearance:
    """What Dagster shows of an asset and the ledger does not know."""

    group_name: str | None = None
    owners: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    description: str | None = None
    pool: str | None = None
    """Dagster's concurrency pool: how many such runs go on at once, whatever the stream."""
    freshness: str | float | timedelta | None = None
    """So long after its last materialization the asset is no longer fresh; none, where a topic may be quiet."""
    code_version: str | None = None

    @classmethod
    def split(cls, attributes: Mapping[str, Any]) -> tuple[Appearance, dict[str, Any]]:
        """What of these attributes is for Dagster, and the rest, which is the stream's."""
        ours = cls.names()
        shown = {name: value for name, value in attributes.items() if name in ours and value is not None}
        return cls(**shown), {name: value for name, value in attributes.items() if name not in ours}

    @classmethod
    def names(cls) -> list[str]:
        """The attributes that are for Dagster."""
        return [one.name for one in fields(cls)]

    def arguments(self, stream: Stream, *, table: str, kinds: set[str]) -> dict[str, Any]:
        """What `dg.asset` is given."""
        return {
            "kinds": kinds,
            "group_name": self.group_name,
            "owners": list(self.owners),
            "tags": {LANDS_TAG: "slices", **self.tags},
            "pool": self.pool,
            "freshness_policy": _freshness(stream, self.freshness),
            "metadata": {
                STREAM_METADATA: dg.MetadataValue.json(stream.model_dump(mode="json", by_alias=True)),
                "kafka/topic": stream.reads,
                "dagster/table_name": table,
                "dagster/column_schema": column_schema(stream),
            },
        }


def column_schema(stream: Stream) -> dg.TableSchema:
    """The columns as they are declared; what a transform adds or leaves out shows in the table alone."""
    key = tuple(_LINEAGE) if stream.upsert is None else stream.upsert.key
    columns = [
        dg.TableColumn(
            field.name,
            spelled(field.type),
            description=comment_of(field),
            constraints=dg.TableColumnConstraints(nullable=field.nullable and field.name not in key),
        )
        for field in fields_of(declared(stream.schema_, stream.format))
    ]
    lineage = [
        dg.TableColumn(name, "BIGINT", description=said, constraints=dg.TableColumnConstraints(nullable=False))
        for name, said in _LINEAGE.items()
    ]
    return dg.TableSchema(
        columns=columns + (lineage if stream.upsert is None else []),
        constraints=dg.TableConstraints(other=[f"PRIMARY KEY ({', '.join(key)})"]),
    )


def source_key(topic: str) -> dg.AssetKey:
    """The key of the external asset that a topic is in Dagster's graph."""
    return dg.AssetKey(["kafka", topic])


@lru_cache(maxsize=10_000)
def source_spec(topic: str) -> dg.AssetSpec:
    """A topic as an external asset. One object for each: of two streams that read it, neither brings a second one."""
    return dg.AssetSpec(
        source_key(topic),
        description=f"The Kafka topic {topic}. Its partitions, offsets and retention stand in its observations.",
        kinds={"kafka"},
        group_name=SOURCES_GROUP,
        metadata={"kafka/topic": topic},
    )


def _freshness(stream: Stream, given: str | float | timedelta | None) -> dg.FreshnessPolicy | None:
    if given is None:
        return None
    window = timedelta()
    try:
        window = TypeAdapter[timedelta](Duration).validate_python(given)
        said = "Dagster knows no window below a minute" if window < timedelta(minutes=1) else ""
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
    if said:
        raise StreamError(
            f"stream {stream.name!r}: freshness: {said}",
            cure="write a duration of at least a minute, for example freshness: 1h",
        )
    return dg.FreshnessPolicy.time_window(fail_window=window)
