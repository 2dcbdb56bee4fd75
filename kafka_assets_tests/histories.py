"""Two ledgers that differ in history alone, and what is read on each."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from kafka_assets.audit import bench_ledger, streams
from kafka_assets.audit.bench_ledger import analyze, desk, reads_of
from kafka_assets.audit.scratch import scratch_ledger
from kafka_assets.ledger import behind, derived, health, quarantined

SIZES = (3_000, 9_000)
FEW = 50
"""So many rows more are none of history's, which is 6,000 slices longer: a server reads a row twice now and then."""


def grown(
    url: str, patch: pytest.MonkeyPatch, *, within: float = 1.05, loaded: bool = False
) -> dict[str, tuple[int, int]]:
    """The operations that read more with three times the history, with how much that is on each ledger.

    What is bounded by a number is bounded by a small one here, so that little history is enough to reach it.
    With `loaded`, what is read before the server has gathered its statistics counts, too.
    """
    for module, name in (
        (behind, "LATELY"),
        (health, "LATELY"),
        (behind, "_PAGE"),
        (health, "LOWEST"),
        (derived, "LOOK"),
        (streams, "QUARANTINED"),
        (quarantined, "LOOKED"),
        (quarantined, "LEAST"),
    ):
        patch.setattr(module, name, 10)
    patch.setattr(bench_ledger, "SHOWN", 5)
    with ExitStack() as stack:
        reads: list[dict[str, int]] = []
        for size in SIZES:
            one = stack.enter_context(desk(stack.enter_context(scratch_ledger(url)), slices=size))
            before = reads_of(one) if loaded else {}
            analyze(one.engine)
            reads.append({name: max(count, before.get(name, 0)) for name, count in reads_of(one).items()})
    few, many = reads
    assert [name for name, count in few.items() if not count] == [], "whoever reads nothing was not counted"
    return {name: (few[name], many[name]) for name in few if many[name] > within * few[name] + FEW}
