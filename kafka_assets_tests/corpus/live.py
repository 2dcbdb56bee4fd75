"""Records as live mode takes them, made from keys and values: the same that `frames` makes for Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from kafka_assets.decode.messages import Headers
from kafka_assets.live.batch import Batch, Columns

AT_MS = 1_704_067_200_000


def batch(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    *,
    first: int = 0,
    partition: int = 3,
    stamps: Sequence[tuple[int, int]] | None = None,
    headers: Headers | None = (("trace", b"\xff"), ("none", None)),
) -> Batch:
    """One record for each value, its offset the value's place; of none a batch without parts."""
    count = len(values)
    if not count:
        return Batch()
    columns = Columns(
        partition=partition,
        offsets=np.arange(first, first + count),
        values=pa.array(values, pa.binary()),
        keys=pa.array(keys[:count], pa.binary()),
        stamps=np.array(stamps or [(1, AT_MS)] * count, dtype=np.int64),
        headers=None if headers is None else [list(headers)] * count,
    )
    return Batch([columns])


def records_of(
    keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> Iterator[tuple[bytes | None, bytes | None, str, int, int]]:
    """Key, value, topic, partition and offset."""
    return ((key, value, "orders", 3, at) for at, (key, value) in enumerate(zip(keys, values, strict=True)))
