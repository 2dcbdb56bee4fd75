"""How an asset's records land without Spark: as they come, through a function of Arrow tables, or not at all.

The asset's declaration leaves it on the asset; the live consumer, which knows no Dagster, takes it from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_assets.errors import StreamError
from kafka_assets.streams import Derived, Stream

if TYPE_CHECKING:
    import pyarrow as pa

ArrowFunction = Callable[["pa.Table"], "pa.Table"]

_ATTRIBUTE = "_kafka_assets_arrow_form"


@dataclass(frozen=True)
class ArrowForm:
    """A stream, and what of its asset can be done without Spark."""

    stream: Stream
    code_version: str
    function: ArrowFunction | None = None
    """Gives the rows of a table of records: the same for any part of it, with `kafka_partition` and `kafka_offset`."""
    spark_only: bool = False
    """Whether its transform is a function of Spark DataFrames, and there is no other."""

    def require_live(self) -> None:
        """Refuse what a consumer of single batches cannot land."""
        stream = self.stream
        if isinstance(stream, Derived):
            raise StreamError(
                f"{stream.name!r} reads no topic: it is made of the rows of {stream.upstream!r}",
                why="live consumes topics",
                cure=f"consume {stream.root!r} live; {stream.name!r} lands from its closed windows, by the sensor",
            )
        if stream.scope == "slice":
            raise StreamError(
                f"the stream {stream.name!r} declares scope: slice, and cannot be consumed live",
                why="its function sees all records of one slice at once, and a live window is not whole while it grows",
                cure="land it by the sensor, or make its function one of single records",
            )
        if self.spark_only:
            raise StreamError(
                f"the stream {stream.name!r} cannot be consumed live: its function needs Spark",
                why="live decodes and lands without Spark, which takes longer to begin than a batch may last",
                cure=f"give @kafka_asset an Arrow form of it too: arrow=function, which takes the records as a "
                f"pyarrow.Table and returns the rows; or land {stream.name!r} by the sensor",
            )


def keep_form(asset: object, form: ArrowForm) -> None:
    """Leave the form on an asset."""
    setattr(asset, _ATTRIBUTE, form)


def form_of(asset: object) -> ArrowForm | None:
    """The form that an asset was declared with; None for any other object."""
    return getattr(asset, _ATTRIBUTE, None)
