"""What a worker reads of a real topic: the committed records of exactly its ranges, or an error in words."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest

from kafka_assets import devstack
from kafka_assets.broker.connection import Connection, worker_config
from kafka_assets.broker.produce import Record, produce, transaction
from kafka_assets.broker.read import StoredRecord, read_range
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.decode import fetch
from kafka_assets.decode.fetch import GONE, NotFetched, Range
from kafka_assets_tests.freezing import frozen
from kafka_assets_tests.integration.consuming import delete_records
from kafka_assets_tests.integration.settling import settled

MB = 1 << 20
_numbers = itertools.count(1)


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker)


def new_topic(connection: Connection, *, partitions: int = 1, **config: str) -> str:
    name = f"fetched-{os.getpid()}-{next(_numbers)}"
    create_topic(connection, name, partitions=partitions, config=config)
    return name


def numbered(first: int, end: int, partition: int = 0) -> list[Record]:
    return [Record(b"%d" % number, partition=partition) for number in range(first, end)]


def batches(connection: Connection, *ranges: Range, valued: bool = False, **properties: str) -> Iterator[Any]:
    config = worker_config(connection) | {name.replace("_", "."): value for name, value in properties.items()}
    task = pa.RecordBatch.from_pydict({"id": pa.array(range(len(ranges)), pa.int64())})
    with closing(fetch.fetched([task], (config, ranges, valued))) as found:
        yield from found


def offsets(connection: Connection, topic: str, start: int, end: int, **more: Any) -> list[int]:
    found = batches(connection, (topic, 0, start, end), **more)
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def refused(connection: Connection, topic: str, start: int, end: int, *, partition: int = 0) -> dict[str, Any]:
    """What the error says."""
    with pytest.raises(NotFetched) as found:
        list(batches(connection, (topic, partition, start, end)))
    return json.loads(str(found.value))


# ---- holes -----------------------------------------------------------------------------------------------


def test_every_range_of_a_log_with_holes_has_exactly_its_committed_records(connection: Connection) -> None:
    topic = new_topic(connection)
    for number, end in enumerate(("abort", "commit", "abort")):  # 0..3, 4..7, 11..14
        if number == 2:
            produce(connection, topic, numbered(8, 11))
        with transaction(connection, topic, transactional_id=f"{topic}-{number}") as writing:
            writing.produce(numbered(0, 3))
            getattr(writing, end)()
    assert settled(connection, topic)[0].last_stable == 15
    seen = [4, 5, 6, 8, 9, 10]
    with transaction(connection, topic, transactional_id=topic) as hanging:
        hanging.produce(numbered(0, 2))  # so the end is the last stable offset, and the log goes on
        for start, end in itertools.combinations(range(16), 2):
            expected = [offset for offset in seen if start <= offset < end]
            assert offsets(connection, topic, start, end) == expected, (start, end)
        hanging.abort()


def test_what_a_compaction_has_left_is_read_past_its_holes(connection: Connection) -> None:
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100"}
    topic = new_topic(connection, **compacted, **{"max.compaction.lag.ms": "100", "delete.retention.ms": "0"})
    produce(connection, topic, [Record(b"1", key=b"first", partition=0)])
    produce(connection, topic, [Record(b"%d" % at, key=b"k", partition=0) for at in range(8)])
    deadline = time.monotonic() + 120
    written = 9
    while (found := offsets(connection, topic, 0, 9)) != [0]:
        assert time.monotonic() < deadline, f"never compacted: {found}"
        time.sleep(0.2)
        produce(connection, topic, [Record(b"9", key=b"k", partition=0)])  # begins a segment, and frees the last one
        written += 1
    for start, end in ((1, 9), (3, 5), (8, 9)):
        assert offsets(connection, topic, start, end) == [], "a range of nothing but holes"
    assert offsets(connection, topic, 0, written)[-1] == written - 1


def test_many_ranges_end_where_they_are_said_to_end_in_the_middle_of_what_is_fetched(connection: Connection) -> None:
    topic = new_topic(connection, partitions=3)
    for partition in range(3):
        produce(connection, topic, numbered(0, 1000, partition))
    cuts = [0, 1, 3, 400, 401, 999]
    ranges = [(topic, partition, *cut) for partition in (2, 0, 1) for cut in itertools.pairwise(cuts)]
    found = [
        (partition, offset, int(value))
        for batch in batches(connection, *ranges)
        for partition, offset, value in zip(
            *(batch.column(name).to_pylist() for name in ("partition", "offset", "value")), strict=True
        )
    ]
    assert found == [(partition, at, at) for partition in (2, 0, 1) for at in range(999)]


# ---- what is not there -------------------------------------------------------------------------------------


def test_records_that_are_not_there_are_told_at_once(connection: Connection) -> None:
    topic = new_topic(connection)
    produce(connection, topic, numbered(0, 10))
    delete_records(connection, topic, 6)
    assert offsets(connection, topic, 6, 10) == [6, 7, 8, 9]
    assert refused(connection, topic, 5, 10)["code"] in GONE
    assert refused(connection, topic, 20, 30)["code"] in GONE


def test_records_that_expire_while_a_range_is_read_are_never_jumped(connection: Connection) -> None:
    topic = new_topic(connection)
    produce(connection, topic, [Record(os.urandom(MB // 2), partition=0) for _ in range(60)])
    found: list[int] = []
    with pytest.raises(NotFetched) as told:
        for batch in batches(connection, (topic, 0, 0, 60)):
            found += batch.column("offset").to_pylist()
            delete_records(connection, topic, 59)
    assert json.loads(str(told.value))["code"] in GONE
    assert found == list(range(len(found)))
    assert 0 < len(found) < 59


def test_a_topic_or_partition_that_is_gone_is_told_in_words(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "GRACE", 0.5)
    topic = new_topic(connection)
    produce(connection, topic, numbered(0, 10))
    assert refused(connection, topic, 0, 10, partition=7)["code"] in GONE
    delete_topic(connection, topic)
    said = refused(connection, topic, 0, 10)
    assert said["code"] in GONE
    assert "topic" in said["why"]
    create_topic(connection, topic, partitions=1)
    produce(connection, topic, numbered(0, 3))
    assert refused(connection, topic, 5, 10)["code"] in GONE


def test_what_is_past_the_log_or_in_an_open_transaction_is_waited_for_in_vain(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PATIENCE", 1.5)
    topic = new_topic(connection)
    produce(connection, topic, numbered(0, 3))
    assert (said := refused(connection, topic, 0, 4))["at"] == 3
    assert "the log ends there" in said["why"]
    with transaction(connection, topic, transactional_id=topic) as writing:
        writing.produce(numbered(3, 6))
        assert refused(connection, topic, 0, 4)["at"] == 3
        writing.abort()


def test_who_takes_records_slowly_is_no_broker_that_stands_still(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "BLOCK", 1)
    monkeypatch.setattr(fetch, "PATIENCE", 2.0)
    monkeypatch.setitem(fetch.OURS, "statistics.interval.ms", "0")  # the first ones would be progress
    topic = new_topic(connection)
    produce(connection, topic, numbered(0, 1))
    reading = batches(connection, (topic, 0, 0, 2))
    assert next(reading).column("offset").to_pylist() == [0]
    time.sleep(2.2)
    late = threading.Timer(0.3, produce, (connection, topic, numbered(1, 2)))
    late.start()
    assert [batch.column("offset").to_pylist() for batch in reading] == [[1]]
    late.join()


def test_an_aborted_transaction_that_takes_longer_than_patience_is_passed(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection)
    one_by_one = Connection(connection.bootstrap_servers, {"batch.num.messages": "1"})
    with transaction(one_by_one, topic, transactional_id=topic) as writing:
        writing.produce(numbered(0, 15))
        writing.abort()
    produce(connection, topic, numbered(0, 1))
    settled(connection, topic)
    # A batch is all that comes at a time, and of no batch a record is seen; and for more the broker waits each time.
    monkeypatch.setitem(fetch.OURS, "fetch.wait.max.ms", "300")
    few = {"fetch_min_bytes": "1000000", "fetch_message_max_bytes": "1", "fetch_max_bytes": "1000"}
    monkeypatch.setitem(fetch.OURS, "statistics.interval.ms", "100")
    monkeypatch.setattr(fetch, "PATIENCE", 2.0)
    assert offsets(connection, topic, 0, 17, message_max_bytes="1000", **few) == [16]


# ---- a broker that stops -----------------------------------------------------------------------------------


@pytest.fixture
def alone(breakable: Path) -> Connection:
    """A broker that a test may stop."""
    servers = devstack.up(breakable, ["kafka"]).bootstrap_servers
    assert servers
    return Connection(servers)


def pid_of(folder: Path) -> int:
    [found] = [one for one in devstack.status(folder) if one.name.startswith("kafka")]
    return found.pid


def large(connection: Connection, *, count: int = 40) -> str:
    """A topic of which much is not fetched yet when the first records are taken."""
    topic = new_topic(connection)
    produce(connection, topic, [Record(b"%d" % at + os.urandom(MB // 2), partition=0) for at in range(count)])
    return topic


def test_a_broker_that_stands_still_for_a_while_is_read_on(alone: Connection, breakable: Path) -> None:
    topic = large(alone)
    reading = batches(alone, (topic, 0, 0, 40))
    found: list[int] = next(reading).column("offset").to_pylist()
    with frozen(pid_of(breakable)):
        goes_on = threading.Thread(
            target=lambda: found.extend(at for batch in reading for at in batch.column("offset").to_pylist())
        )
        goes_on.start()
        time.sleep(1)
        assert goes_on.is_alive()
    goes_on.join(60)
    assert found == list(range(40))


def test_a_broker_that_does_not_come_back_is_given_up(
    alone: Connection, breakable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = large(alone)
    monkeypatch.setattr(fetch, "PATIENCE", 2.0)
    for way in ("frozen", "killed"):
        reading = batches(alone, (topic, 0, 0, 40))
        found: list[int] = next(reading).column("offset").to_pylist()
        with pytest.raises(NotFetched) as told:
            if way == "killed":
                os.kill(pid_of(breakable), 9)
                found += [at for batch in reading for at in batch.column("offset").to_pylist()]
            else:
                with frozen(pid_of(breakable)):
                    found += [at for batch in reading for at in batch.column("offset").to_pylist()]
        assert found == list(range(len(found)))
        assert 0 < len(found) < 40
        said = json.loads(str(told.value))
        assert said["code"] not in GONE
        assert len(found) <= said["at"] < said["end"] == 40


def test_a_broker_that_is_killed_and_comes_again_is_read_on(alone: Connection, breakable: Path) -> None:
    topic = large(alone)
    reading = batches(alone, (topic, 0, 0, 40))
    found: list[int] = next(reading).column("offset").to_pylist()
    os.kill(pid_of(breakable), 9)
    with ThreadPoolExecutor(1) as pool:
        goes_on = pool.submit(lambda: [at for batch in reading for at in batch.column("offset").to_pylist()])
        assert devstack.up(breakable, ["kafka"]).bootstrap_servers == alone.bootstrap_servers
        found += goes_on.result(60)
    assert found == list(range(40))


# ---- records of all kinds ----------------------------------------------------------------------------------


def same(batch: Any, records: Sequence[StoredRecord]) -> bool:
    return [
        (row["offset"], row["key"], row["value"], row["timestamp"], row["timestampType"], row["headers"] or [])
        for row in batch.to_pylist()
    ] == [
        (
            *(one.offset, one.key, one.value, one.timestamp_ms, one.timestamp_type),
            [{"key": name, "value": value} for name, value in one.headers],
        )
        for one in records
    ]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_all_kinds_come_as_another_reader_has_them(connection: Connection, compression: str) -> None:
    topic = new_topic(connection)
    parts: list[bytes | None] = [None, b"", b"x", b"\0\xff" * 40, b"long" * 5_000]
    headers: list[Any] = [
        (),
        (("a", b"1"),),
        (("", None), ("a", b""), ("a", b"\xff")),
        [(f"h{at}", b"v") for at in range(300)],
    ]
    kinds = itertools.product(parts, parts, headers)
    sent = [
        Record(value, key=key, partition=0, timestamp_ms=1_700_000_000_000 + at, headers=some)
        for at, (key, value, some) in enumerate(kinds)
    ]
    produce(Connection(connection.bootstrap_servers, {"compression.type": compression}), topic, sent)
    stored = list(read_range(connection, topic, 0, 0, len(sent)))
    assert same(pa.Table.from_batches(batches(connection, (topic, 0, 0, len(sent)))), stored)
    valued = [one for one in stored if one.value is not None]
    assert len(valued) < len(stored)
    assert same(pa.Table.from_batches(batches(connection, (topic, 0, 0, len(sent)), valued=True)), valued)


def test_bytes_that_a_disk_has_changed_are_no_record(connection: Connection, services_folder: Path) -> None:
    topic = new_topic(connection)
    produce(connection, topic, [Record(b"as it was", partition=0)])
    [log] = services_folder.glob(f"kafka-1/data/{topic}-0/*.log")
    written = log.read_bytes()
    with log.open("r+b") as file:
        file.seek(written.index(b"was"))
        file.write(b"is")
    said = refused(connection, topic, 0, 1)
    assert said["at"] == 0
    assert "CRC" in said["why"]


def test_large_records_among_small_ones_and_a_great_many_of_these(broker: str, connection: Connection) -> None:
    topic = new_topic(connection, **{"max.message.bytes": str(10 * MB)})
    roomy = Connection(broker, {"message.max.bytes": str(10 * MB)})
    sizes = [3, 8 * MB, 0, 8 * MB, *[1] * 50_000, 8 * MB, 5]
    produce(roomy, topic, (Record(b"v" * size, partition=0) for size in sizes))
    found: list[int] = []
    for batch in batches(connection, (topic, 0, 0, len(sizes))):
        found += pa.compute.binary_length(batch.column("value")).to_pylist()
        assert batch.num_rows < 3 * fetch.BLOCK
    assert found == sizes


PEAK = """
import json, sys, pyarrow as pa
from kafka_assets.decode import fetch
import confluent_kafka
def peak():
    with open("/proc/self/status") as told:
        return next(int(line.split()[1]) // 1024 for line in told if line.startswith("VmHWM"))
asked = json.load(sys.stdin)
before = peak()
task = pa.RecordBatch.from_pydict({"id": [0]})
read = sum(batch.num_rows for batch in fetch.fetched([task], (asked["config"], [asked["range"]], False)))
print(json.dumps([read, peak() - before]))
"""


def test_a_task_over_large_records_holds_few_of_them(connection: Connection) -> None:
    topic = new_topic(connection)
    produce(connection, topic, (Record(os.urandom(MB - 80_000), partition=0) for _ in range(80)))
    asked = json.dumps({"config": worker_config(connection), "range": [topic, 0, 0, 80]})
    told = subprocess.run([sys.executable, "-c", PEAK], input=asked, capture_output=True, text=True, check=True)
    read, grown = json.loads(told.stdout)
    assert read == 80
    assert grown < 75, f"{grown} MB more, of 80"


def test_neither_a_thread_nor_a_connection_is_left_of_what_was_read_or_given_up(connection: Connection) -> None:
    topic = new_topic(connection)
    produce(connection, topic, [Record(os.urandom(MB // 2), partition=0) for _ in range(30)])

    def held() -> tuple[int, int]:
        sockets = [one for one in Path("/proc/self/fd").iterdir() if "socket" in str(_target(one))]
        return len(list(Path("/proc/self/task").iterdir())), len(sockets)

    assert offsets(connection, topic, 0, 2) == [0, 1]
    before = held()
    for start in range(10):
        assert offsets(connection, topic, start, start + 2) == [start, start + 1]
        some = batches(connection, (topic, 0, 0, 30))
        next(some)
        some.close()  # a task whose room was used up, or that is cancelled
    assert held() == before


def _target(link: Path) -> Path | None:
    try:
        return link.readlink()
    except FileNotFoundError:
        return None
