"""Records of Kafka as a task of Spark's reads them: by the client that live mode reads with.

No record passes through Java then, which took half of a query's work: Spark says which task reads which offsets and
tries again what fails, and records come to the decoder straight from the broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, cast

import numpy as np
import pyarrow as pa

from kafka_assets.decode.fingerprints import hashes_of
from kafka_assets.decode.messages import Columns, joined
from kafka_assets.decode.passage import HEADER_TYPE

Range = tuple[str, int, int, int]
"""Topic, partition, start, end."""

BLOCK = 10_000
BLOCK_BYTES = 4 << 20
"""Records that are decoded at a time, or so many bytes of them. What the client has fetched ahead is bounded by its
own queue (`OURS`), whatever their size."""

PATIENCE = 30.0
"""Seconds without any progress. Both ends of what is read are checked before it, and of what is read ahead after it:
there seldom should be any."""

GONE = (1, 3, -140, -188, -190)
"""librdkafka's codes for offsets, topics and partitions that are not there."""

DAMAGED = (2, 76, -198, -199)
"""Those for records whose bytes are not what was written, or are compressed as nobody here can undo."""

GRACE = 5.0
"""Seconds without progress where one of them was heard: for so long another broker may not know of a topic yet."""

OURS = {
    # What is read is there: nobody has to wait for it to come. But with each answer the client asks for what comes
    # next, and at the log's end the broker keeps that question for so long.
    "fetch.wait.max.ms": "10",
    # What is fetched ahead is held by this process, and beyond a task's end it is thrown away. Headers are not among
    # these bytes, so records are counted, too.
    "queued.max.messages.kbytes": "2048",
    "queued.min.messages": str(BLOCK),
    # Where enough was fetched ahead, that is soon decoded.
    "fetch.queue.backoff.ms": "5",
    # That a topic is not there is told at once, and how far the client has come every second.
    "topic.metadata.propagation.max.ms": "0",
    "statistics.interval.ms": "1000",
    # What fails is told: it need not be logged with each try to connect, twenty times a second.
    "log_level": "0",
}
"""Properties of the client that are not a user's to set here: who tunes them means a consumer that waits for records,
and is one process."""

_POLL = 0.05
"""Seconds to wait for the next record: where there are holes only the client's position tells that it is past them."""


UNTOLD: Any = object()
"""Headers that the client cannot give."""


class NotFetched(Exception):
    """What Spark tells of it is its text, which says why in words for `spark/reached.py`."""

    def __init__(self, *, place: Range, at: int | None, code: int | None, why: str) -> None:
        """`at`: what it came to, or None where there is no client that could read."""
        topic, partition, _, end = place
        told = {"topic": topic, "partition": partition, "at": at, "end": end, "code": code, "why": why}
        super().__init__(json.dumps(told))


Fetch = tuple[Mapping[str, str], Sequence[Range], bool]
"""The client's properties, with what it needs to be let in; what each task reads, by its number; and whether records
that have no value are left out."""


def fetched(tasks: Iterable[Any], fetch: Fetch) -> Generator[Any]:
    """The records of these tasks, in batches whose columns `passage.Reader` reads; raises `NotFetched`."""
    config, ranges, valued = fetch
    for batch in tasks:
        asked: list[int] = batch.column(0).to_pylist()
        for number in asked:
            with closing(_read(config, ranges[number])) as blocks:
                for columns in blocks:
                    found = _batch(columns)
                    yield found.filter(found.column("value").is_valid()) if valued else found


