"""Batches of slices for one run each: keys that stand beside each other in Dagster, and not too much at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from kafka_assets.ledger.requests import Due

MAX_KEYS = 100
"""Measured: each key costs a run about 50 ms in Dagster's storage."""
MAX_OFFSETS = 1_000_000
"""Of one transaction, which holds the locks of its slices, and their old rows, until it ends."""
RUN_OFFSETS = 4_000_000
"""Of a run beside which its caller carries out no other: it has several transactions, and reads what the next one
lands while one is committed. Where Dagster's daemon starts runs, several of one transaction each go side by side."""


def in_batches(wanted: Sequence[Due], places: Mapping[str, int], *, max_offsets: int) -> Iterator[list[Due]]:
    """Cut what is due into runs: contiguous in Dagster's order, bounded in keys and offsets; the most urgent first.

    A slice that was tried before runs with fewer neighbours, and then alone, so that one bad slice
    holds up nobody else and its failures count. What is `wanted` stands in the order of its urgency.
    """
    urgency = {one.publication_id: number for number, one in enumerate(wanted)}
    stand = [one for one in wanted if str(one.key) in places]
    cut = _cut(
        sorted(stand, key=lambda one: places[str(one.key)]),
        max_offsets=max_offsets,
        apart=lambda before, one: places[str(one.key)] != places[str(before.key)] + 1,
    )
    return iter(sorted(cut, key=lambda batch: min(urgency[one.publication_id] for one in batch)))


def urgent(wanted: Sequence[Due], *, runs: int, max_offsets: int) -> list[Due]:
    """The slices that fill so many runs: only their keys are added to Dagster.

    A key that is added stands behind all others: those of a long backlog would stand before the next
    slice of a partition that has none.
    """
    return [one for batch in islice(_cut(wanted, max_offsets=max_offsets), runs) for one in batch]


def _cut(
    some: Sequence[Due], *, max_offsets: int, apart: Callable[[Due, Due], bool] = lambda before, one: False
) -> Iterator[list[Due]]:
    batch: list[Due] = []
    offsets = 0
    for one in some:
        if batch and (
            apart(batch[-1], one)
            or len(batch) >= min(company(one), company(batch[0]))
            or offsets + one.key.offsets > max_offsets
        ):
            yield batch
            batch, offsets = [], 0
        batch.append(one)
        offsets += one.key.offsets
    if batch:
        yield batch


def grows(batch: Sequence[Due], *, max_offsets: int) -> bool:
    """Whether slices that are planned later will land with these, where nobody asks for a run of them yet."""
    few = 2 * sum(one.key.offsets for one in batch) < max_offsets
    return few and len(batch) < min(map(company, batch))


def company(one: Due) -> int:
    """With how many a slice may run."""
    return {0: MAX_KEYS, 1: 10}.get(one.attempt, 1)
