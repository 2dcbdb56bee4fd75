"""`type: kafka_assets.KafkaTopic`: a stream declared in YAML, by a Dagster component."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields themselves.
import re
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from kafka_assets.assets.appearance import Appearance
from kafka_assets.assets.decorator import build_asset
from kafka_assets.assets.making import as_they_come
from kafka_assets.assets.scaffolding import TopicScaffolder
from kafka_assets.errors import StreamError
from kafka_assets.ledger.dagster_storage import refuse_storage
from kafka_assets.streams import Stream, declare


def says(text: str) -> Any:
    """What an attribute is, for `dg`'s schema: of a field that has a default it drops pydantic's own description."""
    return dg.Resolver.default(description=text)


class Slices(dg.Model, dg.Resolvable):
    """How offsets are cut."""

    max_records: Annotated[int | None, says("At most so many offsets a slice; 500,000 if not said.")] = None
    max_delay: Annotated[str | float | None, says("How long offsets may wait for more; 10s.")] = None
    per_tick: Annotated[int | None, says("So many slices are planned in one tick; 100.")] = None
    records_per_tick: Annotated[int | None, says("And so many offsets; 50,000,000.")] = None
    waiting: Annotated[int | None, says("None are planned while so many wait; 1,000.")] = None
    runs: Annotated[int | None, says("So many runs land them at a time; 4.")] = None


class SkipWhenBehind(dg.Model, dg.Resolvable):
    """What is left out where a partition is too far behind."""

    records: Annotated[int | None, says("More unread offsets than this are too many.")] = None
    age: Annotated[str | float | None, says("An older unread record is too old.")] = None
    keep: Annotated[int, says("So many of the newest offsets are read all the same.")]
    every: Annotated[str | float | None, says("At most once in so long; 15m.")] = None
    stale_keys: Annotated[bool | None, says("With upsert: accept rows that are not brought up to date.")] = None


@dg.scaffold_with(TopicScaffolder)
class KafkaTopic(dg.Component, dg.Model, dg.Resolvable):
    """A Kafka topic that lands in a SQL table exactly once: one asset, whose partitions are slices of the topic."""

    topic: Annotated[str | None, says("The topic.")] = None
    topics: Annotated[str | None, says("Instead of topic: all topics that match this pattern.")] = None
    target: str = Field(description="The table; one asset owns it.")
    schema_: str = Field(alias="schema", description='The columns, for example "id BIGINT NOT NULL, note STRING".')
    name: Annotated[str | None, says("The asset's name, here and in the ledger; the target's.")] = None
    mode: Annotated[Literal["append", "upsert"] | None, says("append, or upsert with a key.")] = None
    key: Annotated[list[str] | None, says("With upsert: the columns that tell rows apart.")] = None
    order_by: Annotated[str | None, says("With upsert: which version of a key wins.")] = None
    format: Annotated[str | None, says("json, string or bytes.")] = None
    slices: Annotated[Slices | None, says("How offsets are cut.")] = None
    start: Annotated[str | None, says("earliest, latest, none or a timestamp.")] = None
    scope: Annotated[Literal["record", "slice"] | None, says("Whether it sees records or slices.")] = None
    evolve: Annotated[Literal["none", "add_columns"] | None, says("What new columns do to the table.")] = None
    on_bad: Annotated[Literal["quarantine", "fail"] | None, says("What a bad record does.")] = None
    max_bad_ratio: Annotated[float | None, says("More bad records than this fail the slice.")] = None
    on_expired: Annotated[Literal["fail", "record"] | None, says("What expired offsets do.")] = None
    skip_when_behind: Annotated[
        SkipWhenBehind | None, says("What is left out where a partition is too far behind; nothing if not said.")
    ] = None
    max_attempts: Annotated[int | None, says("So many failures alone, and a slice is given up.")] = None
    group: Annotated[str | None, says("The asset's name in the ledger; its name in Dagster.")] = None
    keep_keys: Annotated[str | float | None, says("Dagster forgets keys older than this.")] = None
    max_lag: Annotated[str | float | None, says("How long records may wait before a check says so.")] = None
    preview: Annotated[bool | None, says("Whether Dagster's storage keeps a slice's first rows.")] = None
    group_name: Annotated[str | None, says("The asset's group in Dagster.")] = None
    owners: Annotated[list[str] | None, says("Who owns the asset.")] = None
    tags: Annotated[dict[str, str] | None, says("The asset's tags.")] = None
    pool: Annotated[str | None, says("The concurrency pool of its runs.")] = None
    freshness: Annotated[str | float | None, says("So long after a materialization it is fresh.")] = None
    description: Annotated[str | None, says("What the asset is.")] = None
    code_version: Annotated[str | None, says("The version of the declaration; its digest.")] = None

    @property
    def declared(self) -> dict[str, Any]:
        """What was written, in the stream's own words; what was not is left to the stream's defaults."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        # What a target may be named, an asset may not always.
        given.setdefault("name", re.sub(r"\W+", "_", self.target))
        return given

    @property
    def stream(self) -> Stream:
        return declare(**Appearance.split(self.declared)[1])

    @property
    def asset(self) -> dg.AssetsDefinition:
        """The same asset as `@kafka_asset` makes of a function that returns its records."""
        return build_asset(self.stream, as_they_come, Appearance.split(self.declared)[0])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The asset; the first of all components brings what they share, where no `KafkaStreams` does."""
        # They load Spark, and who only lists what is declared in YAML needs the asset alone.
        from kafka_assets.assets.checks import checks_of
        from kafka_assets.assets.serving import components_of, serving

        refuse_storage()
        components = components_of(context)
        everyone = [one for one in components if isinstance(one, KafkaTopic)]
        mine = dg.Definitions(assets=[self.asset], asset_checks=[checks_of(self.stream)])
        if everyone[0] is not self or any(isinstance(one, KafkaStreams) for one in components):
            return mine
        return dg.Definitions.merge(mine, serving(context, [one.stream for one in everyone]))


class KafkaStreams(dg.Component, dg.Model, dg.Resolvable):
    """What the streams of a project share, where no KafkaTopic brings it: sensors, resources, checks and topics."""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        from kafka_assets.assets.serving import components_of, serving

        refuse_storage()
        components = components_of(context)
        if sum(isinstance(one, KafkaStreams) for one in components) > 1:
            raise StreamError(
                "the project has several components of the type kafka_assets.KafkaStreams",
                why="one serves all of its streams",
                cure="keep one of them",
            )
        return serving(context, [one.stream for one in components if isinstance(one, KafkaTopic)])
