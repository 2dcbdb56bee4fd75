"""A chunk that is more than Spark lets through: an error that says which limits there are."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from kafka_assets.errors import ChunkTooLarge

_LIMIT = "spark.driver.maxResultSize"


@contextmanager
def let_through() -> Generator[None]:
    """Queries whose results come here. Where one is too large for its driver, it leaves as `ChunkTooLarge`."""
    try:
        yield
    except Exception as error:
        if _LIMIT not in str(error):
            raise
        raise ChunkTooLarge(
            "a chunk of the slice is more than Spark's driver lets through at once",
            why=next(line for line in str(error).splitlines() if _LIMIT in line).strip()[:300],
            cure="raise spark.driver.maxResultSize, and the driver's memory with it; slices that are not planned yet "
            "are helped by a lower slices.max_records, too: a chunk is never more than its slice",
        ) from error
