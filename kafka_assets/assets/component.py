"""`type: kafka_assets.KafkaTopic`: a stream declared in YAML, by a Dagster component."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields themselves.
import re
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from kafka_assets.assets.appearance import Appearance, source_spec
from kafka_assets.assets.checks import checks_of, the_health_sensor
from kafka_assets.assets.decorator import as_they_come, build_asset
from kafka_assets.assets.resources import default_resources
from kafka_assets.assets.sensor import the_sensor
from kafka_assets.ledger.dagster_storage import refuse_storage
from kafka_assets.streams import Stream, declare


class Slices(dg.Model, dg.Resolvable):
    """How offsets are cut."""

    max_records: int | None = Field(default=None, description="At most so many offsets a slice; 500,000 if not said.")
    max_delay: str | float | None = Field(default=None, description="How long offsets may wait for more; 10s.")
    per_tick: int | None = Field(default=None, description="So many slices are planned in one tick; 100.")
    records_per_tick: int | None = Field(default=None, description="And so many offsets; 50,000,000.")
    waiting: int | None = Field(default=None, description="None are planned while so many wait; 1,000.")
    runs: int | None = Field(default=None, description="So many runs land them at a time; 4.")


class SkipWhenBehind(dg.Model, dg.Resolvable):
    """What is left out where a partition is too far behind."""

    records: int | None = Field(default=None, description="More unread offsets than this are too many.")
    age: str | float | None = Field(default=None, description="An older unread record is too old.")
    keep: int = Field(description="So many of the newest offsets are read all the same.")
    every: str | float | None = Field(default=None, description="At most once in so long; 15m.")
    stale_keys: bool | None = Field(
        default=None, description="With upsert: accept rows that are not brought up to date."
    )


class KafkaTopic(dg.Component, dg.Model, dg.Resolvable):
    """A Kafka topic that lands in a SQL table exactly once: one asset, whose partitions are slices of the topic."""

    topic: str | None = Field(default=None, description="The topic.")
    topics: str | None = Field(default=None, description="Instead of topic: all topics that match this pattern.")
    target: str = Field(description="The table; one asset owns it.")
    schema_: str = Field(alias="schema", description='The columns, for example "id BIGINT NOT NULL, note STRING".')
    name: str | None = Field(default=None, description="The asset's name, here and in the ledger; the target's.")
    mode: Literal["append", "upsert"] | None = Field(default=None, description="append, or upsert with a key.")
    key: list[str] | None = Field(default=None, description="With upsert: the columns that tell rows apart.")
    order_by: str | None = Field(default=None, description="With upsert: which version of a key wins.")
    format: str | None = Field(default=None, description="json, string or bytes.")
    slices: Annotated[Slices | None, dg.Resolver.default()] = Field(default=None, description="How offsets are cut.")
    start: str | None = Field(default=None, description="earliest, latest, none or a timestamp.")
    scope: Literal["record", "slice"] | None = Field(default=None, description="Whether it sees records or slices.")
    evolve: Literal["none", "add_columns"] | None = Field(default=None, description="What new columns do to the table.")
    on_bad: Literal["quarantine", "fail"] | None = Field(default=None, description="What a bad record does.")
    max_bad_ratio: float | None = Field(default=None, description="More bad records than this fail the slice.")
    on_expired: Literal["fail", "record"] | None = Field(default=None, description="What expired offsets do.")
    skip_when_behind: Annotated[SkipWhenBehind | None, dg.Resolver.default()] = Field(
        default=None, description="What is left out where a partition is too far behind; nothing if not said."
    )
    max_attempts: int | None = Field(default=None, description="So many failures alone, and a slice is given up.")
    group: str | None = Field(default=None, description="The asset's name in the ledger; its name in Dagster.")
    keep_keys: str | float | None = Field(default=None, description="Dagster forgets keys older than this.")
    max_lag: str | float | None = Field(default=None, description="How long records may wait before a check says so.")
    preview: bool | None = Field(default=None, description="Whether Dagster's storage keeps a slice's first rows.")
    group_name: str | None = Field(default=None, description="The asset's group in Dagster.")
    owners: list[str] | None = Field(default=None, description="Who owns the asset.")
    tags: dict[str, str] | None = Field(default=None, description="The asset's tags.")
    pool: str | None = Field(default=None, description="The concurrency pool of its runs.")
    freshness: str | float | None = Field(default=None, description="So long after a materialization it is fresh.")
    description: str | None = Field(default=None, description="What the asset is.")
    code_version: str | None = Field(default=None, description="The version of the declaration; its digest.")

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
        """The asset. Of all components of this type the first one brings what they share, and the first
        of a topic brings that: Dagster copies what a component gives, and would meet it twice.
        """
        refuse_storage()
        everyone = context.component_tree.get_all_components(KafkaTopic)
        readers = [one for one in everyone if one.topic == self.topic]
        return dg.Definitions(
            assets=[self.asset, *([source_spec(self.topic)] if self.topic and readers[0] is self else [])],
            asset_checks=[checks_of(self.stream)],
            sensors=[the_sensor(), the_health_sensor()] if everyone[0] is self else [],
            resources=default_resources(),
        )
