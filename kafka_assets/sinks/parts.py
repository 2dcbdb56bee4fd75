"""A table's rows in bounded parts, none of them empty: Arrow keeps what a filter has left nothing of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa


def filled(rows: pa.Table, *, most: int) -> Iterator[pa.RecordBatch]:
    """Parts of at most so many rows; a statement for no rows would be one without values."""
    batches = cast("list[Any]", rows.to_batches(max_chunksize=most))
    return (batch for batch in batches if batch.num_rows)
