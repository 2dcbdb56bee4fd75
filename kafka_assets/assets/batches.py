"""Batches of slices for one run each: keys that stand beside each other in Dagster, and not too much at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kafka_assets.ledger.requests import Due

MAX_KEYS = 100
"""Measured: each key costs a run about 50 ms in Dagster's storage."""


def in_batches(wanted: Sequence[Due], places: Mapping[str, int], *, max_offsets: int) -> Iterator[list[Due]]:
    """Cut what is due into runs: contiguous in Dagster's order, bounded in keys and offsets.

    A slice that was tried before runs with fewer neighbours, and then alone, so that one bad slice
    holds up nobody else and its failures count.
    """
    batch: list[Due] = []
    offsets = 0
    for one in sorted(wanted, key=lambda due: places[str(due.key)]):
        if batch and (
            places[str(one.key)] != places[str(batch[-1].key)] + 1
            or len(batch) >= min(company(one), company(batch[0]))
            or offsets + one.key.offsets > max_offsets
            or one.key.incarnation != batch[0].key.incarnation
        ):
            yield batch
            batch, offsets = [], 0
        batch.append(one)
        offsets += one.key.offsets
    if batch:
        yield batch


def company(one: Due) -> int:
    """With how many a slice may run."""
    return {0: MAX_KEYS, 1: 10}.get(one.attempt, 1)
