"""All that becomes of a slice comes out of one read of Kafka: nothing is asked for again, and no chunk is too large."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafka_assets.assets import land
from kafka_assets.assets import landing as landings
from kafka_assets.assets.resources import KafkaResource
from kafka_assets.broker.produce import Record, produce
from kafka_assets.records import Chunk
from kafka_assets.slices import Piece
from kafka_assets.spark import mailbox as mailboxes
from kafka_assets.spark.mailbox import Mailbox
from kafka_assets_tests.integration.project import Landing, failure_of

Declare = Callable[..., Landing]
BOOKS = "select sum(records_read), sum(landed), sum(quarantined), sum(holes) from kafka_publication"
ROADS = pytest.mark.parametrize("transform", [None, lambda records: records], ids=["as they come", "by a function"])


@ROADS
def test_a_topic_that_is_compacted_right_after_it_was_read_lands_all_the_same(
    landing: Declare, transform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = landing(transform=transform, mode="upsert", key=["id"], max_bad_ratio=1.0)
    stream.topic()
    given = [(b"1", b'{"id": 1}'), (b"1", None), (b"x", None), (b"2", b"{cut"), (b"3", b'{"id": 3, "note": "n"}')]
    produce(stream.connection, stream.name, (Record(key=key, value=value, partition=0) for key, value in given))
    reads: list[int] = []
    read = KafkaResource.read

    def compacted(self: KafkaResource, spark: SparkSession, pieces: Sequence[Piece], **more: Any) -> DataFrame:
        reads.append(1)
        found = read(self, spark, pieces, **more)
        # The asset's function is given its records first, and nobody reads those.
        return found if len(reads) <= 2 else found.where("offset >= 4")

    monkeypatch.setattr(KafkaResource, "read", compacted)
    stream.land()
    assert len(reads) == 2
    assert stream.rows(f"select id, note from {stream.name}") == [(3, "n")]
    kept = stream.rows("select kafka_offset, code, value from kafka_quarantine order by kafka_offset")
    assert kept == [(2, "tombstone_key", None), (3, "not_json", b"{cut")]
    books = "select records_read, landed, superseded, tombstoned, quarantined, holes from kafka_publication"
    assert stream.rows(books) == [(5, 1, 1, 1, 2, 0)]


@ROADS
def test_chunks_of_large_records_are_bounded_by_their_bytes(
    landing: Declare, transform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, room = 100_000, 1 << 20
    stream = landing(transform=transform)
    stream.topic(partitions=2)
    for partition in range(2):
        values = (b'{"id": %d, "note": "%s"}' % (number, b"x" * size) for number in range(30))
        stream.produce(*values, partition=partition)
    chunks: list[int] = []
    stream_chunks = landings.stream_chunks

    def watched(*given: Any, **more: Any) -> Iterator[Chunk]:
        for chunk in stream_chunks(*given, **more):
            chunks.append(sum(part.bytes_read for part in chunk.seen.values()))
            assert chunk.rows.nbytes < room + 2 * size
            yield chunk

    monkeypatch.setattr(landings, "CHUNK_BYTES", room)
    monkeypatch.setattr(landings, "stream_chunks", watched)
    stream.land()
    assert len(chunks) > 4 and max(chunks) <= room
    held = f"select kafka_partition, kafka_offset, id, length(note) from {stream.name} order by 1, 2"
    assert stream.rows(held) == [(part, at, at, size) for part in range(2) for at in range(30)]
    assert stream.rows("select sum(records_read), sum(landed), sum(holes) from kafka_publication") == [(60, 60, 0)]


def test_a_function_s_records_are_read_once_by_many_tasks_and_its_rows_come_in_bounded_chunks(
    landing: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(records: DataFrame) -> DataFrame:
        found = records.where("id % 2 = 0").unionByName(records.where("id % 2 = 1"))
        return found.where("id % 10 <> 3").select("kafka_partition", "kafka_offset", "id")

    each, room = 3_000, 20_000
    stream = landing(transform=twice)
    stream.topic(partitions=2)
    for partition in range(2):
        stream.produce_ids(partition * each, (partition + 1) * each, partition=partition)
        stream.produce(b"{cut", partition=partition)
    reads: list[int | None] = []
    read, stream_chunks = KafkaResource.read, landings.stream_chunks

    def watched_read(self: KafkaResource, *given: Any, at_once: int | None = None) -> DataFrame:
        reads.append(at_once)
        return read(self, *given, at_once=at_once)

    def watched(*given: Any, **more: Any) -> Iterator[Chunk]:
        for chunk in stream_chunks(*given, **more):
            told.append(sum(part.read for part in chunk.seen.values()))
            assert chunk.rows.nbytes <= room
            yield chunk

    told: list[int] = []
    monkeypatch.setattr(KafkaResource, "read", watched_read)
    monkeypatch.setattr(landings, "stream_chunks", watched)
    monkeypatch.setattr(landings, "CHUNK_BYTES", room)
    monkeypatch.setattr("kafka_assets.spark.chunks.TASK_BYTES", room)
    monkeypatch.setattr("kafka_assets.spark.chunks.PROBE", 500)
    stream.land()
    assert len(reads) == 4 and reads[-1], "that of the frame, two while nobody knows how large records are, and one"
    assert sum(map(bool, told)) >= 2 + 4, "told of by each of its tasks"
    held = f"select count(*), count(distinct id), sum(id) from {stream.name}"
    wanted = [number for number in range(2 * each) if number % 10 != 3]
    assert stream.rows(held) == [(len(wanted), len(wanted), sum(wanted))]
    books = "select sum(records_read), sum(landed), sum(filtered), sum(quarantined), sum(holes) from kafka_publication"
    assert stream.rows(books) == [(2 * each + 2, len(wanted), 2 * each - len(wanted), 2, 0)]


@ROADS
def test_a_run_of_several_transactions_reads_the_next_one_s_records_before_one_is_committed(
    landing: Declare, transform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = landing(transform=transform, on_bad="fail", slices={"max_records": 10})
    stream.topic(partitions=2)
    stream.produce_ids(0, 30, partition=0)
    stream.produce(*[b"{cut"] * 10, partition=1)
    stream.produce_ids(40, 60, partition=1)
    begun, published = threading.Semaphore(0), []
    stream_chunks, publish = landings.stream_chunks, land.publish

    def watched(*given: Any, **more: Any) -> Iterator[Chunk]:
        begun.release()
        yield from stream_chunks(*given, **more)

    def watched_publish(*given: Any) -> Any:
        assert begun.acquire(timeout=60)
        try:
            return publish(*given)
        finally:
            published.append(len(published))
            if len(published) not in (4, 6):  # the fourth one fails before all of it is read; the sixth is the last
                assert begun.acquire(timeout=60), "the next one is not read yet"
                begun.release()

    monkeypatch.setattr(land, "MAX_OFFSETS", 10)
    monkeypatch.setattr(landings, "stream_chunks", watched)
    monkeypatch.setattr(land, "publish", watched_publish)
    [request] = stream.tick().requests
    said = failure_of(stream.run(request))
    assert "1 of the run's transactions failed, 5 slices have landed all the same" in said
    assert f"the first, {stream.name}:1:0-10: " in said
    assert len(published) == 6
    ids = [*range(30), *range(40, 60)]
    assert stream.rows(f"select id from {stream.name} order by id") == [(one,) for one in ids]
    books = "select sum(records_read), sum(landed), sum(holes) from kafka_publication where state = 'committed'"
    assert stream.rows(books) == [(50, 50, 0)]


@pytest.mark.parametrize("room", [True, False], ids=["there is room", "there is none"])
def test_what_tasks_have_made_comes_past_spark_where_there_is_room_for_it(
    landing: Declare, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = landing(max_bad_ratio=1.0)
    stream.topic(partitions=2)
    for partition in range(2):
        stream.produce(
            *(b'{"id": %d}' % number if number % 9 else b"{cut" for number in range(500)), partition=partition
        )
    claims: list[int] = []
    claimed = Mailbox.claimed

    def counted(self: Mailbox, name: bytes) -> Any:
        unit = claimed(self, name)
        claims.append(unit.num_rows)
        return unit

    monkeypatch.setattr(Mailbox, "claimed", counted)
    if not room:
        monkeypatch.setattr(mailboxes, "UNITS", 0)
    stream.land()
    assert (len(claims) >= 2) is room and (not claims) is not room
    assert stream.rows(f"select count(*), count(distinct kafka_partition || ':' || id) from {stream.name}") == [
        (888, 888)
    ]
    assert stream.rows(BOOKS) == [(1000, 888, 112, 0)]


def test_a_chunk_whose_packets_are_gone_is_asked_for_again(landing: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = landing()
    stream.topic()
    stream.produce(b'{"id": 1}', b'{"id": 2}')
    claimed = Mailbox.claimed

    def lost_once(self: Mailbox, name: bytes) -> Any:
        monkeypatch.setattr(Mailbox, "claimed", claimed)
        return claimed(self, b"another name")

    monkeypatch.setattr(Mailbox, "claimed", lost_once)
    [request] = stream.tick().requests
    assert "is not here" in failure_of(stream.run(request))
    assert stream.rows(f"select count(*) from {stream.name}") == [(0,)]
    assert stream.run(request).success
    assert stream.rows(f"select id from {stream.name} order by id") == [(1,), (2,)]