def _read(config: Mapping[str, str], place: Range) -> Generator[Columns]:
    """The committed records of a range, in order; holes are simply not there."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    topic, partition, start, end = place
    told = _Told(start)
    try:
        consumer: Any = Consumer({**config, **OURS, "error_cb": told.failed, "stats_cb": told.counted})
    except KafkaException as refused:
        error: KafkaError = refused.args[0]
        raise NotFetched(place=place, at=None, code=error.code(), why=error.str()) from None
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        at, heard, block = start, time.monotonic(), _Block()
        while at < end:
            before = at, told.fetched
            # What is there at once is no more than the client's queue holds.
            messages: list[Any] = consumer.consume(min(BLOCK, end - at), 0) or consumer.consume(1, _POLL)
            good, log_end = _records(messages, place, at)
            if good:
                at = good[-1].offset() + 1
                block.add([message for message in good if message.offset() < end] if at > end else good)
            else:
                # Past holes and control records no message comes, and the position tells.
                at = max(at, consumer.position([TopicPartition(topic, partition)])[0].offset)
            # Of holes at the log's end alone neither does: what says that it ends there says where.
            at = max(at, log_end)
            if (at, told.fetched) > before:
                heard, told.error = time.monotonic(), None
            elif time.monotonic() - heard > told.patience:
                raise told.not_fetched(consumer, place, at)
            if block.is_full:
                yield block.taken()
                heard = time.monotonic()  # who took it may have been slow
        if len(block):
            yield block.taken()
    finally:
        consumer.close()


class _Told:
    """What a client tells beside records."""

    def __init__(self, start: int) -> None:
        self.error: Any = None
        """The last one since there was progress."""
        self.fetched = start
        """The offset that it asks the broker for next: it goes on where nobody sees a record of a large transaction
        that was aborted."""

    def failed(self, error: Any) -> None:
        self.error = error

    def counted(self, statistics: str) -> None:
        topics = json.loads(statistics)["topics"].values()
        places = [one["next_offset"] for topic in topics for one in topic["partitions"].values()]
        self.fetched = max([self.fetched, *places])

    @property
    def patience(self) -> float:
        return GRACE if self.error is not None and self.error.code() in GONE else PATIENCE

    def not_fetched(self, consumer: Any, place: Range, at: int) -> NotFetched:
        error = self.error or _wrong(consumer, place)
        if error is None:
            why = "the log ends there, or an open transaction holds the rest back"
            return NotFetched(place=place, at=at, code=None, why=why)
        return NotFetched(place=place, at=at, code=error.code(), why=error.str())


def _wrong(consumer: Any, place: Range) -> Any:
    """What the broker says of the partition to who asks: that it has no leader, or is not to be read."""
    from confluent_kafka import KafkaException

    topic, partition, _, _ = place
    try:
        found = consumer.list_topics(topic, timeout=GRACE).topics[topic]
    except KafkaException as raised:
        return raised.args[0]
    return found.error or (found.partitions[partition].error if partition in found.partitions else None)


def _records(messages: Sequence[Any], place: Range, at: int) -> tuple[Sequence[Any], int]:
    """The messages that are records, and the log's end if it was come to; raises what another message says.

    Except that its group is not the user's to use, which nobody does. The log ends for who reads committed records
    where the first open transaction begins.
    """
    from confluent_kafka import KafkaError

    if not messages:
        return messages, at
    kind = cast("Any", type(messages[0]))
    errors: list[Any] = list(map(kind.error, messages))
    if not any(errors):
        return messages, at
    for message, error in zip(messages, errors, strict=True):
        if error is None or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            continue
        if error.code() != KafkaError._PARTITION_EOF:
            raise NotFetched(place=place, at=at, code=error.code(), why=error.str())
        at = max(at, message.offset())
    return [message for message, error in zip(messages, errors, strict=True) if error is None], at


class _Block:
    """Records that are decoded together."""

    def __init__(self) -> None:
        self._parts: list[Columns] = []
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def is_full(self) -> bool:
        return len(self) >= BLOCK or self._bytes >= BLOCK_BYTES

    def add(self, messages: Sequence[Any]) -> None:
        if messages:
            self._parts.append(Columns.of(messages, untold=UNTOLD))
            self._bytes += self._parts[-1].bytes + self._parts[-1].header_bytes

    def taken(self) -> Columns:
        """All of it, of which there is one at least; the next ones go into another block."""
        parts, self._parts, self._bytes = self._parts, [], 0
        return joined(parts)


def _batch(columns: Columns) -> Any:
    """Records as the columns that `passage.Reader` reads."""
    count = len(columns)
    at, timed = columns.times
    told: Any = pa.nulls(count, HEADER_TYPE)
    untold: Any = pa.repeat(pa.scalar(False), count)
    if (headers := columns.headers) is not None:
        lists: list[Any] = [[] if one is None or one is UNTOLD else one for one in headers]
        ends: Any = pa.array(np.concatenate([[0], np.cumsum([len(one) for one in lists])]), pa.int32())
        names = pa.array([name for one in lists for name, _ in one], pa.string())
        values = pa.array([value for one in lists for _, value in one], pa.binary())
        pairs: Any = pa.StructArray.from_arrays([names, values], names=["key", "value"])
        told = pa.ListArray.from_arrays(ends, pairs).cast(HEADER_TYPE)
        untold = pa.array([one is UNTOLD for one in headers])
    prints = hashes_of(columns.partition, columns.offsets, columns.keys, columns.values)
    found: dict[str, Any] = {
        "value": columns.values,
        "key": columns.keys,
        "headers": told,
        "untold": untold,
        "partition": pa.repeat(pa.scalar(columns.partition, pa.int32()), count),
        "offset": pa.array(columns.offsets),
        "timestampType": pa.array(columns.stamps[:, 0] - 1, pa.int32()),
        "timestamp": pa.array(at, mask=~timed),
        "fingerprint": pa.array(prints),
    }
    return pa.RecordBatch.from_pydict(found)
