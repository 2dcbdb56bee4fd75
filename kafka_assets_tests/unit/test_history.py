"""What was landed long ago costs nothing: no operation reads more on a ledger with four times the history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from kafka_assets.audit.bench_ledger import desk, reads_of
from kafka_assets.audit.scratch import scratch_ledger

SIZES = (5_000, 20_000)
GROWN = {"command: slices --state lost", "command: streams"}
"""What reads more all the same: slices are no index of what was left out, and bad records are counted one by one."""


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, tuple[int, int]]]:
    """By operation what it reads with little history and with more of it, in steps of SQLite's machine."""
    url = f"sqlite:///{tmp_path_factory.mktemp('history') / 'ledger.db'}"
    with ExitStack() as stack:
        desks = [stack.enter_context(desk(stack.enter_context(scratch_ledger(url)), slices=size)) for size in SIZES]
        few, many = (reads_of(one) for one in desks)
        yield {name: (few[name], many[name]) for name in few}


def test_no_operation_reads_history(reads: Mapping[str, tuple[int, int]]) -> None:
    grown = {name: (few, many) for name, (few, many) in reads.items() if many > 1.05 * few and name not in GROWN}
    assert grown == {}
    assert all(few for few, _ in reads.values())
