"""What the experiments count, and what they understand of what they are told; the experiments need brokers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kafka_assets.errors import Permanent
from kafka_assets.lab import segments
from kafka_assets.lab.child import Child
from kafka_assets.lab.outcome import counted
from kafka_assets.lab.sightings import Sightings

# Printed by Kafka 4.3.1's DumpLogSegments, shortened.
DUMPED = """\
Dumping /data/orders-0/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 9 count: 10 baseSequence: 0 lastSequence: 9 producerId: 7 producerEpoch: 0 \
partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 \
CreateTime: 1700000000000 size: 178 magic: 2 compresscodec: zstd crc: 123 isvalid: true
Dumping /data/orders-0/00000000000000000000.index
offset: 9 position: 178
Dumping /data/orders-0/00000000000000000000.timeindex
timestamp: 1700000000000 offset: 9
Found timestamp mismatch in :/data/orders-0/00000000000000000000.timeindex
"""


def test_what_is_missing_is_lost_and_each_further_copy_is_doubled() -> None:
    found = counted("mode", records=5, expected=[0, 1, 2, 3], found=[1, 1, 1, 2, 4], note="x")
    assert found.row == {"mode": "mode", "records": 5, "lost": 2, "doubled": 2, "note": "x"}


def test_what_was_never_promised_is_not_lost_and_may_be_there() -> None:
    assert counted("mode", records=3, expected=[], found=[7]).row == {
        "mode": "mode",
        "records": 3,
        "lost": 0,
        "doubled": 0,
    }


def said(stage: str, at: float, **more: Any) -> dict[str, Any]:
    return {"stage": stage, "at": at, **more}


def handled(at: float, **offsets: list[int]) -> dict[str, Any]:
    return said("handled", at, offsets={name.removeprefix("p"): found for name, found in offsets.items()})


def test_a_partition_stops_when_it_is_taken_or_its_owner_goes() -> None:
    seen = Sightings()
    seen.add("a", said("assigned", 1.0, partitions=[0, 1]))
    seen.add("a", handled(2.0, p0=[0], p1=[0]))
    seen.add("a", said("revoked", 3.0, partitions=[1]))
    seen.add("b", said("assigned", 6.0, partitions=[1]))
    seen.add("a", handled(2.5, p0=[1]))
    seen.add("b", handled(6.5, p1=[1]))
    assert seen.stopped(2.9, 7.0) == {1}
    assert seen.stopped(3.1, 7.0) == set()
    assert seen.pause(1, 2.9, 7.0) == pytest.approx(4.5)
    assert seen.owned == {"a": {0}, "b": {1}}
    seen.gone("b")
    assert seen.stopped(7.0, float("inf")) == {1}


def test_the_dump_of_a_log_and_its_indexes_is_understood() -> None:
    [batch] = segments.batches_of(DUMPED)
    assert (batch.base_offset, batch.last_offset, batch.records, batch.codec) == (0, 9, 10, "zstd")
    assert (batch.position, batch.size, batch.producer_id, batch.base_sequence) == (0, 178, 7, 0)
    index, time_index = segments.entries_of(DUMPED)
    assert (index.offset, index.position, index.timestamp) == (9, 178, None)
    assert (time_index.offset, time_index.position, time_index.timestamp) == (9, None, 1_700_000_000_000)


@pytest.mark.slow
def test_a_process_that_fails_says_why() -> None:
    with Child("kafka_assets.lab.member", {}) as child, pytest.raises(Permanent, match="ended with 1") as raised:
        child.said()
    assert "KeyError" in raised.value.why


@pytest.mark.slow
def test_a_process_that_is_silent_is_not_waited_for_for_ever() -> None:
    with Child("kafka_assets.lab.child", {}) as child:
        assert child.said() is None  # the module alone does nothing, and ends in peace
    with Child("kafka_assets.lab.member", {}) as child, pytest.raises(Permanent, match="said nothing"):
        child.said(patience=0.01)


def test_the_example_of_the_page_on_partitions_is_so() -> None:
    page = (Path(__file__).parents[2] / "docs" / "partitions.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    exec(compile(example, "partitions.md", "exec"), {})
