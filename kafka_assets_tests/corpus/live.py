"""Records as live mode takes them, made from keys and values: the same that `frames` makes for Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_assets.live.batch import Batch

AT_MS = 1_704_067_200_000


def batch(keys: Sequence[bytes | None], values: Sequence[bytes | None], *, first: int = 0) -> Batch:
    """One record for each value, its offset the value's place."""
    count = len(values)
    return Batch(
        offsets=list(range(first, first + count)),
        values=list(values),
        keys=list(keys),
        stamps=[(1, AT_MS)] * count,
        headers=[[("trace", b"\xff"), ("none", None)]] * count,
    )


def records_of(
    keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> Iterator[tuple[bytes | None, bytes | None, str, int, int]]:
    """Key, value, topic, partition and offset."""
    return ((key, value, "orders", 3, at) for at, (key, value) in enumerate(zip(keys, values, strict=True)))
