"""`dg scaffold defs kafka_assets.KafkaTopic orders --schema '…'`: a file that lands as it is written."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields themselves.
import re
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field, model_validator

from kafka_assets.errors import StreamError
from kafka_assets.streams import declare, require_columns


class TopicParams(BaseModel):
    """What is asked for: the least that a stream needs."""

    model_config = ConfigDict(populate_by_name=True)  # Dagster makes it anew of what it holds

    schema_: str = Field(
        default="",
        alias="schema",
        description="The columns, for example 'id BIGINT NOT NULL, note STRING'; if not said, a text for each value.",
    )
    topic: str = Field(default="", description="The topic; the folder's name if not said.")
    target: str = Field(default="", description="The table; the topic's name if not said, with _ for . and -.")
    key: str = Field(default="", description="Mode upsert: the columns that tell rows apart, with commas between.")

    def attributes(self, name: str) -> dict[str, Any]:
        """What the file says; `name` is its folder's."""
        topic = self.topic or name
        given: dict[str, Any] = {"topic": topic, "target": self.target or re.sub(r"\W+", "_", topic)}
        given |= {"schema": self.schema_} if self.schema_ else {"format": "string", "schema": "value STRING"}
        return given | ({"mode": "upsert", "key": [one.strip() for one in self.key.split(",")]} if self.key else {})

    @model_validator(mode="after")
    def _lands(self) -> Self:
        try:  # what is wrong is said before there is a file
            require_columns(declare(name="scaffolded", **self.attributes("scaffolded")))
        except StreamError as error:
            raise ValueError(str(error)) from error
        return self


class TopicScaffolder(dg.Scaffolder[TopicParams]):
    """Writes the component's file."""

    @classmethod
    def get_scaffold_params(cls) -> type[TopicParams]:
        return TopicParams

    def scaffold(self, request: dg.ScaffoldRequest[TopicParams]) -> None:
        dg.scaffold_component(request, request.params.attributes(request.target_path.name))
